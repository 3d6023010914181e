"""Packs and parses packets of memory in the network: one by one as tuples, or many at once as rows of an array."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from netsum.wire.memory import (
    MAX_SEGMENTS,
    MEMORY_FIELDS,
    MEMORY_HEADER_BYTES,
    MEMORY_VERSION,
    SEGMENT_BYTES,
)
from netsum.wire.packing import packing
from netsum.wire.schema import byte_groups


class MemoryHeader(NamedTuple):
    """The header as a tuple of ints. ``reserved`` is not in it: it is sent as 0 and not looked at."""

    instruction: int
    address: int = 0
    length: int = 0
    key: int = 0
    client: int = 0
    sequence: int = 0
    flags: int = 0
    status: int = 0
    lane: int = 0
    segments: int = 0
    argument: int = 0
    shard: int = 0
    replica: int = 0
    epoch: int = 0
    region: int = 0
    version: int = MEMORY_VERSION


_pack, parse_memory = packing(MEMORY_FIELDS, MemoryHeader, "memory header")
"""``parse_memory(data)`` is the header at the start of ``data``; fewer than 56 bytes raise :class:`ValueError`."""

MEMORY_DTYPE: Final = np.dtype(
    {
        "names": [members[0][0].name for _, _, members in byte_groups(MEMORY_FIELDS)],
        "formats": [f">u{size}" for _, size, _ in byte_groups(MEMORY_FIELDS)],
        "offsets": [offset for offset, _, _ in byte_groups(MEMORY_FIELDS)],
        "itemsize": MEMORY_HEADER_BYTES,
    }
)
"""A header as numpy sees it, for many at once: ``rows[:, :MEMORY_HEADER_BYTES].view(MEMORY_DTYPE)``. ``version`` is the whole
first byte here: VERSION_BYTE in every packet of ours."""


OFFSETS: Final = {members[0][0].name: offset for offset, _, members in byte_groups(MEMORY_FIELDS)}
"""The byte of the header at which a field begins, for fields of whole bytes."""
VERSION_BYTE: Final = MEMORY_VERSION << 4


def pack_memory(header: MemoryHeader, segments: Sequence[int] = ()) -> bytes:
    """Header and segments; ``segments`` of the header is counted here."""
    if not segments:
        return _pack(header)
    return _pack(header._replace(segments=len(segments))) + struct.pack(f">{len(segments)}Q", *segments)


def split_memory(header: MemoryHeader, data: memoryview) -> tuple[tuple[int, ...], memoryview]:
    """The packet's segments and its payload. Raises :class:`ValueError` if there are too many segments, or bytes for fewer."""
    end = MEMORY_HEADER_BYTES + SEGMENT_BYTES * header.segments
    if header.segments > MAX_SEGMENTS or len(data) < end:
        raise ValueError(f"a packet of {len(data)} bytes cannot hold {header.segments} segments")
    return struct.unpack(f">{header.segments}Q", data[MEMORY_HEADER_BYTES:end]), data[end:]
