# SPDX-License-Identifier: MIT
"""The order of ranks on hosts, so that flows of the same step share as few links as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp
from random import Random
from typing import Any

from netsum_planner.errors import PlanError
from netsum_planner.ranks.contention import ALGORITHMS, Contention, Flow, Least, contention, least, unit_rate
from netsum_planner.topologies.model import Pair, Routing, Topology, reached

# Known good orders: by neighbors, for a BiGraph, around a ring of direct links, and for a cube in a torus.


_ROTATIONS = 200
"""Attempts per host to extend a path, before the search for a ring through all hosts starts over."""
_STARTS = 20
_BACKTRACKS = 200_000

Order = tuple[str, ...]


def rank_orderings(topology: Topology, algorithm: str, random: Random) -> Iterator[Order]:
    """Those that suit the algorithm, and any network."""
    yield topology.hosts
    yield by_neighbors(topology)
    if algorithm == "halving_doubling":
        yield from bigraph(topology)
        yield from cube(topology)
    if algorithm == "ring":
        yield from around(topology, random)


def by_neighbors(topology: Topology) -> Order:
    """Hosts of the same switch together, then those of the nearest remaining switch, and so on."""
    homes: dict[str, list[str]] = {}
    for host in topology.hosts:
        homes.setdefault(topology.neighbors[host][0], []).append(host)
    place = {name: n for n, name in enumerate(homes)}
    found: list[str] = []
    here = next(iter(homes))
    while True:
        found += homes.pop(here)
        if not homes:
            return tuple(found)
        away = reached(topology.neighbors, here)
        here = min(homes, key=lambda home: (away.get(home, len(away)), place[home]))


def bigraph(topology: Topology) -> Iterator[Order]:
    """Halving-doubling without contention on a BiGraph (EFLOPS, section 4). The bits of a rank are (u, v, one more); ranks with
    an even number of ones are on upper switch u, the others on lower switch v. Partners differ in one bit, so one is above and
    one below, joined by one link; and u and v leave one rank for each end of it."""
    sides = _two_sides(topology)
    if sides is None:
        return
    hosts = {
        switch: iter([host for host in topology.hosts if topology.neighbors[host] == [switch]]) for switch in topology.switches
    }
    bits = len(sides[0]).bit_length() - 1
    found = []
    for rank in range(2 << 2 * bits):
        u, v = rank >> bits + 1, rank >> 1 & (1 << bits) - 1
        found.append(next(hosts[sides[1][v] if rank.bit_count() % 2 else sides[0][u]], None))
    if None not in found and len(found) == len(topology.hosts):
        yield tuple(host for host in found if host is not None)


def _two_sides(topology: Topology) -> tuple[list[str], list[str]] | None:
    """The two layers of a BiGraph, if there are as many switches in each, a power of two, and each is joined to all of the other
    layer."""
    switches = set(topology.switches)
    if not switches or any(len(topology.neighbors[host]) != 1 for host in topology.hosts):
        return None
    first = next(iter(topology.switches))
    lower = [name for name in topology.switches if name in topology.neighbors[first]]
    upper = [name for name in topology.switches if name not in lower]
    whole = all(switches & set(topology.neighbors[name]) == set(lower) for name in upper)
    whole &= all(switches & set(topology.neighbors[name]) == set(upper) for name in lower)
    size = len(upper)
    return (upper, lower) if whole and len(lower) == size and size & (size - 1) == 0 else None


def cube(topology: Topology) -> Iterator[Order]:
    """The order for hosts that are joined directly, if their number is a power of two: partners are neighbors, if they can
    be. (They can in a torus whose sides are 2 or 4.) Found by trying: a rank with several ones must be a neighbor of as many."""
    count = len(topology.hosts)
    if topology.switches or count & (count - 1):
        return
    beside = {host: set(topology.neighbors[host]) for host in topology.hosts}
    if any(len(others) < count.bit_length() - 1 for others in beside.values()):
        return
    placed: list[str] = [topology.hosts[0]]
    tries: list[Iterator[str]] = [iter(())]
    left = _BACKTRACKS
    while placed and left:
        left -= 1
        if len(placed) == count:
            yield tuple(placed)
            return
        if len(tries) == len(placed):
            rank = len(placed)
            near = [beside[placed[rank ^ 1 << bit]] for bit in range(rank.bit_length()) if rank >> bit & 1]
            tries.append(iter(sorted(set.intersection(*near) - set(placed), key=topology.hosts.index)))
        chosen = next(tries[-1], None)
        if chosen is not None:
            placed.append(chosen)
        else:
            tries.pop()
            placed.pop()


def around(topology: Topology, random: Random) -> Iterator[Order]:
    """The order for hosts that are joined directly: a ring through all of them over direct links, if one is found (Posa's
    rotations)."""
    if topology.switches:
        return
    beside = topology.neighbors
    for _ in range(_STARTS):
        path = [random.choice(topology.hosts)]
        for _ in range(_ROTATIONS * len(topology.hosts)):
            if len(path) == len(topology.hosts) and path[0] in beside[path[-1]]:
                yield tuple(path)
                return
            others = beside[path[-1]]
            outside = [other for other in others if other not in path]
            if outside:
                # First the host from which the fewest ways lead on, or it would be left over.
                path.append(min(outside, key=lambda other: _ways(beside, other, path)))
            else:
                turn = path.index(random.choice(others)) + 1
                path[turn:] = path[: turn - 1 : -1]


def _ways(beside: dict[str, list[str]], host: str, path: Sequence[str]) -> int:
    return sum(other not in path for other in beside[host])


# Looks for an order with less contention by swapping hosts (simulated annealing), where no known order reaches the
# bound.


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
    routing: Routing, algorithm: str, order: Sequence[str], bound: float, random: Random, progress: Callable[[int], None]
) -> tuple[str, ...]:
    """The best order that was found, after at most :data:`TRIES` swaps; ``progress(n)`` is called after some of them."""
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
            progress(number)
    return best


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
        """True if it is proved that no order has less contention."""
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
    progress: Callable[[int], None] = lambda _: None,
) -> RankMapping:
    """``given``: the host of each rank so far, by default in the topology's order. ``progress`` is called with how many swaps
    were tried. Raises :class:`PlanError`."""
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
        order = improved(routing, algorithm, best.order, float(bound.factor), random, progress)
        best = _better(best, contention(routing, algorithm, order))
    return RankMapping(topology, algorithm, before, best, bound)


def _better(one: Contention, other: Contention) -> Contention:
    """The better of two; the first if they are equal."""
    return other if (other.factor, -other.rate) < (one.factor, -one.rate) else one
