# SPDX-License-Identifier: MIT
"""The hops of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsum.peers.rings import Ring
from netsum.wire.codec import with_zeros, without_zeros
from netsum.wire.memory import MAX_PAYLOAD, MEMORY_VERSION, Flag, LaneType, MemoryHeader, parse_memory, split_memory
from netsum.wire.schema import EVERYONE, Op

# A chain's packet on its way from memory to memory: SUM_FORWARD brings the sum of those visited so far, STORE the
# result.
#
# Its segments are the addresses that it visits next. Each member that it visits adds its own lanes to the payload and sends it
# to the first of them; what lies in memory changes at the last address alone. No socket.


Lanes = NDArray[np.uint8]
"""Bytes of a payload as memory has them: lanes are little-endian."""


class ChainHop(NamedTuple):
    """A packet that has come. ``payload`` has its zeros again."""

    header: MemoryHeader
    segments: tuple[int, ...]
    payload: Lanes


def parse_hop(data: memoryview) -> ChainHop:
    """Raises ValueError, which says what is wrong with the packet."""
    header = parse_memory(data)
    if header.version != MEMORY_VERSION:
        raise ValueError(f"version {header.version}")
    segments, rest = split_memory(header, data)
    if header.length > MAX_PAYLOAD or header.lane > max(LaneType) or header.length % LaneType(header.lane).bytes:
        raise ValueError(f"{header.length} bytes in lanes of type {header.lane}")
    if header.flags & Flag.COMPRESSED:
        return ChainHop(header, segments, with_zeros(rest, header.length))
    if len(rest) != header.length:
        raise ValueError(f"a payload of {len(rest)} bytes, not {header.length}")
    return ChainHop(header, segments, np.frombuffer(rest, np.uint8))


def shortened(header: MemoryHeader, payload: Lanes) -> tuple[MemoryHeader, bytes]:
    """The header with the payload's length, and the payload, without its zeros if more than half of its words are."""
    header = header._replace(length=len(payload))
    short = without_zeros(payload.data)
    if short is None:
        return header, payload.tobytes()
    return header._replace(flags=header.flags | Flag.COMPRESSED), short


def added(payload: Lanes, ours: Lanes, lane: LaneType) -> Lanes:
    """The payload with our own lanes added. Integers wrap; floats are rounded as their type is. Nothing is added where there
    is nothing."""
    if len(payload) < len(ours):
        payload, ours = ours, payload
    if not len(ours):
        return payload
    total = payload.copy()
    lanes = total[: len(ours)].view(lane.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        np.add(lanes, ours.view(lane.dtype), out=lanes)
    return total


# The way of a block that goes by chain.


@dataclass(frozen=True, slots=True)
class ChainRoute:
    """The ranks that a block's packets visit, in order: the first of ``sums`` sends its contribution, the last has the sum. The
    first of ``stores`` has the result, the others get it."""

    sums: Ring
    stores: Ring

    @classmethod
    def of(cls, number: int, op: int, dest: int, source: int, rings: Sequence[Ring]) -> ChainRoute:
        """The way of the packet with this number. ``dest`` gets the result, and ``source`` has a COPY's payload; both are
        ranks of the rings, or EVERYONE."""
        ring = rings[number % len(rings)]
        owner = dest if op == Op.SUM else source
        at = number // len(rings) % len(ring) if owner == EVERYONE else ring.index(owner)
        return _way(ring, at, op == Op.SUM, dest == EVERYONE)


@lru_cache(maxsize=4096)
def _way(ring: Ring, owner: int, sums: bool, for_all: bool) -> ChainRoute:
    from_owner = ring[owner:] + ring[:owner]
    return ChainRoute((*from_owner[1:], from_owner[0]) if sums else (), from_owner if for_all else from_owner[:1])
