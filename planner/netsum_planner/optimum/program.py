# SPDX-License-Identifier: MIT
"""The optimum where no single cut bounds it: a linear program with an exact certificate.

Data flow *down* trees from their roots to all hosts, and sums *up* other trees to the same roots; both share the links. The
program maximizes the rate of all trees together, over the share of each root and the rate that each direction gets of each link.
Every set of nodes with a host in it must be entered at the whole rate (less the shares of roots within), and a switch that only
forwards sends no more than it receives. Then trees exist (Edmonds 1973; Bang-Jensen, Frank, Jackson 1995; ForestColl, arXiv
2402.06787). Where switches multicast, what is found is an upper bound, which trees need not reach.

What a set demands is the same as a flow to each host. The solver's floats are then rounded to rationals, both the rates (whose
worst cut is a lower bound) and the prices of the constraints (whose combination is an upper bound). If the two are equal, the
optimum is proved.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import linprog, milp
from scipy.sparse import csr_array

from netsum_planner.errors import PlanError
from netsum_planner.optimum.cuts import worst_cut
from netsum_planner.topologies.model import Pair, Topology

# Integer programs, by HiGHS.


def solve(*given: Any, **more: Any) -> Any:
    """As :func:`scipy.optimize.milp`."""
    with _standard_output_aside():
        return milp(*given, **more)


@contextmanager
def _standard_output_aside() -> Iterator[None]:
    """HiGHS prints a line of its own now and then, past Python, which would end up in our JSON: it goes to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


_DENOMINATORS = (1, 12, 120, 1000, 20_000, 10**6)

Set = tuple[int, frozenset[str]]
"""A layer, and nodes that must be entered."""

Prices = tuple[list[tuple[Set, Fraction]], dict[tuple[int, str], Fraction]]
"""Of sets, and of forwarding switches by layer: a dual solution."""


@dataclass(frozen=True)
class Arc:
    """A direction of flow in a layer: 0 is down. In layer 1, which is up, it is the reverse of the link that carries it."""

    layer: int
    ends: Pair


@dataclass(frozen=True)
class Solution:
    """``lower`` and ``upper`` in GB/s; equal, they are the optimum. ``prices`` has the links that bound it (one direction of
    those whose directions share a rate), and how much a GB/s more of each would add."""

    lower: Fraction
    upper: Fraction
    prices: Mapping[Pair, Fraction]


