"""When a straggler sleeps, and for how long: after the evaluation of Trio-ML and the slow-worker pattern of FlexRR (SoCC 2016).

Every step has a few points, at each of which the worker sleeps with probability p for a time drawn uniformly from 0.5 to 2
times a step's usual time. Everything follows from the seed, so it is the same in every job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

SHORTEST: Final = 0.5
LONGEST: Final = 2.0
"""The length of a sleep, in steps' usual times."""


@dataclass(frozen=True)
class Pattern:
    """``nap``: one long sleep, in steps' usual times, half-way."""

    probability: float = 0.0
    points: int = 3
    seed: int = 1
    nap: float = 0.0

    def delays(self, steps: int, rank: int = 0) -> list[float]:
        """How long each step of a rank is delayed, in steps' usual times."""
        rng = np.random.default_rng([self.seed, rank])
        asleep = rng.random((steps, self.points)) < self.probability
        delays = (asleep * rng.uniform(SHORTEST, LONGEST, asleep.shape)).sum(axis=1)
        if self.nap:
            delays[steps // 2] += self.nap
        return [float(delay) for delay in delays]

    def __str__(self) -> str:
        return f"{self.nap:g} steps" if self.nap else f"p = {self.probability:g}"

    @property
    def mean(self) -> float:
        """A step's average delay, in steps' usual times, without naps."""
        return self.points * self.probability * (SHORTEST + LONGEST) / 2
