"""A chain's packet on its way from memory to memory: SUM_FORWARD brings the sum of those visited so far, STORE the result.

Its segments are the addresses that it visits next. Whoever it visits adds its own lanes to the payload and sends it to the first
of them; what lies in memory changes at the last address alone. No socket.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsum.wire.memory import MAX_PAYLOAD, MEMORY_VERSION, Flag, LaneType
from netsum.wire.memory_codec import MemoryHeader, parse_memory, split_memory
from netsum.wire.zeros import with_zeros, without_zeros

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
