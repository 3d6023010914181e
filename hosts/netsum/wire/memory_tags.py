"""Tags: a reply to many instructions at once, by multicast, has one for each of them as a segment.

Everybody on the network sees such a packet, and may send others like it. So a tag is a hash of everything in the packet and of
the instruction that it answers, keyed with the region's key, which no reply contains: who takes a reply for its tag knows that
the device has made it, for this instruction and no other, and whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from netsum.wire.memory_codec import MemoryHeader, pack_memory

_PERSON: Final = b"netsum shared"
_NAME: Final = struct.Struct(">QI")


class Tags:
    """Of one packet: its header, and the payload as it is sent."""

    def __init__(self, key: int, header: MemoryHeader, payload: bytes | memoryview) -> None:
        """``key``: with which its receivers may change the region. How many segments the header has does not matter."""
        self._keyed = blake2b(key=key.to_bytes(8), digest_size=8, person=_PERSON)
        self._keyed.update(pack_memory(header._replace(segments=0)))
        self._keyed.update(payload)

    def of(self, client: int, sequence: int) -> int:
        """The tag for one instruction."""
        tag = self._keyed.copy()
        tag.update(_NAME.pack(client, sequence))
        return int.from_bytes(tag.digest())


def tagged(key: int, header: MemoryHeader, payload: bytes, instructions: Iterable[tuple[int, int]]) -> bytes:
    """The packet that answers these instructions, by client and sequence: as many as it can have segments, at most."""
    tags = Tags(key, header, payload)
    return pack_memory(header, [tags.of(*each) for each in instructions]) + payload
