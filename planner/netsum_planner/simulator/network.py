"""A topology as arrays: numbered links, and shortest paths as numbers of links."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from netsum_planner.errors import PlanError
from netsum_planner.topologies.model import Pair, Topology

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
Found = TypeVar("Found")


class Network:
    """``capacity`` in bytes a second and ``delay`` in seconds, by number of link; parallel links are one. ``down`` links are on
    no path.

    Paths are shortest paths. Where several are, the one of a pair of hosts follows from ``seed`` (equal-cost multipath: each
    switch chooses by a hash of source and target). A host on a switch forwards nothing."""

    def __init__(self, topology: Topology, seed: int = 0) -> None:
        self.topology = topology
        self.pairs: list[Pair] = list(topology.rates)
        self.number = {ends: n for n, ends in enumerate(self.pairs)}
        self.capacity: Floats = np.array([float(topology.rates[ends]) * 1e9 for ends in self.pairs])
        delays = {(link.source, link.target): link.delay_us for link in topology.links}
        self.delay: Floats = np.array([delays[ends] / 1e6 for ends in self.pairs])
        self.down: set[int] = set()
        self._seed = seed
        self._into: dict[str, list[tuple[str, int]]] = {name: [] for name in topology.nodes}
        self._out: dict[str, list[tuple[str, int]]] = {name: [] for name in topology.nodes}
        for n, (source, target) in enumerate(self.pairs):
            self._into[target].append((source, n))
            self._out[source].append((target, n))
        self._no_way_through = {
            host for host in topology.hosts if any(other in topology.switches for other in topology.neighbours[host])
        }
        self._distances: dict[tuple[str, ...], dict[str, int]] = {}
        self._paths: dict[Pair, Numbers] = {}
        self._remembered: dict[tuple[str, ...], Any] = {}

    def set_down(self, links: Collection[int], *, down: bool) -> None:
        """From now on, paths avoid these links, or no longer do."""
        self.down = self.down | set(links) if down else self.down - set(links)
        self._distances.clear()
        self._paths.clear()
        self._remembered.clear()

    def remembered(self, hosts: tuple[str, ...], find: Callable[[Network, Sequence[str]], Found]) -> Found:
        """What ``find(network, hosts)`` finds; the same until a link goes down or comes up."""
        if hosts not in self._remembered:
            self._remembered[hosts] = find(self, hosts)
        found: Found = self._remembered[hosts]
        return found

    def distances(self, *targets: str) -> dict[str, int]:
        """How many links each node that forwards is away from the nearest of ``targets``. Breadth first."""
        if targets not in self._distances:
            found, queue = dict.fromkeys(targets, 0), deque(targets)
            while queue:
                node = queue.popleft()
                for other, link in self._into[node]:
                    if other not in found and other not in self._no_way_through and link not in self.down:
                        found[other] = found[node] + 1
                        queue.append(other)
            self._distances[targets] = found
        return self._distances[targets]

    def path(self, source: str, target: str) -> Numbers:
        """The links from one host to another. :class:`PlanError` if there is no path."""
        if (source, target) not in self._paths:
            # Hosts on the same switches share what is known about the way there.
            last = [other for other, link in self._into[target] if link not in self.down]
            distance = self.distances(*(other for other in last if other not in self._no_way_through))
            found: list[int] = []
            node = source
            while node != target:
                node, link = self._hop(node, source, target, distance)
                found.append(link)
            self._paths[source, target] = np.array(found, np.int64)
        return self._paths[source, target]

    def _hop(self, node: str, source: str, target: str, distance: dict[str, int]) -> tuple[str, int]:
        up = [(other, link) for other, link in self._out[node] if link not in self.down]
        hops = [hop for hop in up if hop[0] == target]
        if not hops:
            ways = [hop for hop in up if hop[0] in distance]
            if not ways:
                raise PlanError(f"{self.topology.name}: there is no path from {source} to {target}")
            nearest = min(distance[other] for other, _ in ways)
            hops = [hop for hop in ways if distance[hop[0]] == nearest]
        told = f"{self._seed} {node} {source} {target}".encode()
        return hops[zlib.crc32(told) % len(hops)]

    def links(self, nodes: Sequence[str]) -> Numbers:
        """The numbers of the links of a path that is given by its nodes. :class:`PlanError` if one is missing."""
        missing = [ends for ends in pairwise(nodes) if ends not in self.number]
        if missing:
            raise PlanError(f"{self.topology.name} has no link {' -> '.join(missing[0])}")
        return np.array([self.number[ends] for ends in pairwise(nodes)], np.int64)
