# SPDX-License-Identifier: MIT
"""Trees from one root that carry a broadcast at the optimum, few of them (Blink, MLSys 2020, section 3).

Multiplicative weights (Garg, Koenemann 1998) make candidates: a link's length grows with what trees have taken of it, and the
next tree is the shortest. Switches only forward: between two hosts a tree takes the shortest path through them, so that the
shortest tree is an arborescence of hosts. Where there are switches, a chain of all hosts is a candidate too. An integer program
then chooses trees of whole units of rate, as few as it can, within 5 % of the optimum. Where links join hosts directly and the
candidates do not suffice, trees are built one by one such that the rest still has room for the others (Edmonds' theorem,
Lovasz' proof).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from itertools import pairwise
from math import log
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint
from scipy.sparse import csr_array

from netsum_planner.errors import PlanError
from netsum_planner.optimum.cuts import min_cut
from netsum_planner.optimum.optimum import Collective, common, optimum
from netsum_planner.optimum.program import solve
from netsum_planner.topologies.model import Pair, Topology

# The cheapest arborescence (Chu, Liu 1965; Edmonds 1967).


Costs = Mapping[tuple[int, int], float]


def cheapest(nodes: int, root: int, costs: Costs) -> list[tuple[int, int]]:
    """The arcs of an arborescence from ``root`` over nodes 0..nodes-1 with the least sum of costs; of equal ones, the same one
    every time. Every node must be reachable. Cost: O(nodes x arcs)."""
    arcs = [(source, target, cost, n) for n, ((source, target), cost) in enumerate(costs.items()) if target != root]
    chosen = _solve(nodes, root, arcs)
    ends = list(costs)
    return [ends[n] for n in chosen]


def _solve(nodes: int, root: int, arcs: list[tuple[int, int, float, int]]) -> list[int]:
    """Ids of the chosen arcs, each of which has a source, a target, a cost and an id."""
    best: dict[int, tuple[int, int, float, int]] = {}
    for arc in arcs:
        if arc[0] != arc[1] and (arc[1] not in best or arc[2] < best[arc[1]][2]):
            best[arc[1]] = arc
    cycle = _cycle(root, best)
    if not cycle:
        return [arc[3] for arc in best.values()]
    # The cycle becomes one node; an arc into it costs what it adds to breaking the cycle there.
    inside, whole = set(cycle), nodes
    outer, target_of = [], {}
    for source, target, cost, n in arcs:
        if target in inside:
            if source not in inside:
                outer.append((source, whole, cost - best[target][2], n))
                target_of[n] = target
        else:
            outer.append((whole if source in inside else source, target, cost, n))
    chosen = _solve(nodes + 1, root, outer)
    broken = next(target_of[n] for n in chosen if n in target_of)
    return chosen + [best[node][3] for node in cycle if node != broken]


def _cycle(root: int, best: Mapping[int, tuple[int, int, float, int]]) -> list[int]:
    """The nodes of a cycle among the best arcs, if there is one."""
    state: dict[int, int] = {root: 0}
    for start in best:
        path, node = [], start
        while node not in state:
            state[node] = start + 1
            path.append(node)
            node = best[node][0]
        if state[node] == start + 1 and node in path:
            return path[path.index(node) :]
        for each in path:
            state[each] = 0
    return []


NEAR = Fraction(95, 100)
"""Of the optimum: what few trees must reach."""

EPSILON = 0.1
_SOLVER_S = 2.0
"""Seconds that the integer program may take before its best solution counts."""

Path = tuple[str, ...]
"""From a host to a host, through switches."""

Ways = dict[tuple[int, int], tuple[float, Path]]
"""By the numbers of two hosts: a length, and a path of this length."""


@dataclass(frozen=True)
class Tree:
    """``paths``: one to each host but the root, those to hosts nearer to the root first; ``rate``: GB/s that it carries."""

    root: str
    rate: Fraction
    paths: tuple[Path, ...]

    @property
    def depths(self) -> dict[str, int]:
        """The distance in hosts of each host from the root."""
        found = {self.root: 0}
        for path in self.paths:
            found[path[-1]] = found[path[0]] + 1
        return found


@dataclass(frozen=True)
class Packing:
    """``root`` is empty if there are trees of several; ``candidates``: how many trees there were to choose from."""

    topology: Topology
    root: str
    optimum: Fraction
    trees: tuple[Tree, ...]
    candidates: int

    @property
    def rate(self) -> Fraction:
        return sum((tree.rate for tree in self.trees), Fraction(0))


def pack(topology: Topology, root: str) -> Packing:
    """Raises :class:`PlanError` if hosts cannot reach each other, or no trees within 5 % of the optimum are found."""
    bound = optimum(topology.only_forwarding(), Collective.BROADCAST, root).host_only
    whole = ForwardingNetwork(topology, root)
    candidates = whole.candidates(bound.rate)
    unit = common([*topology.rates.values(), bound.rate])
    trees: Sequence[Tree] = whole.chosen(candidates, unit, bound.rate)
    if _rate(trees) < NEAR * bound.rate and not topology.switches:
        trees = _one_by_one(topology, root, unit, bound.rate)
    for parts in (2, 4, len(topology.hosts) - 1, 16):  # several trees may have to share what one unit has
        if _rate(trees) >= NEAR * bound.rate:
            break
        trees = whole.chosen(candidates, unit / parts, bound.rate)
    if _rate(trees) < NEAR * bound.rate:
        found = float(_rate(trees) / bound.rate)
        raise PlanError(f"{topology.name}: the trees that were found from {root} reach {found:.0%} of the optimum only")
    return Packing(topology, root, bound.rate, tuple(trees), len(candidates))


def _rate(trees: Sequence[Tree]) -> Fraction:
    return sum((tree.rate for tree in trees), Fraction(0))


class ForwardingNetwork:
    """The shortest trees of a network whose switches only forward, and the fewest of them."""

    def __init__(self, topology: Topology, root: str) -> None:
        self.topology = topology
        self.root = root
        self.links = list(topology.rates)
        self._number = {host: n for n, host in enumerate(topology.hosts)}
        self._rates = [float(topology.rates[ends]) for ends in self.links]

    def candidates(self, best: Fraction) -> list[tuple[Path, ...]]:
        """Different trees that together carry (1 - EPSILON) of the optimum, if each takes its share."""
        count = len(self.links)
        lengths = dict(zip(self.links, (1 / rate for rate in self._rates), strict=True))
        packed: Counter[tuple[Path, ...]] = Counter()
        used = dict.fromkeys(self.links, 0.0)
        most = int(count / EPSILON**2 * log(count + 1)) + 1
        for _ in range(most):
            tree = self.cheapest(self.ways(lengths), self.root)
            loads = Counter(ends for path in tree for ends in pairwise(path))
            step = min(float(self.topology.rates[ends]) / load for ends, load in loads.items())
            packed[tree] += step  # type: ignore[assignment]  # a weight
            for ends, load in loads.items():
                rate = float(self.topology.rates[ends])
                used[ends] += load * step / rate
                lengths[ends] *= 1 + EPSILON * load * step / rate
            if sum(packed.values()) / max(used.values()) >= (1 - EPSILON) * float(best):
                break
        return [*packed, *self._chains()]

    def _chains(self) -> Iterator[tuple[Path, ...]]:
        """From host to host in their order, either way: each sends to one only."""
        topology = self.topology
        if not topology.switches:
            return
        lengths = dict(zip(self.links, (1 / rate for rate in self._rates), strict=True))
        start = topology.hosts.index(self.root)
        order = (*topology.hosts[start:], *topology.hosts[:start])
        for chain in (order, (order[0], *order[:0:-1])):
            there = [self._from(one, lengths).get(other) for one, other in pairwise(chain)]
            if all(there):
                yield tuple(found[1] for found in there if found)

    def ways(self, lengths: Mapping[Pair, float]) -> Ways:
        """The shortest path from each host to each other through switches alone, and its length."""
        found: Ways = {}
        for number, host in enumerate(self.topology.hosts):
            for other, way in self._from(host, lengths).items():
                found[number, self._number[other]] = way
        return found

    def cheapest(self, ways: Ways, root: str) -> tuple[Path, ...]:
        """The tree of these paths that is shortest altogether, its paths from the root outwards."""
        costs = {arc: length for arc, (length, _) in ways.items()}
        chosen = cheapest(len(self.topology.hosts), self._number[root], costs)
        return outwards(root, [ways[arc][1] for arc in chosen])

    def _from(self, host: str, lengths: Mapping[Pair, float]) -> dict[str, tuple[float, Path]]:
        """The shortest paths from a host to others through switches alone (Dijkstra)."""
        topology = self.topology
        if not topology.switches:
            return {other: (lengths[host, other], (host, other)) for other in topology.neighbors[host]}
        found: dict[str, tuple[float, Path]] = {}
        queue: list[tuple[float, Path]] = [(0.0, (host,))]
        done: set[str] = set()
        while queue:
            length, path = heappop(queue)
            node = path[-1]
            if node in done:
                continue
            done.add(node)
            if node == host or node in topology.switches:
                for other in topology.neighbors[node]:
                    if other not in done:
                        heappush(queue, (length + lengths[node, other], (*path, other)))
            else:
                found[node] = (length, path)
        return found

    def chosen(self, candidates: Sequence[tuple[Path, ...]], unit: Fraction, best: Fraction) -> list[Tree]:
        """As much as whole units of candidates carry, with as few trees as the program finds."""
        rows, columns, loads = [], [], []
        place = {ends: n for n, ends in enumerate(self.links)}
        for column, tree in enumerate(candidates):
            for ends, load in Counter(ends for path in tree for ends in pairwise(path)).items():
                rows.append(place[ends])
                columns.append(column)
                loads.append(load)
        count = len(candidates)
        room = np.array([int(self.topology.rates[ends] / unit) for ends in self.links])
        taken = csr_array((loads, (rows, columns)), shape=(len(self.links), count))
        most = int(best / unit)
        # Columns: units of each tree, then whether it is taken at all. A unit is worth more than all trees are.
        matrix = csr_array(np.block([[np.eye(count), -most * np.eye(count)]]))
        links = csr_array(np.hstack([taken.toarray(), np.zeros((len(self.links), count))]))
        found = solve(
            np.concatenate([-np.full(count, 2.0 * most), np.ones(count)]),
            constraints=[LinearConstraint(links, -np.inf, room), LinearConstraint(matrix, -np.inf, 0)],
            integrality=np.ones(2 * count),
            bounds=Bounds(0, np.concatenate([np.full(count, most), np.ones(count)])),
            options={"time_limit": _SOLVER_S},
        )
        units: Any = [0] * count if found.x is None else found.x[:count]
        return [Tree(self.root, round(times) * unit, tree) for times, tree in zip(units, candidates, strict=True) if round(times)]


def outwards(root: str, paths: Sequence[Path]) -> tuple[Path, ...]:
    """The paths of a tree, each after the one that brings the data to its beginning."""
    of: dict[str, list[Path]] = {}
    for path in sorted(paths):
        of.setdefault(path[0], []).append(path)
    found: list[Path] = []
    queue = [root]
    for host in queue:
        found += of.get(host, [])
        queue += [path[-1] for path in of.get(host, [])]
    return tuple(found)


def _one_by_one(topology: Topology, root: str, unit: Fraction, best: Fraction) -> list[Tree]:
    """As many trees of one unit as the optimum has units: with each arc taken, every host must still be reached by all the trees
    to come. Cost: O(trees x links) max-flows."""
    left = {ends: rate / unit for ends, rate in topology.rates.items()}
    packed: Counter[tuple[Path, ...]] = Counter()
    for more in reversed(range(int(best / unit))):
        inside, paths = [root], []
        while len(inside) < len(topology.hosts):
            one, other = next(_safe(left, inside, root, more))
            left[one, other] -= 1
            inside.append(other)
            paths.append((one, other))
        packed[outwards(root, paths)] += 1
    return [Tree(root, times * unit, tree) for tree, times in packed.items()]


def _safe(left: Mapping[Pair, Fraction], inside: Sequence[str], root: str, more: int) -> Iterator[Pair]:
    """Arcs out of the tree that leave room for ``more`` trees: no set that the arc enters has fewer arcs in than that."""
    for one in inside:
        for (source, target), room in left.items():
            if source != one or target in inside or room < 1:
                continue
            rest = {**left, (one, target): room - 1}
            if one != root:
                rest[root, one] = Fraction(more)
            if more == 0 or min_cut(rest, root, target)[0] >= more:
                yield one, target
