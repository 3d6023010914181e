"""Notices when a member hears nothing new: the job may have moved on without it."""

from __future__ import annotations

import time
from typing import Final

PATIENCE: Final = 1.0
"""Seconds that a block waits for its result before the controller is asked."""
MAX_PATIENCE: Final = 4.0
LOOK: Final = 5.0
"""Seconds between two questions that one member asks for all in a job without a switch, where nobody is refused."""


class Silence:
    """Tells when to ask: after a while without results, then after twice as long, up to a cap. ``moved`` is when the last
    awaited result arrived, or the waiting began."""

    def __init__(self) -> None:
        self.moved = 0.0
        self._base = -1
        self._since = 0.0
        self._patience = PATIENCE
        self._looked = time.monotonic()

    def too_long(self, base: int, now: float, *, waiting: bool) -> bool:
        """Whether to ask now. All results below ``base`` are held; ``waiting`` says whether more are awaited."""
        if base != self._base or not waiting:
            self._base, self._since, self._patience = base, now, PATIENCE
            self.moved = now
            return False
        if now - self._since < self._patience:
            return False
        self._since, self._patience = now, min(2 * self._patience, MAX_PATIENCE)
        return True

    def look(self, now: float) -> bool:
        """Whether to ask although nothing is amiss, because a job without a switch may have been given one."""
        if now - self._looked < LOOK:
            return False
        self._looked = now
        return True
