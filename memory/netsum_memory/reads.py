# SPDX-License-Identifier: MIT
"""A fast path for ordinary READs: valid ones of plain memory that passed a switch. Everything else takes the general path, to
the same answer."""

from __future__ import annotations

from typing import Final

from netsum.wire.memory import (
    MEMORY_DTYPE,
    MEMORY_HEADER_BYTES,
    VERSION_BYTE,
    Flag,
    Instruction,
    parse_memory,
)

from netsum_memory.execute import OK, check
from netsum_memory.region_types import ArrayRegionType
from netsum_memory.shard_table import ShardTable

_FIRST: Final = frozenset(bytes((VERSION_BYTE, Instruction.READ, flags)) for flags in (0, Flag.REPEAT))


_ANSWERED: Final = bytes((VERSION_BYTE, Instruction.READ, Flag.REPLY))


_KEY_BYTES: Final = 8


_KEY: Final[int] = MEMORY_DTYPE.fields["key"][1]  # type: ignore[index]  # it has fields


class Reads:
    def __init__(self, holdings: ShardTable) -> None:
        self._holdings = holdings

    def answer(self, data: bytes | memoryview) -> bytes | None:
        """The reply to an ordinary READ; None for anything else. It differs from the request in flags and key alone, since the
        switch has written region, shard and epoch."""
        if len(data) != MEMORY_HEADER_BYTES or bytes(data[:3]) not in _FIRST:
            return None
        header = parse_memory(data)
        holding = self._holdings.get(header.region, header.shard)
        if holding is None or not holding.assigned:
            return None
        shard = holding.shard
        if (
            header.epoch != shard.epoch
            or header.status
            or header.segments
            or header.replica
            or shard.lost
            or shard.behind
            or (header.argument and shard.shown(header.argument) > shard.position)
            or type(shard.kind) is not ArrayRegionType
            or not holding.ordering.readable
            or shard.region.shard_of(header.address) != header.shard
            or check(shard.region, header) != OK
        ):
            return None
        held = shard.store.read(header.address, header.length)
        position = shard.packed_position.to_bytes(_KEY_BYTES)
        return b"".join((_ANSWERED, data[3:_KEY], position, data[_KEY + _KEY_BYTES :], held))
