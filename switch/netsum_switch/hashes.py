"""The hash and checksum algorithms that v1model programs name.

Each takes the bytes of the calculation's input and returns an unsigned integer. CRC parameters are those of BMv2's
defaults: crc16 is CRC-16/ARC, crc32 that of Ethernet, crcCCITT is CRC-16/CCITT-FALSE.
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Callable

HashFunction = Callable[[bytes], int]


def csum16(data: bytes) -> int:
    """The Internet checksum (RFC 1071): the complement of the one's complement sum of 16-bit words.

    2**16 is 1 modulo 2**16 - 1, so the sum of all words is the whole input, as one number, modulo 2**16 - 1. Of the two
    representations of zero, words that are not all zero give 0xffff.
    """
    words = int.from_bytes(data, "big") << 8 * (len(data) & 1)
    return -words % 0xFFFF if words else 0xFFFF


def _reflected_table(polynomial: int) -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return tuple(table)


CRC16_TABLE = _reflected_table(0xA001)
CRC32_TABLE = _reflected_table(0xEDB88320)
CRC_CCITT_TABLE = tuple(binascii.crc_hqx(bytes([value]), 0) for value in range(256))


def crc16(data: bytes) -> int:
    """CRC-16/ARC: polynomial 0x8005, reflected, initially 0."""
    crc = 0
    for byte in data:
        crc = crc >> 8 ^ CRC16_TABLE[(crc ^ byte) & 0xFF]
    return crc


def crc32(data: bytes) -> int:
    """The CRC of Ethernet."""
    return zlib.crc32(data)


def crc_ccitt(data: bytes) -> int:
    """CRC-16/CCITT-FALSE: polynomial 0x1021, initially 0xffff."""
    return binascii.crc_hqx(data, 0xFFFF)


def xor16(data: bytes) -> int:
    """Exclusive or of the 16-bit words, the last padded with zeros."""
    result = 0
    padded = data + bytes(len(data) & 1)
    for at in range(0, len(padded), 2):
        result ^= padded[at] << 8 | padded[at + 1]
    return result


def identity(data: bytes) -> int:
    """The first eight bytes."""
    return int.from_bytes(data[:8], "big")


HASHES: dict[str, HashFunction] = {
    "csum16": csum16,
    "cksum16": csum16,
    "crc16": crc16,
    "crc16_custom": crc16,  # the custom variants start with the standard parameters, which P4Runtime cannot change
    "crc32": crc32,
    "crc32_custom": crc32,
    "crcCCITT": crc_ccitt,
    "xor16": xor16,
    "identity": identity,
}

# Bits of their results.
WIDTHS: dict[str, int] = {name: 64 if name == "identity" else 32 if "32" in name else 16 for name in HASHES}
