"""Stage ``claim``: epoch numbers; the switch remembers the highest that was taken."""

from __future__ import annotations

from collections.abc import Mapping

from netsum.wire.schema import PacketOutKind


def claim_fields(number: int, cookie: int) -> dict[str, int]:
    """Metadata of the PacketOut that takes all numbers up to ``number`` (32 bits); the PacketIn returns ``cookie``."""
    return {"kind": PacketOutKind.CLAIM, "slot": number >> 16, "cookie": cookie, "closed": number & 0xFFFF}


def claimed_before(answer: Mapping[str, int]) -> int:
    """The highest number taken before, from the PacketIn's metadata."""
    return answer["slot"] << 16 | answer["closed"]
