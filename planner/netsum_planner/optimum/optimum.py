# SPDX-License-Identifier: MIT
"""The optimum of a collective on a topology: host-only and with switches that sum, and what bounds each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import reduce
from math import gcd, lcm
from typing import Any

from netsum_planner.errors import PlanError
from netsum_planner.optimum.cuts import Cut, cut_of, worst_cut
from netsum_planner.optimum.program import Solution, both_ways, one_way
from netsum_planner.topologies.model import Pair, Topology, reached


class Collective(StrEnum):
    ALLGATHER = "allgather"
    REDUCE_SCATTER = "reduce_scatter"
    ALLREDUCE = "allreduce"
    BROADCAST = "broadcast"


@dataclass(frozen=True)
class Bound:
    """The best rate: bytes of the whole array a second, in GB/s (NCCL's algorithm bandwidth).

    ``proved`` is the rate that is shown to be possible; it equals ``rate``, the one that is not exceeded, unless the two rational
    certificates of a linear program differ. ``links`` bound it; ``cut`` is the one cut that does, if it is one."""

    rate: Fraction
    proved: Fraction
    links: tuple[Pair, ...]
    cut: Cut | None = None
    trees: int | None = None

    @property
    def exact(self) -> bool:
        return self.rate == self.proved


@dataclass(frozen=True)
class Optimum:
    topology: Topology
    collective: Collective
    root: str | None
    host_only: Bound
    in_network: Bound

    def to_json(self) -> dict[str, Any]:
        """``optimum_GBps``: host-only; ``trees``: trees of equal rate from each root that reach it, if known."""
        return {
            "topology": self.topology.name,
            "collective": str(self.collective),
            **({"root": self.root} if self.root else {}),
            "hosts": len(self.topology.hosts),
            "optimum_GBps": float(self.host_only.rate),
            "optimum": str(self.host_only.rate),
            "in_network_GBps": float(self.in_network.rate),
            "in_network": str(self.in_network.rate),
            "exact": self.host_only.exact and self.in_network.exact,
            "trees": self.host_only.trees,
            "bottleneck": self._bound_json(self.host_only),
            "in_network_bottleneck": self._bound_json(self.in_network),
        }

    def _bound_json(self, bound: Bound) -> dict[str, Any]:
        rates = self.topology.rates
        told: dict[str, Any] = {}
        if bound.cut is not None:
            told["from"] = [host for host in self.topology.hosts if host in bound.cut.side]
            told["to"] = [host for host in self.topology.hosts if host not in bound.cut.side]
        told["links"] = [f"{one} -> {other}" for one, other in bound.links]
        told["GBps"] = float(sum((rates[ends] for ends in bound.links), Fraction(0)))
        return told


def optimum(topology: Topology, collective: Collective, root: str | None = None) -> Optimum:
    """``root``: of a broadcast, the first host by default. Raises :class:`PlanError` if hosts cannot reach each other."""
    topology.require_connected()
    if root is not None and collective is not Collective.BROADCAST:
        raise PlanError(f"only a broadcast has a root, not {collective}")
    if collective is Collective.BROADCAST:
        root = root or topology.hosts[0]
        if root not in topology.hosts:
            raise PlanError(f"{topology.name} has no host {root} (it has: {', '.join(topology.hosts)})")
    forwarding = topology.only_forwarding()
    find = _allreduce if collective is Collective.ALLREDUCE else _one_way
    host_only = find(forwarding, collective, root)
    same = not any(topology.switches.values())
    return Optimum(topology, collective, root, host_only, host_only if same else find(topology, collective, root))


def _one_way(topology: Topology, collective: Collective, root: str | None) -> Bound:
    """All but allreduce; a reduce_scatter is an allgather with all links turned round."""
    backwards = collective is Collective.REDUCE_SCATTER
    seen = topology.reversed() if backwards else topology
    roots = topology.hosts if root is None else (root,)
    share = Fraction(1, len(roots))
    shares = dict.fromkeys(roots, share)
    if unbalanced(topology):
        found = one_way(seen, shares).solve()
        return Bound(found.upper, found.lower, tuple(ends[::-1] if backwards else ends for ends in found.prices))
    rate, cut = worst_cut(seen.rates, shares, topology.hosts)
    trees = int(rate * share / common([*seen.rates.values(), rate * share]))
    told = cut.reversed(frozenset(topology.nodes)) if backwards else cut
    return Bound(rate, rate, told.links, told, trees)


def _allreduce(topology: Topology, _collective: Collective, _root: str | None) -> Bound:
    """A linear program, unless one of the usual answers is proved at once."""
    program = both_ways(topology)
    sums = any(topology.switches.values())
    half = _one_way(topology.only_forwarding(), Collective.ALLGATHER, None)
    symmetric = topology.rates == topology.reversed().rates
    found = _one_tree(topology)
    if found is None and symmetric and not sums:  # a reduce_scatter and an allgather, each with half of every link
        bound = program.upper(program.prices_of_hosts())
        if bound is not None and bound[0] == half.proved / 2:
            found = Solution(half.proved / 2, *bound)
    found = found or program.solve()
    links = tuple(found.prices)
    trees = half.trees if symmetric and not sums and found.upper == half.rate / 2 else None
    return Bound(found.upper, found.lower, links, _cut_by(topology, links), trees)


def _one_tree(topology: Topology) -> Solution | None:
    """If a tree of hosts and of switches that sum reaches all hosts on links with the whole rate of the slowest host, no rate is
    better, since each host must send and get everything."""
    ways = {(host, way): tuple(ends for ends in topology.rates if ends[way] == host) for host in topology.hosts for way in (0, 1)}
    told = {place: sum((topology.rates[ends] for ends in links), Fraction(0)) for place, links in ways.items()}
    slowest = min(told, key=lambda place: told[place])
    rate = told[slowest]
    neighbors: dict[str, list[str]] = {name: [] for name in topology.nodes}
    for one, other in topology.rates:
        wide = topology.rates[one, other] >= rate and topology.rates.get((other, one), 0) >= rate
        if wide and topology.switches.get(other, True):
            neighbors[one].append(other)
    if set(topology.hosts) <= reached(neighbors, topology.hosts[0]).keys():
        return Solution(rate, rate, dict.fromkeys(ways[slowest], Fraction(1)))
    return None


def _cut_by(topology: Topology, links: tuple[Pair, ...]) -> Cut | None:
    """The cut that has just these links, if there is one."""
    neighbors: dict[str, list[str]] = {name: [] for name in topology.nodes}
    for one, other in topology.rates:
        if (one, other) not in links and (other, one) not in links:
            neighbors[one].append(other)
    cut = cut_of(topology.rates, frozenset(reached(neighbors, links[0][0])))
    return cut if set(cut.links) == set(links) else None


def unbalanced(topology: Topology) -> list[str]:
    """Switches that only forward and whose rates in and out differ: there, a cut promises too much."""
    net: dict[str, Fraction] = dict.fromkeys(topology.nodes, Fraction(0))
    for (one, other), rate in topology.rates.items():
        net[one] -= rate
        net[other] += rate
    return [name for name, sums in topology.switches.items() if not sums and net[name]]


def common(rates: Iterable[Fraction]) -> Fraction:
    """The largest rate of which all are whole multiples."""
    return reduce(lambda a, b: Fraction(gcd(a.numerator, b.numerator), lcm(a.denominator, b.denominator)), rates)
