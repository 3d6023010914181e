"""The totals of a soak."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from netsum.transports.impairment import ImpairmentCounts
from netsum_testbed.checking import Totals


@dataclass
class SoakTotals(Totals):
    """``calls``: those of which at least one rank has the result, ``degraded``: those with a partial one. ``faults``: packet
    faults and events that happened; ``errors``: what calls raised, by type, counted for each rank; ``wrong``: results that are
    neither exact nor declared partial, and exceptions that are not netsum's; ``late_errors``: errors that came too late;
    ``blamed``: errors that are untrue, or name a rank that kept up."""

    rounds: int = 0
    calls: int = 0
    elements: int = 0
    wrong: int = 0
    hangs: int = 0
    late_errors: int = 0
    blamed: int = 0
    degraded: int = 0
    resumes: int = 0
    resyncs: int = 0
    retransmissions: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    latest_error: float = 0.0
    """Seconds after its call's timeout that the latest error came."""

    def add_packets(self, counts: ImpairmentCounts) -> None:
        """Add what a faulty transport did."""
        done = {
            "loss": counts.dropped,
            "duplicate": counts.duplicated,
            "reorder": counts.reordered,
            "delay": counts.delayed,
            "cut_packets": counts.cut,
        }
        self.faults.update({name: number for name, number in done.items() if number})

    @property
    def made(self) -> int:
        return self.calls

    @property
    def failures(self) -> int:
        return self.wrong + self.hangs + self.late_errors + self.blamed

    @property
    def note(self) -> str:
        bad = f"{self.wrong} wrong, {self.hangs} hangs, {self.late_errors} late, {self.blamed} blamed"
        return f"{self.calls} calls, {bad}"

    def figures(self) -> dict[str, Any]:
        by_name = {"faults": dict(sorted(self.faults.items())), "errors": dict(sorted(self.errors.items()))}
        return super().figures() | by_name | {"latest_error": round(self.latest_error, 3)}
