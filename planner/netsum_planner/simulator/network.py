# SPDX-License-Identifier: MIT
"""A topology as arrays: numbered links, and paths as numbers of links."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
from netsum.core.endpoint import GROUP
from netsum.descriptor import IP_UDP_BYTES
from netsum.peers.wire import FRAME, HEAD, MESSAGE, RECORD
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, MAX_CHUNKS
from numpy.typing import NDArray

from netsum_planner.errors import PlanError
from netsum_planner.topologies.model import Pair, Routing, Topology

# What netsum's blocks and messages take on a wire.


ETHERNET: Final = 14
TCP_IP: Final = 52
"""Bytes of IPv4 and TCP with timestamps."""


@dataclass(frozen=True)
class Wire:
    """``block_bytes`` of gradients a packet, a ``window`` of blocks, the ``mtu`` between hosts. ``host_s``: seconds until
    a host has dealt with a packet or a message, while others are on their way."""

    block_bytes: int = CHUNK_BYTES * MAX_CHUNKS
    window: int = 4 * GROUP
    mtu: int = 9000
    host_s: float = 0.0

    @property
    def packet(self) -> int:
        """Bytes of a block's packet on the wire."""
        return ETHERNET + IP_UDP_BYTES + HEADER_BYTES + self.block_bytes

    @property
    def opening(self) -> int:
        """Bytes of the packet that opens a call."""
        return ETHERNET + IP_UDP_BYTES + HEADER_BYTES + CHUNK_BYTES

    def blocks(self, nbytes: float) -> float:
        """Packets that carry ``nbytes`` bytes."""
        return nbytes / self.block_bytes

    def message(self, nbytes: float) -> float:
        """Bytes on the wire of a message between hosts that carries ``nbytes`` bytes of blocks."""
        inside = FRAME.size + HEAD.size + MESSAGE.size + nbytes * (1 + RECORD.itemsize / self.block_bytes)
        return inside * (ETHERNET + self.mtu) / (self.mtu - TCP_IP)


Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
Found = TypeVar("Found")


class SimulatedNetwork:
    """``capacity`` in bytes a second and ``delay`` in seconds, by number of link; parallel links are one. ``down`` links are on
    no path."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.pairs: list[Pair] = list(topology.rates)
        self.number = {ends: n for n, ends in enumerate(self.pairs)}
        self.capacity: Floats = np.array([float(topology.rates[ends]) * 1e9 for ends in self.pairs])
        delays = {(link.source, link.target): link.delay_us for link in topology.links}
        self.delay: Floats = np.array([delays[ends] / 1e6 for ends in self.pairs])
        self.down: set[int] = set()
        self._routing = Routing(topology)
        self.distances = self._routing.distances
        self._paths: dict[Pair, Numbers] = {}
        self._remembered: dict[tuple[str, ...], Any] = {}

    def set_down(self, links: Collection[int], *, down: bool) -> None:
        """From now on, paths avoid these links, or no longer do."""
        self.down = self.down | set(links) if down else self.down - set(links)
        self._routing.set_down([self.pairs[link] for link in self.down])
        self._paths.clear()
        self._remembered.clear()

    def remembered(self, hosts: tuple[str, ...], find: Callable[[SimulatedNetwork, Sequence[str]], Found]) -> Found:
        """The value of ``find(network, hosts)``; the same until a link goes down or comes up."""
        if hosts not in self._remembered:
            self._remembered[hosts] = find(self, hosts)
        found: Found = self._remembered[hosts]
        return found

    def path(self, source: str, target: str) -> Numbers:
        """The links from one host to another. :class:`PlanError` if there is no path."""
        if (source, target) not in self._paths:
            self._paths[source, target] = self.links(self._routing.path(source, target))
        return self._paths[source, target]

    def links(self, nodes: Sequence[str]) -> Numbers:
        """The numbers of the links of a path that is given by its nodes. :class:`PlanError` if one is missing."""
        missing = [ends for ends in pairwise(nodes) if ends not in self.number]
        if missing:
            raise PlanError(f"{self.topology.name} has no link {' -> '.join(missing[0])}")
        return np.array([self.number[ends] for ends in pairwise(nodes)], np.int64)
