"""One member's end of a conversation with another: every message once and in order, although connections may break.

A connection carries what is sent on it in order, but when it breaks nobody knows how much arrived. So messages are numbered, and
kept until the other end acknowledges them (``ack``). An end that lacks some asks for them (AGAIN) and gets everything from
``ack`` on once more. It knows that it lacks some when it is told that frames may be lost, when the other end is ahead of it, or
when later messages have arrived. Without loss nothing is sent twice, and one message in :data:`ACK_EVERY` is acknowledged by a
frame of its own, the others by frames that are sent anyway. No socket and no thread; the clock is passed in.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final, NamedTuple

from netsum.peers.wire import HEAD, Flag
from netsum.stats import Stats
from netsum.window.round_trip import RttEstimator

ACK_EVERY: Final = 8
EARLY: Final = 64
"""Most messages kept that have overtaken another. (Connections keep the order; a test's network need not.)"""
REORDERING: Final = 3
"""How many messages must overtake one before it counts as lost."""


class Head(NamedTuple):
    flags: int
    algorithm: int
    at: int
    number: int
    ack: int


class PeerSession:
    """A conversation with one other member. ``heard`` is when something last arrived."""

    def __init__(self, algorithm: int, stats: Stats) -> None:
        self.heard: float | None = None
        self._algorithm = algorithm
        self._stats = stats
        self._kept: deque[bytes] = deque()  # messages that the other end is not known to have
        self._first = 0  # number of the first of these
        self._sent = 0  # how many of them are sent
        self._trip = RttEstimator()
        self._timed: tuple[int, float] | None = None  # the acknowledgement awaited, and since when
        self._expected = 0  # number of the next message to arrive
        self._early: dict[int, bytes] = {}
        self._owed = 0  # messages that have arrived since the last frame was sent
        self._asked = False  # the other end wants to hear from us
        self._lacks = False  # the other end is to repeat
        self._lacked = -1  # the last message asked for because later ones had arrived

    @property
    def settled(self) -> bool:
        """Whether the other end has everything."""
        return not self._kept

    @property
    def kept(self) -> int:
        """How many messages the other end is not known to have."""
        return len(self._kept)

    def forget(self) -> None:
        """Drop what is kept: the other end needs nothing more."""
        self._first += self._sent
        self._sent = 0
        self._kept.clear()

    def post(self, message: bytes) -> None:
        self._kept.append(message)

    def poll(self, now: float, flags: int, at: int) -> list[tuple[bytes, ...]]:
        """The frames to send now, each a head and a message; a head alone if only an answer or an acknowledgement is due."""
        wanted = self._lacks or self._asked or self._owed >= ACK_EVERY or flags & Flag.ANSWER
        if self._sent == len(self._kept):
            return [(self.head(flags, at),)] if wanted else []
        frames: list[tuple[bytes, ...]] = []
        for message in islice(self._kept, self._sent, None):
            frames.append((self.head(flags | Flag.DATA, at), message))
            self._sent += 1
            flags &= ~Flag.ANSWER  # said once
        self._timed = self._timed or (self._first + self._sent, now)
        return frames

    def head(self, flags: int, at: int) -> bytes:
        flags |= Flag.AGAIN * self._lacks
        self._owed, self._asked, self._lacks = 0, False, False
        return HEAD.pack(flags, self._algorithm, at, self._first + self._sent, self._expected)

    def lost(self) -> None:
        """Note that what the other end has sent so far may be lost."""
        self._lacks = True

    def receive(self, head: Head, message: memoryview, now: float) -> list[bytes]:
        """Take a frame from the other end; returns the messages that are now in order."""
        self.heard = now
        while self._sent and self._first < head.ack:
            self._kept.popleft()
            self._first += 1
            self._sent -= 1
        if self._timed is not None and self._first >= self._timed[0]:
            self._trip.learn(now - self._timed[1])
            self._stats.rtt = self._trip.srtt or 0.0
            self._timed = None
        if head.flags & Flag.AGAIN:
            self._stats.retransmissions += self._sent
            self._sent = 0
            self._timed = None
        if head.flags & Flag.ANSWER:
            self._asked = True
        if not head.flags & Flag.DATA:
            self._lacks = self._lacks or head.number > self._expected
            return []
        return self._take(head.number, message)

    def _take(self, number: int, message: memoryview) -> list[bytes]:
        if number < self._expected or number in self._early:
            self._stats.duplicates += 1
        elif number < self._expected + EARLY:
            self._early[number] = bytes(message)
        messages = []
        while self._expected in self._early:
            messages.append(self._early.pop(self._expected))
            self._expected += 1
        self._owed += len(messages)
        if len(self._early) >= REORDERING and self._lacked != self._expected:
            self._lacks, self._lacked = True, self._expected
        return messages
