# SPDX-License-Identifier: MIT
"""The planner of new trees for when a part of a job's network dies. It is another package, which the controller must not
import: it plugs in as an entry point."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import NamedTuple

log = logging.getLogger(__name__)

PLUGINS = "netsum.planners"


class Replanned(NamedTuple):
    """Weights of the roots, none if no switches can share; ``rate`` is the GB/s of an allreduce that they reach, ``before`` what
    the whole network reached."""

    roots: dict[str, int]
    rate: float
    before: float


Replan = Callable[[str, frozenset[str], frozenset[str | tuple[str, str]]], Replanned]
"""(network of the plan as JSON, hosts of the job, switches and links that are down, a link as its two ends) -> new weights.
Raises nothing."""


@cache
def _planner() -> Replan | None:
    for entry in entry_points(group=PLUGINS):
        try:
            found: Replan = entry.load()
        except ImportError as error:
            log.info("jobs keep the weights of their plans, because no planner is available: %s", error)
            return None
        return found
    return None


def installed_planner(network: str, hosts: frozenset[str], down: frozenset[str | tuple[str, str]]) -> Replanned:
    """As the planner that is installed has it; it is not imported before the first time."""
    planner = _planner()
    return Replanned({}, 0.0, 0.0) if planner is None else planner(network, hosts, down)