class LinearProgram:
    """``groups``: links, and the arcs that share each one's rate; ``roots``: the share of each, or None if they are free."""

    def __init__(
        self, topology: Topology, groups: Sequence[tuple[Pair, tuple[Arc, ...]]], roots: Mapping[str, Fraction] | None
    ) -> None:
        self.topology = topology
        self.groups = groups
        self.roots = roots
        self.arcs = [arc for _, arcs in groups for arc in arcs]
        self.layers = range(1 + max(arc.layer for arc in self.arcs))
        self.free = (*topology.hosts, *(name for name, sums in topology.switches.items() if sums))
        self.forwarding = [name for name, sums in topology.switches.items() if not sums]
        self.unit = max(topology.rates.values())

    def solve(self) -> Solution:
        """Raises :class:`PlanError` if the solver fails. Cost: a linear program with hosts x links columns."""
        model = _Model(self)
        found = linprog(**model.arguments(), method="highs-ds")
        if found.status:
            raise PlanError(f"{self.topology.name}: the linear program failed: {found.message}")
        lower = max(self.lower(*model.values(found.x, largest)) for largest in _DENOMINATORS)
        tried = (self.upper(model.prices(found, largest)) for largest in _DENOMINATORS)
        bounds = [bound for bound in tried if bound is not None]
        if not bounds:
            raise PlanError(f"{self.topology.name}: the linear program has no prices that prove a bound")
        upper, prices = min(bounds, key=lambda bound: bound[0])
        return Solution(lower, upper, prices)

    def lower(self, shares: Mapping[str, Fraction], rates: Mapping[Arc, Fraction]) -> Fraction:
        """The rate that such rates carry from such roots, exactly, in GB/s; 0 if switches would send more than they get."""
        for layer in self.layers:
            net = dict.fromkeys(self.topology.nodes, Fraction(0))
            for arc, rate in rates.items():
                if arc.layer == layer:
                    net[arc.ends[0]] -= rate
                    net[arc.ends[1]] += rate
            if any(net[switch] < 0 for switch in self.forwarding):
                return Fraction(0)
        loads = [(self.topology.rates[link], sum(rates[arc] for arc in arcs)) for link, arcs in self.groups]
        fits = min((rate / load for rate, load in loads if load), default=Fraction(0))
        whole = sum(shares.values(), Fraction(0))
        if not whole or not fits:
            return Fraction(0)
        carried = []
        for layer in self.layers:
            used = {arc.ends: rate for arc, rate in rates.items() if arc.layer == layer and rate}
            carried.append(worst_cut(used, shares, self.topology.hosts)[0])
        return fits * min(carried) * whole

    def upper(self, prices: Prices) -> tuple[Fraction, dict[Pair, Fraction]] | None:
        """The bound that prices prove, in GB/s, and those of the links; None if they prove nothing."""
        of_sets, of_switches = prices
        zero = Fraction(0)
        held = {root: sum((price for (_, inside), price in of_sets if root in inside), zero) for root in self.free}
        kept = max(held.values())
        if self.roots is not None:
            kept = sum((share * held[root] for root, share in self.roots.items()), zero)
        gain = sum((price for _, price in of_sets), zero) - kept
        if gain <= 0:
            return None
        loads = {
            arc: of_switches.get((arc.layer, arc.ends[1]), zero) - of_switches.get((arc.layer, arc.ends[0]), zero)
            for arc in self.arcs
        }
        for (layer, inside), price in of_sets:
            for arc in self.arcs:
                if arc.layer == layer and arc.ends[1] in inside and arc.ends[0] not in inside:
                    loads[arc] += price
        found = {link: max(loads[arc] for arc in arcs) / gain for link, arcs in self.groups}
        found = {link: price for link, price in found.items() if price > 0}
        return sum((self.topology.rates[link] * price for link, price in found.items()), zero), found

    def prices_of_hosts(self) -> Prices:
        """The prices if nothing but the hosts' own links bounds: a host enters once what it passes on, on the average."""
        of_sets = [((layer, frozenset({host})), Fraction(1)) for layer in self.layers for host in self.topology.hosts]
        return of_sets, {(layer, switch): Fraction(1, 2) for layer in self.layers for switch in self.forwarding}


