"""The hash and checksum algorithms that v1model programs name.

CRC parameters are those of BMv2's defaults: crc16 is CRC-16/ARC, crc32 that of Ethernet, crcCCITT is CRC-16/CCITT-FALSE.
"""

from __future__ import annotations

import binascii


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


# Bits of their results. The custom variants start with the standard parameters, which P4Runtime cannot change.
WIDTHS: dict[str, int] = {
    "csum16": 16, "cksum16": 16, "crc16": 16, "crc16_custom": 16, "crc32": 32, "crc32_custom": 32, "crcCCITT": 16, "xor16": 16,
    "identity": 64,
}  # fmt: skip
