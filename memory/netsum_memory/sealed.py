# SPDX-License-Identifier: MIT
"""Frames with checksums, of which a device's files are made.

A frame is a head and a body. The head has the body's length and CRC-32, and a CRC-32 of itself and all heads before it, which
begins with the file's name and incarnation. So no length is believed before it is checked, and no frame is taken for one that
was at another place or in another file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from netsum_memory.errors import DeviceError

_BODY: Final = struct.Struct("<II")
_SEAL: Final = struct.Struct("<I")
HEAD_BYTES: Final = _BODY.size + _SEAL.size


class Head(NamedTuple):
    size: int
    crc: int

    def fits(self, body: bytes) -> bool:
        return len(body) == self.size and zlib.crc32(body) == self.crc


class Seal:
    """Makes a file's heads, or checks them, in order.

    Attributes:
        value: of everything so far.
    """

    def __init__(self, incarnation: str, name: str) -> None:
        self.value = zlib.crc32(f"{incarnation} {name}".encode())

    def head(self, parts: Sequence[bytes]) -> bytes:
        """The head of the next frame, whose body these parts are."""
        size = crc = 0
        for part in parts:
            size += len(part)
            crc = zlib.crc32(part, crc)
        start = _BODY.pack(size, crc)
        self.value = zlib.crc32(start, self.value)
        return start + _SEAL.pack(self.value)

    def opened(self, head: bytes) -> Head | None:
        """The next frame's head, or None if it is not that."""
        if len(head) < HEAD_BYTES:
            return None
        (seal,) = _SEAL.unpack_from(head, _BODY.size)
        if zlib.crc32(head[: _BODY.size], self.value) != seal:
            return None
        self.value = seal
        return Head(*_BODY.unpack_from(head))


def damaged(path: Path, what: str) -> DeviceError:
    """The error for a file of a folder that is not as the device left it."""
    return DeviceError(
        f"{path} {what}: give this device another folder; what it held comes from the region's other devices, or is lost"
    )
