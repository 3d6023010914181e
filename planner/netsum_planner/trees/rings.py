"""Rings, as NCCL packs them: as many as fit, each through all hosts over direct links."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from scipy.optimize import Bounds, LinearConstraint

from netsum_planner.errors import PlanError
from netsum_planner.solver import solve
from netsum_planner.topologies.model import Topology

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
    for other in topology.neighbours[path[-1]]:
        if other not in path:
            yield from _rings(topology, (*path, other))
