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
    """How many blocks ``block_id`` is after ``origin``, negative if before (serial number arithmetic, RFC 1982)."""
    ahead = (block_id - origin) & ID_MASK
    return ahead if ahead < 1 << 31 else ahead - (1 << 32)


@dataclass(slots=True)
class Block:
    """One contribution. An empty one carries ``room`` bytes of zeros if its result will have a payload (a result can leave the
    switch only in a packet that came with room for it; a COPY's payload comes by itself). A ``firm`` block waits for every rank
    even in a job that degrades. With ``passing``, this rank answers but adds nothing and is not counted. ``on_result`` gets the
    result's header and payload, which is valid only during that call; ``on_lost`` is called if there will be no result. ``call``
    is a digest of its call, if no opening block says what that is.

    In a job without a switch, ``more`` says that every rank submits the next block together with this one, and ``source`` is the
    only rank with a payload (EVERYONE: any rank may have one). ``floats``: the lanes are floats, which only chains add, in an
    order that follows from the ``number`` of the block in its call."""

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
    floats: bool = False
    number: int = 0
    call: int = 0
