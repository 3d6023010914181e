"""Many loads on many switches, in turns, so that other load on the machine affects all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from netsum_testbed.bench.blast import Blasted, LostError
from netsum_testbed.bench.rigs import Rig

_FIRST_ROUNDS: Final = 100
_MOST_ROUNDS: Final = 500_000


@dataclass
class Case:
    """One load on one switch. ``runs`` grows by one in each turn, of ``rounds`` rounds."""

    engine: str
    load: str
    rig: Rig
    window: int
    rounds: int = _FIRST_ROUNDS
    runs: list[Blasted] = field(default_factory=list)

    def warm_up(self, seconds: float | None) -> None:
        """Send the first packets, which are slow, and set ``rounds`` to as many as take this long (None: keep them)."""
        if seconds is None:
            self._run(min(self.rounds, 3 * _FIRST_ROUNDS))
            return
        for share in (0.1, 1.0):
            run = self._run(self.rounds)
            self.rounds = min(max(round(self.rounds / run.seconds * seconds * share), _FIRST_ROUNDS), _MOST_ROUNDS)

    def take_turn(self) -> None:
        """Measure once. Raises LostError if packets are lost even one at a time."""
        self.runs.append(self._run(self.rounds))

    def _run(self, rounds: int) -> Blasted:
        while True:
            try:
                return self.rig.run(self.load, rounds, self.window)
            except LostError:
                if self.window == 1:
                    raise
                self.window //= 2
                self.rig.renew()

    @property
    def pps(self) -> float:
        """Packets a second into the switch: the median."""
        return statistics.median(run.pps for run in self.runs)

    @property
    def cpu_us(self) -> float:
        """CPU microseconds of the switch's process for a packet into it, all threads: the median."""
        return statistics.median(run.switch_cpu / run.packets for run in self.runs) * 1e6

    @property
    def generator_share(self) -> float:
        """The share of the time that the generator was busy."""
        return statistics.median(run.generator_cpu / run.seconds for run in self.runs)


def take_turns(
    cases: Sequence[Case],
    repetitions: int,
    *,
    run_seconds: float | None,
    deadline: float,
    progress: Callable[[str], None],
) -> None:
    """Give every case its ``repetitions``, or as many turns as end before ``deadline`` (of time.monotonic), but at least one.

    A turn takes about ``run_seconds``; None: the rounds that the case has.
    """
    for case in cases:
        progress(f"{case.engine}, {case.load}: warming up")
        case.warm_up(run_seconds)
    longest = 0.0
    for turn in range(1, repetitions + 1):
        began = time.monotonic()
        if turn > 1 and began + longest > deadline:
            progress(f"turn {turn} of {repetitions} would take too long: this is all")
            return
        for case in cases:
            progress(f"turn {turn} of {repetitions}: {case.engine}, {case.load}")
            case.take_turn()
        longest = max(longest, time.monotonic() - began)
