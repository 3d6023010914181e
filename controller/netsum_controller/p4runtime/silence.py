"""Which switches have just not answered.

Who works on a switch holds the state lock, and everybody else waits for it. So a switch that hangs (one that is gone refuses the
connection at once) is waited for in full only the first time: then it is left alone for a moment, and after that has little
time to answer, until it does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PAUSE: Final = 1.0
"""Seconds for which nobody asks a switch again."""

BRIEF: Final = 0.5
"""Seconds that it has to answer after that."""


class Silence:
    """Several threads may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def begins(self, switch: str) -> None:
        """The switch has not answered in the time that it had."""
        self._until[switch] = self._clock() + PAUSE

    def ends(self, switch: str) -> None:
        """The switch has answered."""
        self._until.pop(switch, None)

    def patience(self, switch: str, usual: float) -> float:
        """Seconds for which to wait for its answer; 0: do not ask now."""
        until = self._until.get(switch)
        if until is None:
            return usual
        return 0.0 if self._clock() < until else min(BRIEF, usual)
