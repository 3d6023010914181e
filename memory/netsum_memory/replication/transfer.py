# SPDX-License-Identifier: MIT
"""Open requests, and the transfer of a shard's contents from another device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from netsum_memory.replication.messages import FetchPiece, Offer, Piece

# Open requests: one is repeated at once when later ones are answered.


UNDER_WAY: Final = 64
"""Requests that may be open at a time."""

OVERTAKEN: Final = 3
"""Answers to this many later requests mean that a request or its answer is lost."""


class Outstanding:
    """Numbers, of records or pieces."""

    def __init__(self) -> None:
        self._turns: dict[int, int] = {}
        self._turn = 0

    def more(self, wanted: Iterable[int]) -> list[int]:
        """The requests to make now: what has not been requested yet, while few requests are open."""
        now = []
        for number in wanted:
            if len(self._turns) >= UNDER_WAY:
                break
            if number not in self._turns:
                now.append(number)
                self._fetch_missing(number)
        return now

    def came(self, number: int) -> list[int]:
        """Take an answer; returns what is overdue by it and must be requested again."""
        turn = self._turns.pop(number, None)
        if turn is None:
            return []
        overdue = [other for other, asked in self._turns.items() if asked <= turn - OVERTAKEN]
        for other in overdue:
            self._fetch_missing(other)
        return overdue

    def done(self, upto: int) -> None:
        """Drop all requests up to this number."""
        for number in [number for number in self._turns if number <= upto]:
            del self._turns[number]

    def again(self) -> None:
        """Forget all requests, so that everything is requested anew: the last resort."""
        self._turns.clear()

    def _fetch_missing(self, number: int) -> None:
        self._turns[number] = self._turn
        self._turn += 1


# Another device's copy of a shard, piece by piece.


AHEAD: Final = 4 * UNDER_WAY
"""Pieces that may wait for an earlier one."""


class SnapshotTransfer:
    """One copy: which pieces have come, and which to ask for."""

    def __init__(self, offer: Offer) -> None:
        self.position = offer.position
        self._pieces = offer.pieces
        self._next = 0  # the first that has not been taken
        self._early: dict[int, bytes] = {}
        self._outstanding = Outstanding()
        self._overdue: list[int] = []

    @property
    def over(self) -> bool:
        return self._next == self._pieces

    def _missing(self) -> Iterator[int]:
        end = min(self._next + AHEAD, self._pieces)
        return (number for number in range(self._next, end) if number not in self._early)

    def came(self, peer_message: Piece) -> None:
        number = peer_message.number
        if peer_message.position == self.position and self._next <= number < self._next + AHEAD and number not in self._early:
            self._early[number] = peer_message.data
            self._overdue += self._outstanding.came(number)

    def take(self) -> Iterator[bytes]:
        """The next pieces, as far as they have come."""
        while (data := self._early.pop(self._next, None)) is not None:
            self._next += 1
            yield data

    def fetches(self, epoch: int) -> list[FetchPiece]:
        """The pieces to request now."""
        overdue, self._overdue = self._overdue, []
        numbers = overdue + self._outstanding.more(self._missing())
        return [FetchPiece(epoch, self.position, number) for number in numbers]

    def again(self) -> None:
        """Request everything that has not come anew."""
        self._outstanding.again()
