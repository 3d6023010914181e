"""What replication needs of a shard's contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from netsum_memory.replication.log import Named, Record

M = TypeVar("M", bound=Named)


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

    def append(self, position: int, record: Record[M]) -> None:
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
