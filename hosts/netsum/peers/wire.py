# SPDX-License-Identifier: MIT
"""Frames between members: sealed with the job's key, cut from a stream, and what they say."""

from __future__ import annotations

import hmac
import secrets
import struct
import zlib
from enum import IntFlag
from hashlib import blake2b
from typing import Final

import numpy as np

from netsum.core.blocks import Payload
from netsum.descriptor import ALGORITHMS, PLAN, torus_sides
from netsum.peers.schedule_files import read_plan
from netsum.transports.base import Packet

# What members say to each other, byte by byte; big-endian (PROTOCOL.md, Appendix C).
#
# A connection carries frames one way. The member that accepts it sends a greeting (:data:`GREETING`). The member that
# opened it sends a hello (:data:`HELLO`) and then *frames*: a :data:`FRAME` head and a body, which is either empty
# (earlier frames may be lost) or a :data:`HEAD` with or without a message. A *message* is a :data:`MESSAGE` head, row
# records (:data:`RECORD`), and the rows' payloads one after the other.


RANK: Final = struct.Struct(">H")
TAG_BYTES: Final = 16
GREETING: Final = struct.Struct(">16s16s")
"""The session of the process that accepted, and a random number for this connection."""
HELLO: Final = struct.Struct(f"{RANK.format}16s{TAG_BYTES}s")
"""The rank and session of the process that connected, and the tag that proves both (:class:`FrameAuth`)."""
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


def rank_of(frame: Payload) -> int:
    """The rank that a frame, or its first part, is for or from."""
    (rank,) = RANK.unpack_from(frame)
    return int(rank)


def is_datagram(frame: Payload) -> bool:
    """True if a frame, or its first part, is a packet of memory."""
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
    """The kinds of frames."""

    DATA = 1  # it holds a message
    AGAIN = 2  # the sender lacks messages: repeat everything from `ack` on
    ANSWER = 4  # the sender wants an answer from the receiver
    BYE = 8  # the sender leaves, and needs nothing more
    DIFFER = 16  # the sender's call differs from the others': no rank can continue


MESSAGE: Final = struct.Struct(">IHH")
"""The id of the batch's first block, the number of its rows, and the number of records that follow."""

