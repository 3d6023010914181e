"""Giving way to jobs of a higher priority at the switch. Pure: the clock is passed in.

While a job of a higher priority is busy, the switch says so on results (``give_way``). A member that hears it has at most one
block under way, and pauses before each, twice as long each time that it hears it again; so a low job costs a busy high one a
packet a member now and then, and still comes to its end. The first result without it ends the pause, and every one lets one
more block go, which doubles the window in a round trip (as TCP's slow start).

It only ever holds blocks back, so the window's own rule stays as it is. On one switch all ranks of a job hear the same,
since results are multicast; in a tree only those who share a switch with the busy job do, and the others wait for them. So
that nobody is taken for late, no pause is longer than a quarter of the time after which the job's blocks age.
"""

from __future__ import annotations

from typing import Final

SHORTEST_PAUSE: Final = 0.005
"""Seconds before the first block that asks whether the way is free."""
LONGEST_PAUSE: Final = 0.04
"""Seconds between such blocks in the end: 25 blocks a second, so that no job stops for ever."""


class GiveWay:
    """How many blocks may be under way. ``until``: no block goes before (seconds); 0.0 while there is nobody to give way to."""

    def __init__(self, window: int, block_exp_ms: float = 0.0) -> None:
        """``block_exp_ms``: of a job whose blocks age; 0: they do not."""
        self._longest = min(LONGEST_PAUSE, block_exp_ms / 4000) if block_exp_ms else LONGEST_PAUSE
        self._window = window
        self._limit = window
        self._pause = 0.0
        self.until = 0.0

    def heard(self, give_way: bool, now: float) -> None:
        """A result has come, with the switch's word on it."""
        if not give_way:
            self._limit = min(self._limit + 1, self._window)
            self._pause = self.until = 0.0
            return
        if now >= self.until:  # not of a block that was under way when the pause began
            self._pause = min(2 * self._pause or SHORTEST_PAUSE, self._longest)
            self.until = now + self._pause
        self._limit = 1

    def room(self, now: float) -> int:
        """Blocks that may be under way now; 0 in a pause."""
        return self._limit if now >= self.until else 0
