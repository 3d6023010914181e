# SPDX-License-Identifier: MIT
"""Giving way to jobs of a higher priority at the switch. Pure: the clock is passed in.

While a job of a higher priority is busy, the switch says so on results (``backoff``). A member that receives it keeps at most one
block in flight and pauses before each, twice as long every time it receives it again. So a low-priority job costs a busy one only
a packet per member now and then, and still finishes. The first result without ``backoff`` ends the pause, and each such result
allows one more block, which doubles the window every round trip (like TCP's slow start).

This only ever holds blocks back, so the window's own rule still holds. On one switch all ranks of a job receive the same, because
results are multicast; in a tree only those that share a switch with the busy job do, and the others wait for them. No pause is
longer than a quarter of the time after which the job's blocks age, so that no rank counts as late.
"""

from __future__ import annotations

from typing import Final

SHORTEST_PAUSE: Final = 0.005
"""Seconds before the first block that probes whether the other job is still busy."""
LONGEST_PAUSE: Final = 0.04
"""Most seconds between such blocks: 25 blocks a second, so that no job stops for ever."""


class PriorityBackoff:
    """The number of blocks that may be in flight. None is sent before ``paused_until`` (seconds), which is 0.0 when there is no
    job to give way to."""

    def __init__(self, window: int, block_exp_ms: float = 0.0) -> None:
        """``block_exp_ms`` is 0 in a job whose blocks do not age."""
        self._longest = min(LONGEST_PAUSE, block_exp_ms / 4000) if block_exp_ms else LONGEST_PAUSE
        self._window = window
        self._limit = window
        self._pause = 0.0
        self.paused_until = 0.0

    def narrow(self, window: int) -> None:
        """Limit the blocks in flight to ``window``: what is to be no more than the job's window."""
        self._limit = min(self._limit, window) if self._limit < self._window else window
        self._window = window

    def on_result(self, backoff: bool, now: float, number: int = 1) -> None:
        """Count a result, with or without ``backoff``, or ``number`` results without."""
        if not backoff:
            self._limit = min(self._limit + number, self._window)
            self._pause = self.paused_until = 0.0
            return
        if now >= self.paused_until:  # else the block was in flight when the pause began
            self._pause = min(2 * self._pause or SHORTEST_PAUSE, self._longest)
            self.paused_until = now + self._pause
        self._limit = 1

    def room(self, now: float) -> int:
        """Blocks that may be in progress now; 0 in a pause."""
        return self._limit if now >= self.paused_until else 0