RECORD: Final = np.dtype(
    [
        ("call_fingerprint", ">u8"),
        ("row", ">u2"),
        ("gen_id", ">u2"),
        ("size", ">u2"),  # bytes of payload
        ("op", "u1"),
        ("lane", "u1"),
        ("dest", ">u2"),
        ("status", "u1"),
        ("worker_cnt", ">u2"),
        ("data_cnt", ">u2"),
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


# Proves who is at the other end of a connection, and that every frame on it is theirs, unaltered and in order.
#
# Each process draws a random number, its *session*, and each connection gets another. Both ends derive the connection's
# key from these, from the two ranks and from the epoch's key, which members never send each other. A frame carries
# keyed hashes of its size, of its body, and of where in the connection these are. So what an untrusted sender records is useless
# on any other connection, to any other member or process, and in any other order; what it adds or alters ends the
# connection, and the member connects again.
#
# A member accepts the first process of a rank that proves itself and no other (copies of one descriptor may run twice).
# Frames are not secret: anyone who captures them can read them. No socket.


_PERSON: Final = b"netsum peers"


class FrameAuth:
    """The tags of one connection's frames. Both ends make the same: one tags what it sends, the other checks it."""

    def __init__(self, key: bytes, between: bytes) -> None:
        """``between`` is everything that distinguishes this connection from others."""
        own_key = blake2b(between, key=key, digest_size=32, person=_PERSON).digest()
        self._keyed = blake2b(key=own_key, digest_size=TAG_BYTES, person=_PERSON)
        self._tags = 0

    def tag(self, body: Packet) -> bytes:
        """The tag of what comes next on the connection."""
        tag = self._keyed.copy()
        tag.update(self._tags.to_bytes(8, "big"))
        self._tags += 1
        for part in body:
            tag.update(part)
        return tag.digest()

    def holds(self, tag: bytes, body: Packet) -> bool:
        return hmac.compare_digest(self.tag(body), tag)


class Identity:
    """This process as a member of one epoch, and the other members' processes as far as they are known."""

    def __init__(self, key: bytes, rank: int) -> None:
        """``key``: 8 bytes or more."""
        self._key = key
        self._rank = rank
        self._session = secrets.token_bytes(16)
        self._sessions: dict[int, bytes] = {}  # of the ranks that have proven themselves

    def greet(self) -> bytes:
        """The greeting for a new connection that this member accepts."""
        return GREETING.pack(self._session, secrets.token_bytes(16))

    def answer(self, greeting: bytes, rank: int) -> tuple[bytes, FrameAuth] | None:
        """Return the hello to a rank, and the tags of what follows; None if this is not the process known for that rank."""
        session, _ = GREETING.unpack(greeting)
        if self._sessions.get(rank, session) != session:
            return None
        auth = self._auth(greeting, self._rank, self._session, rank)
        return HELLO.pack(self._rank, self._session, auth.tag(())), auth

    def meet(self, greeting: bytes, hello: bytes) -> tuple[int, FrameAuth] | None:
        """Return the rank that answers our greeting, and the tags of what follows; None if it is not a member's process, or not
        the first one of its rank."""
        rank, session, tag = HELLO.unpack(hello)
        auth = self._auth(greeting, rank, session, self._rank)
        if not auth.holds(tag, ()) or self._sessions.setdefault(rank, session) != session:
            return None
        return rank, auth

    def _auth(self, greeting: bytes, sender: int, session: bytes, receiver: int) -> FrameAuth:
        return FrameAuth(self._key, greeting + session + RANK.pack(sender) + RANK.pack(receiver))


# Frames as the bytes of a connection. A frame's head has a fixed size and a tag of its own, so no member waits for the
# body of a size that is not the sender's. No socket; the clock is passed in.


STALLED: Final = 2.0
"""Seconds after which the rest of a frame does not come any more: nothing has, for so long."""


class BrokenError(OSError):
    """The connection is unusable: it was closed, or the other end is not who it should be."""


def framed(auth: FrameAuth, body: Packet) -> bytes:
    """The connection's next frame."""
    size = SIZE.pack(sum(map(len, body)))
    return b"".join((size, auth.tag((size,)), auth.tag(body), *body))


class FrameReader:
    """Cuts the bytes that come on a connection into frames."""

    def __init__(self, auth: FrameAuth, largest: int) -> None:
        """``largest`` is the most bytes of a frame's body."""
        self._auth = auth
        self._largest = largest
        self._come = bytearray()
        self._head: tuple[int, bytes] | None = None  # the size and the tag of the body that is to come
        self._waiting_since: float | None = None

    def take(self, data: bytes, now: float) -> list[bytes]:
        """The bodies of the frames that are whole now. Raises :class:`BrokenError` as soon as the bytes at hand show that they
        are not what the other end has sealed."""
        self._come += data
        bodies = []
        at = 0
        while len(self._come) - at >= (wanted := FRAME.size if self._head is None else self._head[0]):
            part = bytes(memoryview(self._come)[at : at + wanted])
            at += wanted
            if self._head is None:
                self._head = self._opened(part)
            elif self._auth.holds(self._head[1], (part,)):
                self._head = None
                bodies.append(part)
            else:
                raise BrokenError("a frame is not as it was sent")
        del self._come[:at]
        self._waiting_since = now if self._come or self._head is not None else None
        return bodies

    def _opened(self, head: bytes) -> tuple[int, bytes]:
        size, tag, tag_of_body = FRAME.unpack(head)
        if not self._auth.holds(tag, (head[: SIZE.size],)) or size > self._largest:
            raise BrokenError("a frame's head is not as it was sent")
        return size, tag_of_body

    def stalled(self, now: float) -> bool:
        """True if half a frame has come, and nothing more for too long."""
        return self._waiting_since is not None and now - self._waiting_since > STALLED
