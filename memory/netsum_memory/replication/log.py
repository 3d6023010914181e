# SPDX-License-Identifier: MIT
"""A shard's log: instructions by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar


class Named(Protocol):
    """An instruction with its unique name: client and sequence."""

    @property
    def name(self) -> tuple[int, int]: ...


M = TypeVar("M", bound=Named)


class LogRecord(NamedTuple, Generic[M]):
    """An instruction and the epoch in which a primary gave it its position. Epoch and position together name a record: there
    is one primary in an epoch, and it gives each position once."""

    epoch: int
    message: M


class Log(Generic[M]):
    """Records from position ``first`` on; earlier ones are forgotten."""

    def __init__(self, first: int = 1) -> None:
        self.first = first
        self._records: list[LogRecord[M]] = []

    @property
    def end(self) -> int:
        """The position of the last record; ``first - 1`` if there is none."""
        return self.first + len(self._records) - 1

    def at(self, position: int) -> LogRecord[M] | None:
        index = position - self.first
        return self._records[index] if 0 <= index < len(self._records) else None

    def between(self, first: int, last: int) -> list[LogRecord[M]]:
        """The records from ``first`` to ``last``, all of which are here."""
        assert first >= self.first or last < first
        return self._records[max(0, first - self.first) : max(0, last + 1 - self.first)]

    def append(self, record: LogRecord[M]) -> None:
        self._records.append(record)

    def cut(self, position: int) -> None:
        """Drop the records from ``position`` on."""
        del self._records[position - self.first :]

    def forget(self, before: int) -> None:
        """Drop the records before this position."""
        dropped = before - self.first
        if dropped > 0:
            del self._records[:dropped]
            self.first = before


# What replication needs of a shard's contents.


class Copy(Protocol):
    """A shard's contents at one position, and the replies that were given up to it, in pieces that fit a packet."""

    @property
    def pieces(self) -> int: ...

    def piece(self, number: int) -> bytes: ...


class StateMachine(Protocol[M]):
    """The contents of a shard. What is appended, cut, entered and finished is in the journal, if there is one, before anything
    that the replica wants to send leaves. Replies are what the caller makes of them."""

    def digest(self, message: M) -> int:
        """A checksum over all that execution depends on."""

    def known(self, message: M) -> Sequence[Any] | None:
        """None for a new instruction; else its replies, none if they are still to come."""

    def entered(self, epoch: int) -> None:
        """The device takes part in this epoch, and no longer in earlier ones."""

    def append(self, position: int, record: LogRecord[M]) -> None:
        """A record was appended to the log."""

    def cut(self, position: int) -> None:
        """The log ends before this position now."""

    def execute(self, position: int, message: M) -> Sequence[Any]:
        """Do the next instruction, which all devices that count have in their logs; returns the replies it brings about."""

    def look(self, message: M) -> Sequence[Any]:
        """Do an instruction that changes nothing."""

    def copy(self) -> Copy:
        """The contents as they are now; they go on changing, the copy does not."""

    def begin(self, position: int) -> None:
        """Another device's copy is about to replace everything here."""

    def piece(self, data: bytes) -> None:
        """The next piece of it."""

    def finish(self, position: int) -> None:
        """All pieces have come: the contents are those as of ``position``."""
