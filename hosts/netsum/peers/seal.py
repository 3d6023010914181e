"""That a datagram is another member's, meant for this process, and new: strangers may hear all of them, and send what they like.

Each datagram bears a keyed hash over all the rest; the key is the epoch's, and is never sent to another member. That alone would
let a stranger send again what a member has said, to the same member or to another process that comes with the same key. So every
process draws a random number, its *session*, and a datagram names the sender's and the receiver's: who names a process's session
has heard from that very process. A process learns another's by asking; what it has to say meanwhile is held back. It goes on with
the first process of a rank that names its session, and with no other one. Between two sessions datagrams are counted, and none
is taken twice.

No socket. What strangers send costs one hash each, and changes nothing. Members' datagrams are not secret: who hears them can
read them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from netsum.peers.wire import RANK, SEAL, TAG_BYTES
from netsum.transports.base import Packet

HELD: Final = 64
"""Datagrams that wait for the other's session, at most; the latest ones. (All of them are sent again if need be.)"""
REORDERED: Final = 1024
"""So many datagrams may overtake another one; what comes later than that is dropped."""


class Kind(IntEnum):
    """What a sealed datagram is."""

    SAYS = 0
    ASKS = 1  # for the receiver's session; it names none
    TELLS = 2  # the sender's session, to who has asked


class Opened(NamedTuple):
    """A member's datagram: whether it ``says`` something behind the seal, and what is to be sent to that member now."""

    says: bool
    answers: list[Packet]


class _End:
    """What is known of another member."""

    def __init__(self) -> None:
        self.session: int | None = None
        self.held: deque[Packet] = deque(maxlen=HELD)
        self.sent = 0
        self._newest = 0
        self._seen = 0  # of those up to the newest, lowest bit first

    def is_new(self, counter: int) -> bool:
        """Whether a datagram of this number has not come yet; from now on it has."""
        if counter > self._newest:
            self._seen = (self._seen << min(counter - self._newest, REORDERED) | 1) & ((1 << REORDERED) - 1)
            self._newest = counter
            return True
        behind = self._newest - counter
        if behind >= REORDERED or self._seen >> behind & 1:
            return False
        self._seen |= 1 << behind
        return True


class Seal:
    """One process's, of one epoch."""

    def __init__(self, key: bytes, rank: int, others: Iterable[int]) -> None:
        """``key``: 8 bytes or more. ``others``: ranks."""
        self._keyed = hashlib.blake2b(key=key, digest_size=TAG_BYTES, person=b"netsum peers")
        self._rank = RANK.pack(rank)
        self._session = 1 + secrets.randbits(63)
        self._ends = {other: _End() for other in others}

    def close(self, rank: int, packet: Packet) -> Packet:
        """What is to be sent to this rank so that it gets the packet: that, sealed, or a question to begin with."""
        end = self._ends[rank]
        if end.session is not None:
            return self._says(end, packet)
        end.held.append(packet)
        return self._sealed(Kind.ASKS, 0, 0, ())

    def open(self, datagram: memoryview) -> Opened | None:
        """Take what came, a tag, a seal, a rank and the rest; None: it is no member's, for another process, or old."""
        if len(datagram) < SEAL.size + RANK.size:
            return None
        tag, kind, session, named, counter = SEAL.unpack_from(datagram)
        end = self._ends.get(datagram[SEAL.size])
        if end is None or not hmac.compare_digest(self._tag((datagram[TAG_BYTES:],)), tag):
            return None
        if end.session not in (None, session):
            return None
        if kind == Kind.ASKS:
            return Opened(False, [self._sealed(Kind.TELLS, session, 0, ())])
        if named != self._session:
            return None
        answers: list[Packet] = []
        if end.session is None:
            end.session = session
            answers = [self._says(end, packet) for packet in end.held]
            end.held.clear()
        says = kind == Kind.SAYS
        if says and not end.is_new(counter):
            return None
        return Opened(says, answers)

    def _says(self, end: _End, packet: Packet) -> Packet:
        assert end.session is not None
        end.sent += 1
        return self._sealed(Kind.SAYS, end.session, end.sent, packet)

    def _sealed(self, kind: Kind, named: int, counter: int, packet: Packet) -> Packet:
        rest = (SEAL.pack(b"", kind, self._session, named, counter)[TAG_BYTES:] + self._rank, *packet)
        return (self._tag(rest), *rest)

    def _tag(self, parts: Packet) -> bytes:
        tag = self._keyed.copy()
        for part in parts:
            tag.update(part)
        return tag.digest()
