"""Which host is which rank, so that flows of the same step share as few links as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from netsum_planner.errors import PlanError
from netsum_planner.ranks.contention import Contention, Least, contention, least
from netsum_planner.ranks.flows import ALGORITHMS
from netsum_planner.ranks.rank_orderings import rank_orderings
from netsum_planner.ranks.search import improved
from netsum_planner.topologies.model import Topology
from netsum_planner.topologies.routing import Routing


@dataclass(frozen=True)
class RankMapping:
    """``before``: the order that was given; ``after``: the best that was found; ``least``: the bound on every order."""

    topology: Topology
    algorithm: str
    before: Contention
    after: Contention
    least: Least

    @property
    def best(self) -> bool:
        """Whether it is proved that no order has less contention."""
        return self.after.factor == self.least.factor

    def to_json(self) -> dict[str, Any]:
        return {
            "topology": self.topology.name,
            "algorithm": self.algorithm,
            "ranks": len(self.topology.hosts),
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "least": float(self.least.factor),
            "least_by": self.least.why,
            "proved_best": self.best,
        }


def map_ranks(
    topology: Topology,
    algorithm: str,
    given: Sequence[str] | None = None,
    *,
    seed: int = 1,
    told: Callable[[int], None] = lambda _: None,
) -> RankMapping:
    """``given``: the host of each rank so far, by default in the topology's order. ``told`` hears how many swaps were tried.
    Raises :class:`PlanError`."""
    topology.require_connected()
    given = topology.hosts if given is None else tuple(given)
    if sorted(given) != sorted(topology.hosts):
        odd = sorted(set(given) ^ set(topology.hosts)) or [host for host in given if given.count(host) > 1]
        raise PlanError(
            f"{topology.name}: an order has every host once ({', '.join(topology.hosts)}), and differs in {', '.join(odd)}"
        )
    if algorithm not in ALGORITHMS:
        raise PlanError(f"algorithm is {algorithm!r}, must be one of {', '.join(ALGORITHMS)}")
    routing, random = Routing(topology), Random(seed)
    before, bound = contention(routing, algorithm, given), least(topology, algorithm)
    best = before
    for order in rank_orderings(topology, algorithm, random):
        if best.factor == bound.factor and best is not before:
            break
        best = _better(best, contention(routing, algorithm, order))
    if best.factor > bound.factor:
        order = improved(routing, algorithm, best.order, float(bound.factor), random, told)
        best = _better(best, contention(routing, algorithm, order))
    return RankMapping(topology, algorithm, before, best, bound)


def _better(one: Contention, other: Contention) -> Contention:
    """The better of two; the first if they are equal."""
    return other if (other.factor, -other.rate) < (one.factor, -one.rate) else one
