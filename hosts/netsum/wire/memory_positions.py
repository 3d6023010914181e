"""Positions in a shard's log as packets carry them: 48 bits, and 16 bits of a checksum over the position, the shard and a key.

A reply says how far the shard is, and a client shows the last of these in its requests. A device that is behind it has lost
memory: so a damaged number, or one of another shard, must not be taken for a position.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

CHECK_BITS: Final = 16
_SHARD: Final = struct.Struct(">QIH")
_POSITION: Final = struct.Struct(">Q")
_CHECK: Final = (1 << CHECK_BITS) - 1


def position_seed(device_key: int, region: int, shard: int) -> int:
    """What a shard's checksums begin with."""
    return zlib.crc32(_SHARD.pack(device_key, region, shard))


def pack_position(position: int, seed: int) -> int:
    return position << CHECK_BITS | zlib.crc32(_POSITION.pack(position), seed) & _CHECK


def parse_position(packed: int, seed: int) -> int | None:
    """The position, or None if the checksum is wrong."""
    position = packed >> CHECK_BITS
    return position if pack_position(position, seed) == packed else None
