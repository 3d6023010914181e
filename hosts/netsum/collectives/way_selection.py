# SPDX-License-Identifier: MIT
"""Selects for each size of call whether the switch sums it, the hosts do, or both share its blocks.

The advice of the planner says which ways are worth a trial, and at which share. Its model is of cables; so each way is tried with
the first calls of a size, and the ranks keep the one that was fastest on the slowest of them, as STAR-MPI does (Faraj, Yuan and
Lowenthal, ICS 2006). Every number that a choice follows from is agreed on, so all ranks choose alike. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from netsum.descriptor import SWITCH
from netsum.numeric.exponents import Codes

RING: Final = "ring"
"""The hosts alone, by the algorithm of this name."""
BOTH: Final = "both"
TRIES: Final = 2
"""Calls by which a way is timed. The fastest counts, since what disturbs a call makes it slower."""
_UNKNOWN: Final = 0xFFFF
_STEPS: Final = 1000
"""A time's code is its logarithm in steps of a thousandth: 0.1 % of the time."""


def time_code(seconds: float) -> int:
    """A time as 16 bits; a larger time has no smaller code."""
    return min(_UNKNOWN - 1, round(_STEPS * math.log1p(1e6 * max(0.0, seconds))))


def decoded_time(code: int) -> float:
    """The seconds that have this code."""
    return math.expm1(code / _STEPS) * 1e-6


@dataclass
class SizeClass:
    """Calls of 2^k to 2^(k+1) - 1 bytes that may go these ``ways``; of ``both``, the switch sums a ``share``."""

    ways: tuple[str, ...]
    share: float
    times: dict[str, list[float]] = field(default_factory=dict)
    settled: str | None = None
    agreed: dict[str, float] = field(default_factory=dict)
    """Seconds by each way, of the slowest rank."""

    def record(self, way: str, seconds: float) -> None:
        self.times.setdefault(way, []).append(seconds)

    def codes(self) -> list[int]:
        """This rank's times, one for each way, of which the ranks take the maximum."""
        return [time_code(min(self.times[way])) if len(self.times.get(way, ())) >= TRIES else _UNKNOWN for way in self.ways]

    def choose(self, largest: Sequence[int]) -> str:
        """The way of this call, given the largest :meth:`codes` of all ranks. While some rank lacks times, it is a way to try;
        then it is ``settled``."""
        for way, code in zip(self.ways, largest, strict=True):
            if code == _UNKNOWN:
                return way
        self.agreed = {way: decoded_time(int(code)) for way, code in zip(self.ways, largest, strict=True)}
        self.settled = self.ways[int(np.argmin(np.asarray(largest)))]  # of equal ones the first, which is the simplest
        return self.settled


class WaySelection:
    """The choices of one epoch, by size, apart for calls that can be divided and others."""

    def __init__(self, advice: Sequence[tuple[int, float]]) -> None:
        """``advice``: see :class:`netsum.descriptor.Descriptor`."""
        self._advice = tuple(advice)
        self._classes: dict[tuple[int, bool], SizeClass] = {}

    def of(self, nbytes: int, *, divisible: bool) -> SizeClass | None:
        """The class of a call of ``nbytes`` bytes; None if only the switch is worth it."""
        power = nbytes.bit_length() - 1
        if nbytes <= 0 or (share := self._share(1 << power)) >= 1.0:
            return None
        key = power, divisible
        if key not in self._classes:
            ways = (SWITCH, RING, BOTH) if divisible and share > 0.0 else (SWITCH, RING)
            self._classes[key] = SizeClass(ways, share)
        return self._classes[key]

    def _share(self, nbytes: int) -> float:
        return next((share for least, share in reversed(self._advice) if nbytes >= least), 1.0)


def codes_of(values: Sequence[int]) -> Codes:
    """These as the ranks agree on them: the largest of each."""
    return np.array(values, np.uint16)


def in_words(size_class: SizeClass, nbytes: int) -> str:
    """The choice for calls of about ``nbytes``, and the times that it follows from."""
    low = 1 << (nbytes.bit_length() - 1)
    times = ", ".join(f"{way} {1e3 * seconds:.3g} ms" for way, seconds in size_class.agreed.items())
    how = f"by {size_class.settled}"
    if size_class.settled == BOTH:
        how = f"by switch and ring at once, {size_class.share:.0%} by the switch"
    return f"allreduces of {low:,} to {2 * low - 1:,} bytes go {how} (the slowest rank: {times})"
