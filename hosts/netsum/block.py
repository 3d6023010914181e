"""One rank's contribution to one block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from netsum.wire.codec import Header
from netsum.wire.schema import EVERYONE, Lane, Op, Status

ID_MASK: Final = 0xFFFFFFFF
"""Block ids count modulo 2^32."""
Payload = bytes | bytearray | memoryview
Packet = tuple[Payload, ...]


def id_distance(block_id: int, origin: int) -> int:
    """How many blocks ``block_id`` is after ``origin``; negative if it is before (serial number arithmetic, RFC 1982)."""
    ahead = (block_id - origin) & ID_MASK
    return ahead if ahead < 1 << 31 else ahead - (1 << 32)


@dataclass(slots=True)
class Block:
    """One contribution. ``room`` is how many bytes of zeros an empty one carries where a result with payload is expected (a
    result leaves the switch only in a packet that had room for it). ``firm``: the block waits for every rank also in a job
    that degrades. ``passing``: this rank answers, adds nothing, and is not to be counted. ``on_result`` gets the result's
    header and payload; the payload is valid during the call only. ``on_lost`` is told that there will be none.

    For a job without a switch: ``more``: the next block was submitted together with this one, on every rank. ``source``: the
    one rank that has a payload; EVERYONE: any may have one."""

    gen: int
    op: Op
    lane: Lane
    payload: Payload = b""
    status: Status = Status.OK
    dest: int = EVERYONE
    room: int = 0
    final: bool = False
    firm: bool = False
    passing: bool = False
    on_result: Callable[[Header, memoryview], None] | None = None
    on_lost: Callable[[], None] | None = None
    delivered: bool = False
    more: bool = False
    source: int = EVERYONE
