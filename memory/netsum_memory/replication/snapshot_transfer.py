"""Another device's copy of a shard, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from netsum_memory.replication.messages import AskPiece, Offer, Piece
from netsum_memory.replication.outstanding import UNDER_WAY, Outstanding

AHEAD: Final = 4 * UNDER_WAY
"""Pieces that may wait for an earlier one."""


class SnapshotTransfer:
    """One copy: which pieces have come, and which to ask for."""

    def __init__(self, offer: Offer) -> None:
        self.position = offer.position
        self._pieces = offer.pieces
        self._next = 0  # the first that has not been taken
        self._early: dict[int, bytes] = {}
        self._asking = Outstanding()
        self._overdue: list[int] = []

    @property
    def over(self) -> bool:
        return self._next == self._pieces

    def _missing(self) -> Iterator[int]:
        end = min(self._next + AHEAD, self._pieces)
        return (number for number in range(self._next, end) if number not in self._early)

    def came(self, letter: Piece) -> None:
        number = letter.number
        if letter.position == self.position and self._next <= number < self._next + AHEAD and number not in self._early:
            self._early[number] = letter.data
            self._overdue += self._asking.came(number)

    def take(self) -> Iterator[bytes]:
        """The next pieces, as far as they have come."""
        while (data := self._early.pop(self._next, None)) is not None:
            self._next += 1
            yield data

    def asks(self, epoch: int) -> list[AskPiece]:
        """The pieces to request now."""
        overdue, self._overdue = self._overdue, []
        numbers = overdue + self._asking.more(self._missing())
        return [AskPiece(epoch, self.position, number) for number in numbers]

    def again(self) -> None:
        """Request everything that has not come anew."""
        self._asking.again()
