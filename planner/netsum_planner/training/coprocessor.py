# SPDX-License-Identifier: MIT
"""When an aggregator beside an ordinary Ethernet switch pays: an allreduce by it, by a ring of the hosts, and by both at once.

The aggregator is a server with a cable of its own, the co-processor of "Using Trio" (SIGCOMM 2022). All hosts reach it over that
cable, so it carries n times what a host's does, and its processes add every contribution. Links carry both directions at full
rate; a ring is taken to fill them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Final

BLOCK: Final = 4096
"""Bytes of gradients in a packet."""
FRAME: Final = 4202
"""Bytes that such a packet takes on a cable: with netsum's, UDP's, IP's and Ethernet's headers, checksum, preamble and gap."""
_SIZES: Final = tuple(1 << power for power in range(BLOCK.bit_length() - 1, 33))
"""Of calls that :func:`advice` looks at, bytes."""
RING_EFFICIENCY: Final = 0.949
"""Share of TCP's payload in what a cable carries, at the usual MTU of 1500."""


@dataclass(frozen=True)
class Cluster:
    """Servers on one Ethernet switch, and an aggregator.

    Attributes:
        hosts: servers, each of which contributes once: its `ranks` sum in its memory first.
        host_rate, aggregator_rate: of a host's cable and of the aggregator's, bytes a second in each direction.
        multicast: a result leaves the aggregator once, and the Ethernet switch copies it.
        stripes: switch processes of the aggregator, each on a core, which share the blocks.
        switch_us: of a core, for a contribution (`netsum bench switch`); host_us: for a block (`netsum bench host`).
        hop_us: from one server to another through the Ethernet switch, for a packet.
    """

    hosts: int
    host_rate: float
    aggregator_rate: float
    ranks: int = 1
    multicast: bool = False
    stripes: int = 1
    switch_us: float = 2.6
    host_us: float = 6.7
    hop_us: float = 30.0


@dataclass(frozen=True)
class Estimate:
    """Seconds of an allreduce, and what bounds it. ``share``: of the bytes that the aggregator sums."""

    way: str
    seconds: float
    bound: str
    share: float


def by_aggregator(cluster: Cluster, size: int, share: float = 1.0) -> Estimate:
    """An allreduce of ``size`` bytes, of which the aggregator sums a ``share``. One round trip."""
    seconds, bound = max((each(cluster, size * share), name) for name, each in _AGGREGATOR.items())
    return Estimate("aggregator", seconds + 2 * cluster.hop_us * 1e-6, bound, share)


def by_ring(cluster: Cluster, size: int) -> Estimate:
    """An allreduce of ``size`` bytes around a ring of all ranks in which those of a host are neighbors: 2 (n - 1) messages one
    after the other, of which a host's cable carries its share (Patarasuk and Yuan, 2009)."""
    wire, latency = _ring_cable(cluster, size), _ring_latency(cluster)
    return Estimate("ring", wire + latency, "the hosts' cables" if wire > latency else "the latency of its steps", 0.0)


def by_both(cluster: Cluster, size: int) -> Estimate:
    """Blocks shared by the aggregator and a ring, at the same time, in the proportion that makes both end together: the hosts'
    cables carry what both take."""
    low, high = 0.0, 1.0
    for _ in range(60):  # the longer the aggregator takes, the smaller its share
        middle = (low + high) / 2
        if _beside_ring(cluster, size, middle) < _cables(cluster, size, middle):
            low = middle
        else:
            high = middle
    share = high if _together(cluster, size, high) <= _together(cluster, size, low) else low
    latency = max(2 * cluster.hop_us * 1e-6, _ring_latency(cluster))
    return Estimate("both", _together(cluster, size, share) + latency, "the hosts' cables and the aggregator", share)


def estimates(cluster: Cluster, size: int) -> list[Estimate]:
    """All three, the fastest first; one that is as fast as another comes first if it is simpler."""
    return sorted([by_aggregator(cluster, size), by_ring(cluster, size), by_both(cluster, size)], key=lambda each: each.seconds)


def advice(cluster: Cluster) -> tuple[tuple[int, float], ...]:
    """The share of a call that the aggregator should sum, where it changes: pairs of bytes, a power of two, and the share
    from there on (:class:`netsum.descriptor.Descriptor`). Empty: it should sum all."""
    found, share = [], 1.0
    for size in _SIZES:
        best = round(estimates(cluster, size)[0].share, 2)
        if best != share:
            found.append((size, best))
            share = best
    return tuple(found)


def pays_from(cluster: Cluster, size: int) -> float | None:
    """The rate of the aggregator's cable, bytes a second, from which it alone is faster than a ring; None if no rate is enough,
    since the hosts or the aggregator's cores bound it."""

    def faster(rate: float) -> bool:
        return by_aggregator(replace(cluster, aggregator_rate=rate), size).seconds < by_ring(cluster, size).seconds

    if not faster(inf):
        return None
    low, high = 1.0, 1.0
    while not faster(high):
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if faster(middle) else (middle, high)
    return high


def stripes_for(cluster: Cluster) -> int:
    """Switch processes with which the aggregator's cores are no bound."""
    return max(1, ceil(cluster.aggregator_rate / FRAME * cluster.switch_us * 1e-6))


def _ring_cable(cluster: Cluster, size: float) -> float:
    ranks = cluster.hosts * cluster.ranks
    return 2 * (ranks - 1) / ranks * size / (cluster.host_rate * RING_EFFICIENCY)


def _ring_latency(cluster: Cluster) -> float:
    """Of its steps, in each of which a message goes from a host to the next."""
    return 2 * (cluster.hosts * cluster.ranks - 1) * cluster.hop_us * 1e-6


def _host_cable(cluster: Cluster, size: float) -> float:
    return size / BLOCK * FRAME / cluster.host_rate


def _aggregator_in(cluster: Cluster, size: float) -> float:
    return cluster.hosts * size / BLOCK * FRAME / cluster.aggregator_rate


def _aggregator_out(cluster: Cluster, size: float) -> float:
    return (1 if cluster.multicast else cluster.hosts) * size / BLOCK * FRAME / cluster.aggregator_rate


def _aggregator_cores(cluster: Cluster, size: float) -> float:
    return cluster.hosts * size / BLOCK * cluster.switch_us * 1e-6 / cluster.stripes


def _host_core(cluster: Cluster, size: float) -> float:
    return size / BLOCK * cluster.host_us * 1e-6


_AGGREGATOR: Final[dict[str, Callable[[Cluster, float], float]]] = {
    "the hosts' cables": _host_cable,
    "the aggregator's cable, inwards": _aggregator_in,
    "the aggregator's cable, outwards": _aggregator_out,
    "the aggregator's cores": _aggregator_cores,
    "a host's core": _host_core,
}


def _beside_ring(cluster: Cluster, size: int, share: float) -> float:
    """Seconds of what the aggregator's share takes of everything but the hosts' cables."""
    return max(each(cluster, size * share) for each in _AGGREGATOR.values() if each is not _host_cable)


def _cables(cluster: Cluster, size: int, share: float) -> float:
    """Seconds that a host's cable is busy with both."""
    return _host_cable(cluster, size * share) + _ring_cable(cluster, size * (1 - share))


def _together(cluster: Cluster, size: int, share: float) -> float:
    return max(_beside_ring(cluster, size, share), _cables(cluster, size, share))
