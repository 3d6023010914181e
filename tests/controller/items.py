# SPDX-License-Identifier: MIT
"""Items as a switch has them installed."""

from __future__ import annotations

from typing import TypeVar

from netsum_controller.controller import Controller
from netsum_controller.entries import Item, JobEntry

Kind = TypeVar("Kind", bound=Item)


def items_on(controller: Controller, kind: type[Kind], switch: str = "s1") -> list[Kind]:
    """Everything of a kind that the switch has."""
    with controller.context.client(switch) as client:
        return [item for item in client.read_items() if isinstance(item, kind)]


def job_entry(controller: Controller, switch: str = "s1") -> JobEntry:
    """The entry of the only job on the switch."""
    (entry,) = items_on(controller, JobEntry, switch)
    return entry
