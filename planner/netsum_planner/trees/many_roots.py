# SPDX-License-Identifier: MIT
"""Trees from several roots at once, which reach the optimum of all roots together, and few of them.

Column generation: a linear program shares the links among the trees known so far, and its prices say what a GB/s on each link is
worth. The cheapest tree at these prices joins, until none is worth it; then no trees do better. An integer program then keeps
as few trees as reach 95 % of the optimum. Switches only forward.

An allgather has trees from every host, each host's of the same rate together; reversed, they are a reduce_scatter. A tree of an
allreduce carries the sum up and its copies down, and any host can be its root: here the one from which the others are nearest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog
from scipy.sparse import csr_array

from netsum_planner.errors import PlanError
from netsum_planner.optimum.optimum import Collective, optimum
from netsum_planner.optimum.program import solve
from netsum_planner.topologies.model import Link, Pair, Topology
from netsum_planner.trees.packing import NEAR, ForwardingNetwork, Packing, Path, Tree, outwards

_ENOUGH = 0.999
"""Of the optimum: what is left over is not worth another tree."""
_ROUNDS = 500
_SOLVER_S = 5.0
"""Seconds that the integer program may take before its best solution counts."""
_LARGEST = 10**6
"""Denominator of a rate."""


Column = tuple[int, tuple[Path, ...]]
"""A tree: the number of its group, and its paths."""


def pack_all(topology: Topology, collective: Collective) -> Packing:
    """The trees of an allgather or an allreduce. Raises :class:`PlanError` if hosts cannot reach each other, or no trees within
    5 % of the optimum are found."""
    if collective not in (Collective.ALLGATHER, Collective.ALLREDUCE):
        raise PlanError(f"trees from several roots are an allgather or an allreduce, not {collective}")
    bound = optimum(topology.only_forwarding(), collective).host_only.rate
    both = collective is Collective.ALLREDUCE
    work = _Packer(_both_ways(topology) if both else topology, topology.hosts[:1] if both else topology.hosts, both)
    columns = work.columns(float(bound))
    few = work.few(columns, float(bound))
    trees = work.trees(few)
    rate = sum((tree.rate for tree in trees), Fraction(0))
    if rate < NEAR * bound:
        raise PlanError(
            f"{topology.name}: the trees that were found for {collective} reach {float(rate / bound):.0%} of the optimum only"
        )
    return Packing(topology, "", bound, tuple(trees), len(columns))


def _both_ways(topology: Topology) -> Topology:
    """The capacity of each link both ways."""
    rates = topology.rates
    links = tuple(Link(one, other, min(rate, rates[other, one])) for (one, other), rate in rates.items() if (other, one) in rates)
    return replace(topology, links=links, routes={})


class _Packer:
    """``roots``: of each group of trees; all groups have the same rate. ``both``: a tree's links are taken both ways."""

    def __init__(self, topology: Topology, roots: Sequence[str], both: bool) -> None:
        topology.require_connected()
        self._topology = topology
        self._roots = roots
        self._both = both
        self._network = ForwardingNetwork(topology, roots[0])
        self._place = {ends: n for n, ends in enumerate(topology.rates)}
        self._limits = np.array([float(rate) for rate in topology.rates.values()])

    def columns(self, best: float) -> list[Column]:
        """Trees that reach the optimum, if they share the links well."""
        found = dict(self._cheapest(1 / self._limits))
        for _ in range(_ROUNDS):
            solution = self._shared(list(found))
            if -solution.fun * len(self._roots) >= _ENOUGH * best:
                break
            marginals = -solution.ineqlin.marginals
            prices, worth = marginals[: len(self._limits)], marginals[len(self._limits) :]
            # Of trees that cost the same, the one on wide links.
            new = self._cheapest(prices + 1e-9 / self._limits)
            new = {column: cost for column, cost in new.items() if column not in found and cost < worth[column[0]]}
            if not new:
                break
            found |= new
        return list(found)

    def _cheapest(self, prices: Any) -> dict[Column, float]:
        """The cheapest tree of each group, and what it costs."""
        lengths = {ends: float(prices[n]) for ends, n in self._place.items()}
        if self._both:
            lengths = {(one, other): length + lengths[other, one] for (one, other), length in lengths.items()}
        ways = self._network.ways(lengths)
        found = {}
        for group, root in enumerate(self._roots):
            paths = self._network.cheapest(ways, root)
            found[group, paths] = sum(lengths[ends] for path in paths for ends in pairwise(path))
        return found

    def _loads(self, columns: Sequence[Column]) -> Any:
        """The number of times that each tree takes each link: a row a link."""
        loads = np.zeros((len(self._place), len(columns)))
        for number, (_, paths) in enumerate(columns):
            for one, other in (ends for path in paths for ends in pairwise(path)):
                loads[self._place[one, other], number] += 1
                if self._both:
                    loads[self._place[other, one], number] += 1
        return loads

    def _groups(self, columns: Sequence[Column]) -> Any:
        """The trees in each group: a row a group."""
        return np.array([[group == number for group, _ in columns] for number in range(len(self._roots))], float)

    def _shared(self, columns: Sequence[Column]) -> Any:
        """The rates of these trees that make the slowest group fastest; the last column is the groups' rate."""
        loads, groups = self._loads(columns), self._groups(columns)
        matrix = np.block([[loads, np.zeros((len(loads), 1))], [-groups, np.ones((len(groups), 1))]])
        objective = np.zeros(len(columns) + 1)
        objective[-1] = -1
        limits = np.concatenate([self._limits, np.zeros(len(groups))])
        found = linprog(objective, A_ub=csr_array(matrix), b_ub=limits, method="highs-ds")
        if found.status:
            raise PlanError(f"{self._topology.name}: the linear program failed: {found.message}")
        return found

    def few(self, columns: Sequence[Column], best: float) -> list[Column]:
        """As few of them as reach :data:`NEAR` of the optimum, as far as the solver finds out in time. A rate is a share of the
        optimum there, which keeps the numbers near 1."""
        rates = self._shared(columns).x[:-1]
        needed = [column for column, rate in zip(columns, rates, strict=True) if rate > 1e-9 * best]
        loads, groups = self._loads(columns), self._groups(columns)
        count = len(columns)
        most = (self._limits / best)[:, None] / np.where(loads, loads, np.inf)
        widest = np.where(loads, most, np.inf).min(axis=0)
        found = solve(
            np.concatenate([np.zeros(count), np.ones(count)]),
            constraints=[
                LinearConstraint(np.hstack([loads, np.zeros(loads.shape)]), -np.inf, self._limits / best),
                LinearConstraint(np.hstack([np.eye(count), -np.diag(widest)]), -np.inf, 0),
                LinearConstraint(np.hstack([groups, np.zeros(groups.shape)]), float(NEAR) / len(groups), np.inf),
            ],
            integrality=np.concatenate([np.zeros(count), np.ones(count)]),
            bounds=Bounds(0, np.concatenate([widest, np.ones(count)])),
            options={"time_limit": _SOLVER_S},
        )
        if found.x is None:
            return needed
        fewer = [column for column, taken in zip(columns, found.x[count:], strict=True) if taken > 0.5]
        return fewer if len(fewer) < len(needed) else needed

    def trees(self, columns: Sequence[Column]) -> list[Tree]:
        """These trees with the best rates that they have together, in rationals: rounded, then made to fit."""
        rounded = [_rational(rate) for rate in self._shared(columns).x[:-1]]
        whole = [Fraction(0)] * len(self._roots)
        for rate, (group, _) in zip(rounded, columns, strict=True):
            whole[group] += rate
        slowest = min(whole)
        rates = [rate and rate * slowest / whole[group] for rate, (group, _) in zip(rounded, columns, strict=True)]
        loads: dict[Pair, Fraction] = {}
        for row, ends in zip(self._loads(columns), self._place, strict=True):
            loads[ends] = sum((rate * int(times) for rate, times in zip(rates, row, strict=True) if times), Fraction(0))
        fits = min(self._topology.rates[ends] / load for ends, load in loads.items() if load)
        return [
            self._rooted(Tree(self._roots[group], rate * fits, paths))
            for rate, (group, paths) in zip(rates, columns, strict=True)
            if rate
        ]

    def _rooted(self, tree: Tree) -> Tree:
        """If the tree is taken both ways, from the host from which the others are nearest."""
        if not self._both:
            return tree
        beside: dict[str, list[Path]] = {}
        for path in tree.paths:
            beside.setdefault(path[0], []).append(path)
            beside.setdefault(path[-1], []).append(path[::-1])
        return min((Tree(root, tree.rate, _from(beside, root)) for root in self._topology.hosts), key=_height)


def _from(beside: Mapping[str, Sequence[Path]], root: str) -> tuple[Path, ...]:
    reached, queue, found = {root}, [root], []
    for host in queue:
        for path in beside[host]:
            if path[-1] not in reached:
                reached.add(path[-1])
                queue.append(path[-1])
                found.append(path)
    return outwards(root, found)


def _height(tree: Tree) -> int:
    return max(tree.depths.values())


def _rational(value: float) -> Fraction:
    return max(Fraction(0), Fraction(float(value)).limit_denominator(_LARGEST))
