# SPDX-License-Identifier: MIT
"""The two ends of a stream of numbered packets from one member to another, or to all. The receiver asks for what is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from netsum.core.blocks import ID_MASK, id_distance
from netsum.core.retransmit import RttEstimator

Kept = TypeVar("Kept")

FIRST: Final = 1
"""The number of the first packet; numbers count modulo 2^32."""
EVERYTHING: Final = ID_MASK
"""The last number of a query that asks for everything that was sent."""
BURST: Final = 16
"""Most packets that are repeated for one query."""
MOST_PAUSE: Final = 0.25
"""Seconds between two queries at most; each waits twice as long as the one before."""

Gap = tuple[int, int]
"""The first and the last number that are missing."""


class Incoming:
    """The receiving end. ``due`` is when silence becomes too long; ``unanswered`` counts the queries since something came."""

    def __init__(self) -> None:
        self.due: float | None = None
        self.unanswered = 0
        self.last_received: float | None = None
        self._next = FIRST
        self._missing: dict[int, None] = {}  # in ascending order
        self._gaps: list[Gap] = []  # found since they were last asked for
        self._rtt = RttEstimator()
        self._queried_at: float | None = None
        self._pause = 0.0

    @property
    def lacking(self) -> int:
        """The first number that has not come."""
        return next(iter(self._missing), self._next)

    def take(self, number: int, now: float, *, again: bool) -> bool:
        """Note that a packet has come (``again``: repeated); False if it had come before."""
        if id_distance(number, self._next) >= 0:
            first = number == self._next
            self.expect(number)
            self._next = (number + 1) & ID_MASK
            if again and first:  # the last packets were lost, and perhaps there are more of them
                self._gaps.append((self._next, EVERYTHING))
        elif number in self._missing:
            del self._missing[number]
        else:
            return False
        self.answered(now, again=again)
        return True

    def expect(self, number: int) -> None:
        """Everything before this number was sent."""
        ahead = id_distance(number, self._next)
        if ahead > 0:
            self._missing.update(dict.fromkeys((self._next + step) & ID_MASK for step in range(ahead)))
            self._gaps.append((self._next, (number - 1) & ID_MASK))
            self._next = number

    def answered(self, now: float, *, again: bool = True) -> None:
        """The other end is there."""
        if again and self._queried_at is not None and self.unanswered <= 1:  # else it may answer an earlier query
            self._rtt.learn(now - self._queried_at)
        if again:
            self._queried_at = None
        self.last_received, self.unanswered, self._pause = now, 0, self._rtt.rto
        self.due = now + self._pause

    def gaps(self, now: float) -> list[Gap]:
        """Gaps to ask for at once."""
        found, self._gaps = self._gaps, []
        if found:
            self._queried_at = now
        return found

    def overdue(self, now: float, *, waiting: bool) -> list[Gap]:
        """The numbers to ask for once more because nothing has come for long, although this member is ``waiting``: all that is
        missing, and one packet that may have come last."""
        if not waiting or self.due is None:
            self._pause = self._rtt.rto
            self.due = now + self._pause if waiting else None
            return []
        if now < self.due:
            return []
        self.unanswered += 1
        self._queried_at = now
        self._pause = min(2 * self._pause, MOST_PAUSE)
        self.due = now + self._pause
        return [*self._runs(), (self._next, self._next)]

    def _runs(self) -> Iterator[Gap]:
        first = last = None
        for number in self._missing:
            if first is None or last is None or number != (last + 1) & ID_MASK:
                if first is not None and last is not None:
                    yield first, last
                first = number
            last = number
        if first is not None and last is not None:
            yield first, last


class Outgoing(Generic[Kept]):
    """The sending end; ``next`` is the number of the next packet. What was sent is kept until its block is forgotten."""

    def __init__(self) -> None:
        self.next = FIRST
        self._kept: dict[int, tuple[int, Kept]] = {}  # in ascending order
        self._lacks: dict[int, int] = {}  # by receiver, the first number that it lacks

    def settled(self, receiver: int) -> bool:
        """True if this receiver has said that it has everything."""
        return self._lacks.get(receiver, FIRST) == self.next

    def sent(self, block_id: int, packet: Kept) -> None:
        self._kept[self.next] = block_id, packet
        self.next = (self.next + 1) & ID_MASK

    def acknowledged(self, receiver: int, number: int) -> None:
        """It lacks this number, and none before it."""
        if id_distance(number, self._lacks.get(receiver, FIRST)) > 0:
            self._lacks[receiver] = number

    def between(self, first: int, last: int) -> list[Kept]:
        """The messages that were sent from one number to another, as far as it is kept."""
        end = self.next if last == EVERYTHING or id_distance(last, self.next) >= 0 else (last + 1) & ID_MASK
        number = min(max(id_distance(end, first), 0), BURST)
        numbers = ((first + step) & ID_MASK for step in range(number))
        return [self._kept[each][1] for each in numbers if each in self._kept]

    def forget(self, block_id: int) -> None:
        """Drop what belongs to this block or an earlier one."""
        while self._kept:
            number = next(iter(self._kept))
            if id_distance(self._kept[number][0], block_id) > 0:
                return
            del self._kept[number]
