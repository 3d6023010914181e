"""A member hears nothing: has everything gone on elsewhere?"""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 1.0
"""Seconds without a result, of a block that waits for one, after which the controller is asked."""
MAX_PATIENCE: Final = 4.0


class Silence:
    """Tells when to ask: after a while without results, then twice as much later, up to a cap."""

    def __init__(self) -> None:
        self._base = -1
        self._since = 0.0
        self._patience = PATIENCE

    def too_long(self, base: int, now: float, *, waiting: bool) -> bool:
        """Whether to ask now. ``base``: all results below are held; ``waiting``: for more."""
        if base != self._base or not waiting:
            self._base, self._since, self._patience = base, now, PATIENCE
            return False
        if now - self._since < self._patience:
            return False
        self._since, self._patience = now, min(2 * self._patience, MAX_PATIENCE)
        return True
