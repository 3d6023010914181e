"""Notices when a member hears nothing new: the job may have moved on without it."""

from __future__ import annotations

import random
import time
from typing import Final

PATIENCE: Final = 1.0
"""Seconds that a block waits for its result before the controller is asked."""
MAX_PATIENCE: Final = 4.0
SPREAD: Final = 0.01
"""Seconds for each rank of the job, up to which a rank waits longer, at random: otherwise all ranks would ask at once."""
LOOK: Final = 5.0
"""Seconds between two questions that one member asks for all in a job without a switch, where nobody is refused."""


class InactivityTimer:
    """Tells when to ask: after a while without results, then after twice as long, up to a cap. ``moved`` is when the last
    awaited result arrived, or the waiting began."""

    def __init__(self, ranks: int = 0, seed: int | None = None) -> None:
        """``ranks`` of the job."""
        self.moved = 0.0
        self._base = -1
        self._since = 0.0
        self._patience = PATIENCE
        self._spread = ranks * SPREAD
        self._random = random.Random(seed)
        self._extra = self._random.uniform(0.0, self._spread)
        self._looked = time.monotonic()

    def too_long(self, base: int, now: float, *, waiting: bool) -> bool:
        """Whether to ask now. All results below ``base`` are held; ``waiting`` says whether more are awaited."""
        if base != self._base or not waiting:
            self._base, self._since, self._patience = base, now, PATIENCE
            self.moved = now
            return False
        if now - self._since < self._patience + self._extra:
            return False
        self._since, self._patience = now, min(2 * self._patience, MAX_PATIENCE)
        self._extra = self._random.uniform(0.0, self._spread)
        return True

    def look(self, now: float) -> bool:
        """Whether to ask although nothing is amiss, because a job without a switch may have been given one."""
        if now - self._looked < LOOK:
            return False
        self._looked = now
        return True
