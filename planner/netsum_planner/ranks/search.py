"""Looks for an order with less contention by swapping hosts (simulated annealing), where no known order reaches the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import exp
from random import Random

from netsum_planner.ranks.contention import unit_rate
from netsum_planner.ranks.flows import ALGORITHMS, Flow
from netsum_planner.topologies.model import Pair
from netsum_planner.topologies.routing import Routing

TRIES = 10_000
MOST_FLOWS = 20_000
"""Most flows of an order that is searched: with more, evaluating one order takes too long."""
_POWER = 4
"""Exponent of a link's load in a step: large enough for the busiest links to count most, small enough for others to count at
all."""

Placed = tuple[int, Pair]
"""A step, and a link in it."""


class Search:
    """``loads``: the flows on each link in each step, each counted by the time that it takes."""

    def __init__(self, routing: Routing, algorithm: str, order: Sequence[str]) -> None:
        self.order = list(order)
        self._routing = routing
        rates, unit = routing.topology.rates, unit_rate(routing.topology)
        self._weights = {ends: float(unit / rate) for ends, rate in rates.items()}
        self._loads: dict[Placed, int] = {}
        self._of: list[list[tuple[int, Flow]]] = [[] for _ in order]
        self.flows = 0
        self.cost = 0.0
        for number, step in enumerate(ALGORITHMS[algorithm](len(order))):
            for flow in step.flows:
                self._of[flow[0]].append((number, flow))
                self._of[flow[1]].append((number, flow))
                self._count([(number, flow)], 1)
                self.flows += 1

    @property
    def factor(self) -> float:
        return max(count * self._weights[ends] for (_, ends), count in self._loads.items())

    def _count(self, flows: Iterable[tuple[int, Flow]], by: int) -> None:
        for number, (one, other) in flows:
            for ends in pairwise(self._routing.path(self.order[one], self.order[other])):
                before = self._loads.get((number, ends), 0)
                self._loads[number, ends] = before + by
                weight = self._weights[ends] ** _POWER
                self.cost += weight * ((before + by) ** _POWER - before**_POWER)

    def swap(self, one: int, other: int) -> None:
        flows = {*self._of[one], *self._of[other]}
        self._count(flows, -1)
        self.order[one], self.order[other] = self.order[other], self.order[one]
        self._count(flows, 1)


def improved(
    routing: Routing, algorithm: str, order: Sequence[str], bound: float, random: Random, told: Callable[[int], None]
) -> tuple[str, ...]:
    """The best order that was found, after at most :data:`TRIES` swaps; ``told(n)`` is called after some of them."""
    search = Search(routing, algorithm, order)
    if search.flows > MOST_FLOWS or len(order) < 3:
        return tuple(order)
    best, best_at = tuple(order), (search.factor, search.cost)
    start = search.cost / search.flows
    for number in range(TRIES):
        heat = start * (1 - number / TRIES)
        one, other = random.sample(range(len(order)), 2)
        before = search.cost
        search.swap(one, other)
        worse = search.cost - before
        if worse > 0 and (not heat or random.random() >= exp(-worse / heat)):
            search.swap(one, other)
        elif search.cost < best_at[1]:
            at = (search.factor, search.cost)
            if at < best_at:
                best, best_at = tuple(search.order), at
                if at[0] <= bound:
                    break
        if number % 500 == 0:
            told(number)
    return best
