# SPDX-License-Identifier: MIT
"""Every different set of hosts that a scheduler may hand out, planned for: trees against the optimum and against rings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
from scipy.optimize import Bounds, LinearConstraint

from netsum_planner.errors import PlanError
from netsum_planner.optimum.optimum import common
from netsum_planner.optimum.program import solve
from netsum_planner.topologies.model import Topology
from netsum_planner.trees.packing import Packing, pack

# Rings, as NCCL packs them: as many as fit, each through all hosts over direct links.


MOST_HOSTS = 10
"""Above that there are too many rings to look at."""


def ring_rate(topology: Topology, unit: Fraction) -> Fraction:
    """GB/s of the most one-way rings of ``unit`` that fit into a network whose links join hosts directly; 0 if there is none.
    Cost: looks at every ring, so at most :data:`MOST_HOSTS` hosts."""
    if topology.switches or len(topology.hosts) > MOST_HOSTS:
        raise PlanError(f"{topology.name}: rings are packed over direct links of at most {MOST_HOSTS} hosts")
    rings = list(_rings(topology, (topology.hosts[0],)))
    if not rings:
        return Fraction(0)
    place = {ends: n for n, ends in enumerate(topology.rates)}
    taken = np.zeros((len(place), len(rings)))
    for column, ring in enumerate(rings):
        for ends in zip(ring, (*ring[1:], ring[0]), strict=True):
            taken[place[ends], column] = 1
    room = np.array([int(rate / unit) for rate in topology.rates.values()])
    found = solve(
        -np.ones(len(rings)),
        constraints=LinearConstraint(taken, -np.inf, room),
        integrality=np.ones(len(rings)),
        bounds=Bounds(0, np.inf),
    )
    return sum((round(count) * unit for count in found.x), Fraction(0))


def _rings(topology: Topology, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if len(path) == len(topology.hosts):
        if (path[-1], path[0]) in topology.rates:
            yield path
        return
    for other in topology.neighbors[path[-1]]:
        if other not in path:
            yield from _rings(topology, (*path, other))


@dataclass(frozen=True)
class Allocation:
    """``seconds``: of packing the trees; ``rings``: GB/s of the rings that fit."""

    packing: Packing
    seconds: float
    rings: Fraction

    def to_json(self) -> dict[str, Any]:
        packing = self.packing
        return {
            "hosts": list(packing.topology.hosts),
            "optimum_GBps": float(packing.optimum),
            "GBps": float(packing.rate),
            "of_optimum": float(packing.rate / packing.optimum),
            "trees": len(packing.trees),
            "candidates": packing.candidates,
            "seconds": round(self.seconds, 3),
            "rings_GBps": float(self.rings),
            "over_rings": float(packing.rate / self.rings) if self.rings else None,
        }


def different(topology: Topology, sizes: range) -> Iterator[Topology]:
    """A subset of each kind whose hosts all reach each other; two are of a kind if renaming the hosts makes one of the other."""
    for size in sizes:
        seen: dict[Any, list[Any]] = {}
        for hosts in combinations(topology.hosts, size):
            part = topology.subset(hosts)
            try:
                part.require_connected()
            except PlanError:
                continue
            graph = part.graph()
            for data in (data for *_, data in graph.edges(data=True)):
                data["label"] = str(data["rate"])
            degrees = sorted(tuple(sorted(data["label"] for *_, data in graph.out_edges(node, data=True))) for node in graph)
            alike = seen.setdefault(tuple(degrees), [])
            same = nx.algorithms.isomorphism.categorical_edge_match("label", "")
            kind = nx.algorithms.isomorphism.categorical_node_match("kind", "")
            if not any(nx.is_isomorphic(graph, other, node_match=kind, edge_match=same) for other in alike):
                alike.append(graph)
                yield part


def plan_for(part: Topology) -> Allocation:
    started = time.perf_counter()
    packing = pack(part, part.hosts[0])
    seconds = time.perf_counter() - started
    return Allocation(packing, seconds, ring_rate(part, common(part.rates.values())))
