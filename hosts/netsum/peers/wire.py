"""What members say to each other, byte by byte; big-endian (docs/wire.md, "Between members").

A connection carries frames one way. The member that accepts it sends a greeting (:data:`GREETING`). The member that opened it
sends a hello (:data:`HELLO`) and then *frames*: a :data:`FRAME` head and a body, which is either empty (earlier frames may be
lost) or a :data:`HEAD` with or without a message. A *message* is a :data:`MESSAGE` head, row records (:data:`RECORD`), and the
rows' payloads one after the other.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntFlag
from typing import Final

import numpy as np

from netsum.descriptor import ALGORITHMS, PLAN, torus_sides
from netsum.peers.plans.from_file import read_plan
from netsum.window.block import Payload

RANK: Final = struct.Struct(">B")
TAG_BYTES: Final = 16
GREETING: Final = struct.Struct(">16s16s")
"""The session of the process that accepted, and a random number for this connection."""
HELLO: Final = struct.Struct(f">B16s{TAG_BYTES}s")
"""The rank and session of the process that connected, and the tag that proves both (:mod:`netsum.peers.frame_auth`)."""
SIZE: Final = struct.Struct(">I")
FRAME: Final = struct.Struct(f"{SIZE.format}{TAG_BYTES}s{TAG_BYTES}s")
"""The number of bytes of the body (:data:`SIZE`), the tag of this number, and the tag of the body."""

HEAD: Final = struct.Struct(">BBIQQ")
"""Flags (:class:`Flag`); the sender's algorithm (:func:`algorithm_number`); the first block that it has not begun; the message's
number, counted from 0 in each direction (without DATA, the number of the next message); and the first number that the sender
has not received."""

DATAGRAM: Final = b"\x80"
"""In the place of a head's flags: what follows is a packet of memory (:mod:`netsum.wire.memory`), which travels by UDP, without
this byte."""
DATAGRAM_HEAD: Final = RANK.size + len(DATAGRAM)


def is_datagram(frame: Payload) -> bool:
    """Whether a frame, or its first part, is a packet of memory."""
    return len(frame) >= DATAGRAM_HEAD and frame[RANK.size] == DATAGRAM[0]


_PLANS: Final = 128
_TORI: Final = 64


def algorithm_number(name: str) -> int:
    """The index in :data:`netsum.descriptor.ALGORITHMS`; of a chain on a torus, 64 and more: six bits of a digest of its sides;
    of a file's plan, 128 and more: seven bits of a digest of the plan."""
    if name.startswith(PLAN):
        return _PLANS + read_plan(name.removeprefix(PLAN)).digest % _PLANS
    if torus_sides(name):
        return _TORI + zlib.crc32(name.encode()) % (_PLANS - _TORI)
    return ALGORITHMS.index(name)


def algorithm_name(number: int) -> str:
    if number >= _PLANS:
        return f"of a plan with number {number}"
    if number >= _TORI:
        return f"of a chain on another torus, number {number}"
    return ALGORITHMS[number] if number < len(ALGORITHMS) else f"number {number}"


class Flag(IntFlag):
    """What a frame is."""

    DATA = 1  # it holds a message
    AGAIN = 2  # the sender lacks messages: repeat everything from `ack` on
    ANSWER = 4  # the sender wants to hear from the receiver
    BYE = 8  # the sender leaves, and needs nothing more
    DIFFER = 16  # the sender's call differs from the others': nobody can continue


MESSAGE: Final = struct.Struct(">IHH")
"""The id of the batch's first block, the number of its rows, and the number of records that follow."""

RECORD: Final = np.dtype(
    [
        ("call", ">u8"),
        ("row", ">u2"),
        ("gen_id", ">u2"),
        ("size", ">u2"),  # bytes of payload
        ("op", "u1"),
        ("lane", "u1"),
        ("dest", "u1"),
        ("status", "u1"),
        ("src_cnt", "u1"),
        ("data_cnt", "u1"),
        ("degraded", "u1"),
        ("flags", "u1"),
    ]
)
"""One row: the header of one contribution, or of several that were combined."""

SIGNED: Final = 1
"""Flag of a record: call, gen_id, op, lane and dest come from a rank that has not given up."""
HERE: Final = 2
"""Flag of a record: the payload is in the message."""

LONGEST: Final = 64
"""Most rows of a batch: a call submits more only while fewer blocks are waiting."""


def message_bytes(block_bytes: int) -> int:
    """Bytes of the largest message."""
    return MESSAGE.size + LONGEST * (RECORD.itemsize + block_bytes)
