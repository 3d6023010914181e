"""Minimum cuts with exact capacities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import lcm

import networkx as nx
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from netsum_planner.topologies.model import Pair

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
