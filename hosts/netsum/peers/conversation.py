"""One member's end of a conversation with another: messages in order, over datagrams that may be lost, doubled or reordered.

A message is cut into segments, numbered in each direction; each is sent again until the other end has it. Every datagram
acknowledges what has come: all up to a number, and which of the 64 behind it (TCP's selective acknowledgement, RFC 2018).
A segment is taken for lost when one sent three later has arrived (RACK, RFC 8985, counted in packets), or when nothing is
acknowledged for a retransmission timeout (RFC 6298; Karn's rule), which then doubles up to a cap. How many segments may be under
way follows TCP: slow start, one more each round trip, half of it when some are lost (RFC 5681).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from netsum.peers.wire import SACK_BITS, SEGMENT, Flag
from netsum.round_trip import RoundTrip
from netsum.stats import Stats

MAX_RTO: Final = 2.0
REORDERING: Final = 3
FIRST_FLIGHT: Final = 10
LEAST_FLIGHT: Final = 4
NUMBER: Final = 0xFFFFFFFF


class Head(NamedTuple):
    """A segment's head (:data:`netsum.peers.wire.SEGMENT`)."""

    flags: int
    algorithm: int
    at: int
    number: int
    ack: int
    sack: int


@dataclass(slots=True)
class _Sent:
    piece: memoryview
    last: bool
    time: float  # of the last transmission
    order: int  # of the last transmission among all
    tries: int = 1


class Conversation:
    """With one other member. ``owes``: something has come that is not acknowledged yet. ``heard``: when something came last."""

    def __init__(self, algorithm: int, segment_bytes: int, stats: Stats) -> None:
        self._algorithm = algorithm
        self.owes = False
        self.heard: float | None = None
        self._room = segment_bytes
        self._stats = stats
        self._trip = RoundTrip()
        self._waiting: deque[tuple[memoryview, bool]] = deque()
        self._sent: dict[int, _Sent] = {}
        self._again: dict[int, None] = {}
        self._next = 0  # number of the next segment to be sent
        self._order = 0
        self._newest = -1  # order of the latest transmission that has arrived
        self._recovering = -1  # losses of what was sent before this are known
        self._flight, self._threshold = float(FIRST_FLIGHT), float(SACK_BITS)
        self._alarm: float | None = None
        self._backoff = 1
        self._expected = 0
        self._early: dict[int, tuple[bytes, bool]] = {}
        self._message: list[bytes] = []

    @property
    def settled(self) -> bool:
        """The other end has everything."""
        return not self._sent and not self._waiting

    def forget(self) -> None:
        """The other end needs nothing more."""
        self._waiting.clear()
        self._sent.clear()
        self._again.clear()
        self._alarm = None

    def post(self, message: bytes) -> None:
        """Send the message after all earlier ones."""
        view = memoryview(message)
        for start in range(0, len(view), self._room):
            self._waiting.append((view[start : start + self._room], start + self._room >= len(view)))

    def next_deadline(self) -> float | None:
        """When :meth:`poll` may have something to send although nothing arrives."""
        return self._alarm

    def poll(self, now: float, flags: int, at: int) -> list[tuple[bytes, memoryview]]:
        """The datagrams to be sent now: segments again, new ones, an acknowledgement if there is no other; head and piece."""
        if self._alarm is not None and now >= self._alarm:
            self._expire()
        numbers = [number for number in self._again if number in self._sent]
        self._again.clear()
        for number in numbers:
            sent = self._sent.pop(number)
            sent.tries += 1
            sent.time, sent.order = now, self._next_order()
            self._sent[number] = sent  # last: in the order of transmission
            self._stats.retransmissions += 1
        while self._waiting and self._has_room():
            piece, last = self._waiting.popleft()
            self._sent[self._next] = _Sent(piece, last, now, self._next_order())
            numbers.append(self._next)
            self._next = self._next + 1 & NUMBER
        if self._sent and self._alarm is None:
            self._alarm = now + min(self._trip.rto * self._backoff, MAX_RTO)
        packets = [self._segment(number, flags, at) for number in numbers]
        if not packets and (self.owes or flags & Flag.ANSWER):
            packets.append((self.head(flags, at), memoryview(b"")))
        self.owes = False
        return packets

    def head(self, flags: int, at: int) -> bytes:
        """The head of a datagram without a piece."""
        return self._head(flags, at, self._next)

    def _has_room(self) -> bool:
        if not self._sent:
            return True
        oldest = min(self._sent, key=lambda number: number - self._next & NUMBER)
        return len(self._sent) < int(self._flight) and (self._next - oldest & NUMBER) < SACK_BITS

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def _segment(self, number: int, flags: int, at: int) -> tuple[bytes, memoryview]:
        sent = self._sent[number]
        return self._head(flags | Flag.DATA | Flag.LAST * sent.last, at, number), sent.piece

    def _head(self, flags: int, at: int, number: int) -> bytes:
        sack = 0
        for early in self._early:
            sack |= 1 << (early - self._expected - 1 & NUMBER)
        return SEGMENT.pack(flags, self._algorithm, at, number, self._expected, sack)

    def _expire(self) -> None:
        """The timer: the oldest segment again."""
        self._alarm = None
        self._backoff = min(2 * self._backoff, 1 << 16)
        self._threshold = max(len(self._sent) / 2, LEAST_FLIGHT)
        self._flight = LEAST_FLIGHT
        self._again[min(self._sent, key=lambda number: number - self._next & NUMBER)] = None

    def receive(self, head: Head, piece: memoryview, now: float) -> list[bytes]:
        """Take a datagram of the other end; the messages that are whole now."""
        self.heard = now
        self._acknowledged(head, now)
        if head.flags & Flag.ANSWER:
            self.owes = True
        if not head.flags & Flag.DATA:
            return []
        self.owes = True
        ahead = head.number - self._expected & NUMBER
        if ahead > SACK_BITS or head.number in self._early:
            self._stats.duplicates += 1
            return []
        self._early[head.number] = bytes(piece), bool(head.flags & Flag.LAST)
        messages = []
        while self._expected in self._early:
            part, last = self._early.pop(self._expected)
            self._expected = self._expected + 1 & NUMBER
            self._message.append(part)
            if last:
                messages.append(b"".join(self._message))
                self._message.clear()
        return messages

    def _acknowledged(self, head: Head, now: float) -> None:
        """Let go of what has arrived there; find what was overtaken."""
        arrived = [
            number
            for number in self._sent
            if (behind := number - head.ack & NUMBER) >> 31 or (0 < behind <= SACK_BITS and head.sack >> behind - 1 & 1)
        ]
        if not arrived:
            return
        for number in arrived:
            sent = self._sent.pop(number)
            self._again.pop(number, None)
            if sent.tries == 1 or now - sent.time > (self._trip.srtt or 0.0) / 2:  # else it was an earlier transmission
                self._newest = max(self._newest, sent.order)
            if sent.tries == 1:
                self._trip.learn(now - sent.time)
                self._stats.rtt = self._trip.srtt or 0.0
        slow_start = self._flight < self._threshold
        self._flight = min(self._flight + len(arrived) / (1.0 if slow_start else self._flight), float(SACK_BITS))
        self._backoff = 1
        self._alarm = now + self._trip.rto if self._sent else None
        for number, sent in self._sent.items():
            if sent.order + REORDERING > self._newest:
                break
            if number not in self._again:
                self._again[number] = None
                self._stats.fast_retransmissions += 1
                if sent.order > self._recovering:
                    self._recovering = self._order
                    self._threshold = self._flight = max(self._flight / 2, LEAST_FLIGHT)
