"""P4Runtime's bytestrings: unsigned big-endian integers, canonical without leading zero bytes."""

from __future__ import annotations

from netsum_switch.p4runtime.status import invalid


def decode(data: bytes, width: int) -> int:
    """Value of a bytestring of any length for a field of `width` bits. An empty one is 0, as in the reference. Raises
    RpcError (INVALID_ARGUMENT) if the value needs more bits."""
    value = int.from_bytes(data, "big")
    if value >> width:
        raise invalid(f"Bytestring provided does not fit within {width} bits")
    return value


def encode(value: int) -> bytes:
    """Canonical bytestring of `value`: as short as possible, at least one byte."""
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")
