"""A network with its own clock, which loses, duplicates and reorders packets."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable

from tests.system.faults.scenario import Rates

LATENCY = 50e-6
"""Seconds that a link takes."""
LATE = 2e-3
"""Additional seconds for a reordered packet."""


class InProcessNetwork:
    """Things happen one after the other, each at its time.

    Attributes:
        now: seconds since the network began.
        rates: what every link does to packets; may be changed at any time.
        counts: packets by what became of them.
    """

    def __init__(self, seed: str, rates: Rates) -> None:
        self.now = 0.0
        self.rates = rates
        self.counts: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do it so many seconds from now."""
        self._serial += 1
        heapq.heappush(self._agenda, (self.now + seconds, self._serial, action))

    def carry(self, deliver: Callable[[], None]) -> None:
        """Take a packet over one link."""
        rng, rates = self._rng, self.rates
        if rng.random() < rates.loss:
            self.counts["loss"] += 1
            return
        copies = 1
        if rng.random() < rates.duplicate:
            self.counts["duplicate"] += 1
            copies = 2
        for _ in range(copies):
            seconds = LATENCY + rates.jitter_ms / 1000 * rng.random()
            if rng.random() < rates.reorder:
                self.counts["reorder"] += 1
                seconds += LATE * rng.random()
            self.later(seconds, deliver)

    def run(self, over: Callable[[], bool], until: float) -> bool:
        """Let time pass until it is ``over``; False if it is not at this time."""
        while not over():
            if not self._agenda or self._agenda[0][0] > until:
                return False
            self.now, _, action = heapq.heappop(self._agenda)
            action()
        return True
