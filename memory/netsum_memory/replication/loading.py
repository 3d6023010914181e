"""Another device's copy of a shard, piece by piece."""

from __future__ import annotations

from netsum_memory.replication.asking import Asking
from netsum_memory.replication.letters import AskPiece, Offer, Piece


class Loading:
    """One copy: which pieces have come, and which to ask for."""

    def __init__(self, offer: Offer) -> None:
        self.position = offer.position
        self._pieces = offer.pieces
        self._first = 0  # the first that is missing
        self._missing = set(range(offer.pieces))
        self._asking = Asking()
        self._came: list[tuple[int, bytes]] = []
        self._overdue: list[int] = []

    @property
    def over(self) -> bool:
        return not self._missing

    def came(self, letter: Piece) -> None:
        if letter.position == self.position and letter.number in self._missing:
            self._missing.discard(letter.number)
            self._came.append((letter.number, letter.data))
            self._overdue += self._asking.came(letter.number)

    def take(self) -> list[tuple[int, bytes]]:
        """What has come since."""
        came, self._came = self._came, []
        return came

    def asks(self, epoch: int) -> list[AskPiece]:
        """What to ask for now."""
        overdue, self._overdue = self._overdue, []
        while self._first < self._pieces and self._first not in self._missing:
            self._first += 1
        missing = (number for number in range(self._first, self._pieces) if number in self._missing)
        numbers = overdue + self._asking.more(missing)
        return [AskPiece(epoch, self.position, number) for number in numbers]

    def again(self) -> None:
        """All that has not come is asked for anew."""
        self._asking.again()
