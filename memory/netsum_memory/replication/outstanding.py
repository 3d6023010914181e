"""Open requests: one is repeated at once when later ones are answered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

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
        """What to request now: what has not been requested yet, while few requests are open."""
        now = []
        for number in wanted:
            if len(self._turns) >= UNDER_WAY:
                break
            if number not in self._turns:
                now.append(number)
                self._ask(number)
        return now

    def came(self, number: int) -> list[int]:
        """Take an answer; returns what is overdue by it and must be requested again."""
        turn = self._turns.pop(number, None)
        if turn is None:
            return []
        overdue = [other for other, asked in self._turns.items() if asked <= turn - OVERTAKEN]
        for other in overdue:
            self._ask(other)
        return overdue

    def done(self, upto: int) -> None:
        """Drop all requests up to this number."""
        for number in [number for number in self._turns if number <= upto]:
            del self._turns[number]

    def again(self) -> None:
        """Forget all requests, so that everything is requested anew: the last resort."""
        self._turns.clear()

    def _ask(self, number: int) -> None:
        self._turns[number] = self._turn
        self._turn += 1
