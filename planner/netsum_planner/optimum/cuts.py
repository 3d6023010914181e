# SPDX-License-Identifier: MIT
"""The cut that bounds a collective, in rationals.

Every host is the source of some share of the data, all of which every host must get. A set S of nodes that lacks a host must send
the shares of its own hosts out over the links that leave it: no schedule is faster than the slowest such S. ForestColl (arXiv
2402.06787, section 5) shows that trees between hosts reach this bound if each switch has as much rate in as out; switches that
multicast cannot beat it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import networkx as nx
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from netsum_planner.topologies.model import Pair, Rates

# Minimum cuts with exact capacities.


_INT32 = 2**31 - 1
"""scipy's largest capacity; larger numbers take networkx, which has no limit and is slower."""


def min_cut(capacities: Mapping[Pair, Fraction], source: str, sink: str) -> tuple[Fraction, frozenset[str]]:
    """The capacity of a smallest cut, and the nodes on the side of ``source``. Exact: capacities are made integers first."""
    scale = lcm(*(rate.denominator for rate in capacities.values()))
    whole = {ends: int(rate * scale) for ends, rate in capacities.items() if rate}
    if sum(whole.values()) <= _INT32:
        value, side = _scipy_cut(whole, source, sink)
    else:
        graph = nx.DiGraph()
        graph.add_nodes_from((source, sink))
        graph.add_edges_from((*ends, {"capacity": capacity}) for ends, capacity in whole.items())
        value, (side, _) = nx.minimum_cut(graph, source, sink)
    return Fraction(value, scale), frozenset(side)


def _scipy_cut(whole: Mapping[Pair, int], source: str, sink: str) -> tuple[int, Iterable[str]]:
    numbers: dict[str, int] = {source: 0, sink: 1}
    for ends in whole:
        for name in ends:
            numbers.setdefault(name, len(numbers))
    rows = [numbers[one] for one, _ in whole]
    columns = [numbers[other] for _, other in whole]
    size = len(numbers)
    graph = csr_array((np.array(list(whole.values()), np.int32), (rows, columns)), shape=(size, size))
    found = maximum_flow(graph, 0, 1)
    left = graph - found.flow
    left.eliminate_zeros()
    names = list(numbers)
    return int(found.flow_value), [names[n] for n in breadth_first_order(left, 0, return_predecessors=False)]


_ORIGIN = "\0origin"
"""A node that no topology has: it gives each host its share."""


@dataclass(frozen=True)
class Cut:
    """``side``: the nodes that the data must leave; ``links``: those that leave it, with ``rate`` GB/s together."""

    side: frozenset[str]
    links: tuple[Pair, ...]
    rate: Fraction

    def reversed(self, nodes: frozenset[str]) -> Cut:
        """The same cut of the network with all links turned round."""
        return Cut(nodes - self.side, tuple((other, one) for one, other in self.links), self.rate)


def cut_of(rates: Rates, side: frozenset[str]) -> Cut:
    links = tuple((one, other) for one, other in rates if one in side and other not in side)
    return Cut(side, links, sum((rates[ends] for ends in links), Fraction(0)))


def worst_cut(rates: Rates, shares: Mapping[str, Fraction], sinks: tuple[str, ...]) -> tuple[Fraction, Cut]:
    """The largest x such that every sink can get ``x * shares[host]`` GB/s from each host, and the cut that bounds it. Nodes
    with a share need not be sinks.

    Newton's iteration over cuts: x starts at a cut's bound, and a smaller cut that a max-flow finds makes it smaller, until none
    does. A sink that is content with x is so with less, hence one max-flow a sink, and a few more. Cost: O(sinks) max-flows."""
    nodes = frozenset({*shares, *sinks, *(name for ends in rates for name in ends)})
    whole = sum(shares.values(), Fraction(0))
    x, worst = None, None
    for sink in sinks:
        if rest := whole - shares.get(sink, 0):
            cut = cut_of(rates, nodes - {sink})
            if x is None or cut.rate / rest < x:
                x, worst = cut.rate / rest, cut
    assert x is not None
    assert worst is not None
    for sink in sinks:
        while x:
            fed = {(_ORIGIN, host): x * share for host, share in shares.items()}
            value, side = min_cut({**rates, **fed}, _ORIGIN, sink)
            if value >= x * whole:
                break
            worst = cut_of(rates, side - {_ORIGIN})
            x = worst.rate / sum((share for host, share in shares.items() if host in side), Fraction(0))
    return x, worst
