"""The trainings of ``make stragglers``, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from netsum_testbed.fabric import Fabric

from netsum_trials.stragglers.pattern import Pattern
from netsum_trials.stragglers.trial import WAIT, Mode, Outcome, Setting, Trial

MODES: Final = (WAIT, Mode(degrade=True, late="accept"), Mode(degrade=True, late="carry"))


@dataclass(frozen=True)
class Results:
    """``alone``: without stragglers, in a job that waits and in one that degrades. ``rows``: with stragglers, for every pattern
    a tuple of one training per mode."""

    switch: str
    setting: Setting
    alone: tuple[Outcome, ...]
    rows: tuple[tuple[Outcome, ...], ...]

    @property
    def usual(self) -> float:
        """Seconds that a step takes without a straggler."""
        return self.alone[0].median

    @property
    def trainings(self) -> Iterator[Outcome]:
        yield from self.alone
        for row in self.rows:
            yield from row


def run_all(fabric: Fabric, setting: Setting, patterns: Sequence[Pattern], say: Callable[[str], None]) -> Results:
    """Train without a straggler first, which tells how long a step takes, then with every pattern in every mode."""
    trial = Trial(fabric, setting)
    alone = []
    for mode in MODES[:2]:
        say(f"asleep: nobody, {mode}")
        alone.append(trial.run(mode, Pattern()))
    usual = alone[0].median
    rows = []
    for pattern in patterns:
        row = []
        for mode in MODES:
            say(f"asleep: {pattern}, {mode}")
            row.append(trial.run(mode, pattern, usual))
        rows.append(tuple(row))
    return Results(fabric.switch, setting, tuple(alone), tuple(rows))
