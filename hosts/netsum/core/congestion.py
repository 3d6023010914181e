# SPDX-License-Identifier: MIT
"""The congestion window and the pace of blocks, where links are congested. Pure: the clock is passed in.

Links with ECN mark packets when their queues grow (RFC 3168), and the switch passes a contribution's mark on to the block's
result, so all ranks learn of the most congested of their links, as in ATP (NSDI 2021) and PANAMA (MLSys 2021). What a host does
about it is much like DCTCP (SIGCOMM 2010, RFC 8257): it keeps an average of the share of results that are marked, and in a round
trip with marks it cuts its window by a part b, half that share. A lost packet halves it, as in TCP (RFC 5681).

DCTCP leaves TCP little of a link that both use. Hence two differences: only windows of results with marks count for the average,
or b would be tiny beside a TCP that halves its own; and the window grows by 3b / (2 - b) blocks in a round trip instead of one,
which gives both as much (RFC 9438, section 4.3, has it for CUBIC). Up to where the timer has cut it, it doubles (slow start).

The window begins as large as the job's, or as what the receive buffer holds, and never gets larger: where nothing is congested,
nothing is held back. While it is smaller, blocks are paced: they leave at the rate at which results come, or a little faster, and
never more than half a window at once.

This only ever holds blocks back. All ranks of a job send the same blocks, so a job is as fast as the rank whose links are the
most congested, and the others have no more in flight than that one lets through.
"""

from __future__ import annotations

from typing import Final

GAIN: Final = 1 / 16
"""Weight of a round trip in the average share of marked results: DCTCP's g."""
MIN_WINDOW: Final = 1.0
"""The smallest window where links mark packets."""
MIN_LOSS_WINDOW: Final = 16.0
"""The smallest window because of losses alone: what fits a queue of 16 packets. Where packets are lost at random, halving ends
at nothing: with n ranks, a block is lost 2n times as often as a packet."""
BURST: Final = 2
"""Blocks that may always leave at once."""
SHORTEST: Final = 1e-5
"""Seconds that a pause takes at least, so that a clock has moved on when it is over."""
AHEAD: Final = 1.25
"""The factor by which blocks leave faster than a window in a round trip, so that the window is what limits them."""


class CongestionWindow:
    """``window`` is how many blocks may be in flight, ``share`` the average share of marked results in a window of them that has
    some. No block may leave before ``paced_until`` (seconds), which is 0.0 while none has to wait for its turn."""

    def __init__(self, most: int) -> None:
        """``most`` is the job's window."""
        self._most = float(most)
        self.window = self._most
        self._threshold = self._most  # below it, the window doubles in a round trip
        self.share = 1.0  # so that the first marks halve the window
        self._cut_holdoff = 0  # results until those that were in progress at the last cut have come
        self._results = self._marks = 0  # of this window of results
        self._round = most  # what it still lacks
        self._credit = 0.0  # blocks that may leave now
        self._filled = 0.0  # when it was last increased
        self.paced_until = 0.0

    def limit(self, most: int) -> None:
        """From now on the window is at most this large."""
        self._most = min(self._most, float(most))
        self.window, self._threshold = min(self.window, self._most), min(self._threshold, self._most)
        self._round = min(self._round, most)

    def marked(self, number: int, in_flight: int) -> None:
        """Count ``number`` packets that came with a mark."""
        if not self._cut_holdoff:
            self._cut(self.share / 2, in_flight, MIN_WINDOW)
        self._marks += number

    def lost(self, in_flight: int) -> None:
        """Blocks that are in progress were overtaken by later ones, so their packets, or those of other ranks, were lost."""
        if not self._cut_holdoff and self.window > MIN_LOSS_WINDOW:
            self._cut(0.5, in_flight, MIN_LOSS_WINDOW)

    def _cut(self, part: float, in_flight: int, least: float) -> None:
        """Once in a round trip: what was sent before says nothing of the smaller window."""
        self.window = self._threshold = max(self.window * (1 - part), least)
        self._cut_holdoff = max(in_flight, 1)

    def stalled(self) -> None:
        """The timer has expired again although what it repeated got through: all that is in progress may be lost, or wait for a
        straggler. So begin anew, and soon be where it was."""
        self._threshold = max(self.window, self._threshold / 2)
        self.window, self._cut_holdoff = min(self.window, MIN_LOSS_WINDOW), 0

    def arrived(self, number: int) -> None:
        """Count ``number`` results."""
        if self.window >= self._most and number < self._round:  # nothing is held back, and so nothing grows
            self._cut_holdoff = max(self._cut_holdoff - number, 0)
            self._results += number
            self._round -= number
            return
        while number > 0:
            some = min(number, self._round)
            number -= some
            self._grow(max(some - self._cut_holdoff, 0))
            self._cut_holdoff = max(self._cut_holdoff - some, 0)
            self._results += some
            self._round -= some
            if not self._round:
                if self._marks:
                    self.share += GAIN * (min(self._marks / self._results, 1.0) - self.share)
                self._results = self._marks = 0
                self._round = int(self.window)

    def _grow(self, results: int) -> None:
        cut = self.share / 2
        for _ in range(results if self.window < self._most else 0):
            self.window += 1 if self.window < self._threshold else 3 * cut / (2 - cut) / self.window
            self.window = min(self.window, self._most)

    def room(self, now: float, in_flight: int, rtt: float | None) -> int:
        """The number of blocks that may leave now, with ``in_flight`` in flight; ``rtt`` is a round trip in seconds, if known."""
        room = int(self.window) - in_flight
        self.paced_until = 0.0
        if self.window >= self._most or not rtt:
            self._filled, self._credit = now, self.window
            return room
        rate, burst = AHEAD * self.window / rtt, max(self.window / 2, BURST)
        self._credit = min(self._credit + rate * (now - self._filled), burst)
        self._filled = now
        if room > self._credit:
            self.paced_until = now + max((1 - self._credit % 1) / rate, SHORTEST)
        return min(room, int(self._credit))

    def sent(self, number: int) -> None:
        """Count ``number`` blocks that have left."""
        self._credit -= number
