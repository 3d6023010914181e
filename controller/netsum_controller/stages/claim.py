"""Stage ``claim``: epoch numbers, of which the switch remembers up to which they were taken."""

from __future__ import annotations

from collections.abc import Mapping

from netsum.wire.schema import PacketOutKind


def claim_fields(number: int, cookie: int) -> dict[str, int]:
    """Metadata of the PacketOut that takes all numbers up to ``number`` (32 bits); ``cookie`` comes back with the PacketIn."""
    return {"kind": PacketOutKind.CLAIM, "slot": number >> 16, "cookie": cookie, "closed": number & 0xFFFF}


def claimed_before(answer: Mapping[str, int]) -> int:
    """Up to which they had been taken, from the PacketIn's metadata."""
    return answer["slot"] << 16 | answer["closed"]
