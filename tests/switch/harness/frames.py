# SPDX-License-Identifier: MIT
"""Frames of the contract tests: 64 bytes, told apart by their destination and type."""

from __future__ import annotations

SOURCE = 0x02_00_00_00_AA_00


def frame(dst: int, ether_type: int = 0x9000, src: int = SOURCE, size: int = 64) -> bytes:
    """An Ethernet frame with a recognizable payload."""
    header = dst.to_bytes(6, "big") + src.to_bytes(6, "big") + ether_type.to_bytes(2, "big")
    return header + bytes(at & 0xFF for at in range(size - len(header)))


def ether_type_of(data: bytes | None) -> int:
    assert data is not None, "no frame came"
    return int.from_bytes(data[12:14], "big")


def source_of(data: bytes | None) -> int:
    assert data is not None, "no frame came"
    return int.from_bytes(data[6:12], "big")