class _Model:
    """The linear program. Its columns are the rate, the roots' shares if they are free, the arcs' rates, and for each layer and
    host a flow to this host: along each arc, and from each root."""

    def __init__(self, program: LinearProgram) -> None:
        self._program = program
        self._arcs = program.arcs
        self._free = program.free if program.roots is None else ()
        self._first_arc = 1 + len(self._free)
        self._flows = self._first_arc + len(self._arcs)
        self._sinks = [(layer, host) for layer in program.layers for host in program.topology.hosts]
        roots = program.free if program.roots is None else tuple(program.roots)
        self._roots = roots
        self._each = len(self._arcs) // len(program.layers) + len(roots)
        self._of_layer = {layer: [(n, arc) for n, arc in enumerate(self._arcs) if arc.layer == layer] for layer in program.layers}

    def arguments(self) -> dict[str, Any]:
        program = self._program
        most, equal = _Rows(), _Rows()
        for number, (layer, sink) in enumerate(self._sinks):
            first = self._flows + number * self._each
            at: dict[str, dict[int, float]] = {name: {} for name in program.topology.nodes}
            for place, (n, arc) in enumerate(self._of_layer[layer]):
                most.add({first + place: 1.0, self._first_arc + n: -1.0})
                at[arc.ends[0]][first + place] = -1.0
                at[arc.ends[1]][first + place] = 1.0
            for place, root in enumerate(self._roots, len(self._of_layer[layer])):
                at[root][first + place] = 1.0
                share = {0: -float(program.roots[root])} if program.roots is not None else {1 + self._free.index(root): -1.0}
                most.add({first + place: 1.0, **share})
            at[sink][0] = -1.0
            for row in at.values():
                equal.add(row)
        if self._free:
            equal.add({0: -1.0, **{1 + n: 1.0 for n in range(len(self._free))}})
        for layer in program.layers:
            for switch in program.forwarding:
                most.add(
                    {
                        self._first_arc + n: 1.0 if arc.ends[0] == switch else -1.0
                        for n, arc in self._of_layer[layer]
                        if switch in arc.ends
                    }
                )
        column = self._first_arc
        for link, arcs in program.groups:
            most.add({column + n: 1.0 for n in range(len(arcs))}, float(program.topology.rates[link] / program.unit))
            column += len(arcs)
        size = self._flows + len(self._sinks) * self._each
        objective = np.zeros(size)
        objective[0] = -1
        return {
            "c": objective,
            "A_ub": most.matrix(size),
            "b_ub": most.limits,
            "A_eq": equal.matrix(size),
            "b_eq": equal.limits,
        }

    def values(self, x: Any, largest: int) -> tuple[dict[str, Fraction], dict[Arc, Fraction]]:
        """Roots' shares and arcs' rates as rationals."""
        rounded = [_rational(value, largest) for value in x[: self._flows]]
        shares = dict(zip(self._free, rounded[1:], strict=False)) if self._free else dict(self._program.roots or {})
        return shares, dict(zip(self._arcs, rounded[self._first_arc :], strict=True))

    def prices(self, found: Any, largest: int) -> Prices:
        """A host's flow gives every node a potential; the sets of nodes above each level have the difference to the next as
        their price."""
        program = self._program
        nodes = program.topology.nodes
        of_sets: list[tuple[Set, Fraction]] = []
        for number, (layer, sink) in enumerate(self._sinks):
            of_nodes = found.eqlin.marginals[number * len(nodes) : (number + 1) * len(nodes)]
            sign = np.sign(of_nodes[nodes.index(sink)])
            potentials = {name: _rational(sign * value, largest) for name, value in zip(nodes, of_nodes, strict=True)}
            below = Fraction(0)
            for level in sorted({value for value in potentials.values() if value}):
                inside = frozenset(name for name, value in potentials.items() if value >= level)
                if sink in inside:
                    of_sets.append(((layer, inside), level - below))
                    below = level
        names = [(layer, switch) for layer in program.layers for switch in program.forwarding]
        start = len(self._sinks) * self._each
        marginals = found.ineqlin.marginals[start : start + len(names)]
        return of_sets, {name: _rational(-value, largest) for name, value in zip(names, marginals, strict=True)}


def _rational(value: Any, largest: int) -> Fraction:
    return max(Fraction(0), Fraction(float(value)).limit_denominator(largest))


class _Rows:
    """The rows of a sparse matrix, and what each may be."""

    def __init__(self) -> None:
        self.limits: list[float] = []
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._values: list[float] = []

    def add(self, entries: Mapping[int, float], limit: float = 0.0) -> None:
        self._rows += [len(self.limits)] * len(entries)
        self._columns += entries.keys()
        self._values += entries.values()
        self.limits.append(limit)

    def matrix(self, columns: int) -> Any:
        return csr_array((self._values, (self._rows, self._columns)), shape=(len(self.limits), columns))


def one_way(topology: Topology, roots: Mapping[str, Fraction]) -> LinearProgram:
    """Only down, from roots with given shares, which add up to 1."""
    return LinearProgram(topology, [(ends, (Arc(0, ends),)) for ends in topology.rates], roots)


def both_ways(topology: Topology) -> LinearProgram:
    """Up and down. If every link has the same rate both ways, each tree may carry both: up is then down turned round."""
    rates = topology.rates
    if all(rates.get((other, one)) == rate for (one, other), rate in rates.items()):
        order = {name: n for n, name in enumerate(topology.nodes)}
        once = [(one, other) for one, other in rates if order[one] < order[other]]
        return LinearProgram(topology, [((a, b), (Arc(0, (a, b)), Arc(0, (b, a)))) for a, b in once], None)
    return LinearProgram(topology, [((a, b), (Arc(0, (a, b)), Arc(1, (b, a)))) for a, b in rates], None)
