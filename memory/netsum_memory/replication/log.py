"""A shard's log: instructions by position."""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar


class Named(Protocol):
    """An instruction with its unique name: client and sequence."""

    @property
    def name(self) -> tuple[int, int]: ...


M = TypeVar("M", bound=Named)


class Record(NamedTuple, Generic[M]):
    """An instruction and the epoch in which a primary gave it its position. Epoch and position together name a record: there
    is one primary in an epoch, and it gives each position once."""

    epoch: int
    message: M


class Log(Generic[M]):
    """Records from position ``first`` on; earlier ones are forgotten."""

    def __init__(self, first: int = 1) -> None:
        self.first = first
        self._records: list[Record[M]] = []

    @property
    def end(self) -> int:
        """The position of the last record; ``first - 1`` if there is none."""
        return self.first + len(self._records) - 1

    def at(self, position: int) -> Record[M] | None:
        index = position - self.first
        return self._records[index] if 0 <= index < len(self._records) else None

    def between(self, first: int, last: int) -> list[Record[M]]:
        """The records from ``first`` to ``last``, all of which are here."""
        assert first >= self.first or last < first
        return self._records[max(0, first - self.first) : max(0, last + 1 - self.first)]

    def append(self, record: Record[M]) -> None:
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
