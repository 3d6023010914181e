"""What a soak came to: totals and the JSON line."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from netsum.transports.faulty import FaultCounts


@dataclass
class Totals:
    """``calls`` are calls of which at least one rank has the result, ``degraded`` those with a partial one. ``faults``: what
    was really done, packets and events; ``errors``: what calls raised, by type, each rank's by itself; ``wrong``: results that
    are neither exact nor a partial sum that says so, and exceptions that are not netsum's; ``late_errors`` came after their
    time; ``blamed``: errors that say what did not happen, or name a rank that kept up."""

    switch: str
    seed: int = 0
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
    seconds: float = 0.0
    interrupted: bool = False

    def add_packets(self, counts: FaultCounts) -> None:
        """What a faulty transport did."""
        done = {
            "loss": counts.dropped,
            "duplicate": counts.duplicated,
            "reorder": counts.reordered,
            "delay": counts.delayed,
            "cut_packets": counts.cut,
        }
        self.faults.update({name: number for name, number in done.items() if number})

    @property
    def failures(self) -> int:
        """How often something went as it never should."""
        return self.wrong + self.hangs + self.late_errors + self.blamed

    @property
    def exit_code(self) -> int:
        """0 when all went as it should, 1 when something did not or no call was made, 130 when Ctrl-C ended the run."""
        if self.interrupted:
            return 130
        return 1 if self.failures or not self.calls else 0

    def to_json(self) -> str:
        """One line."""
        shown = {name: value for name, value in vars(self).items() if name not in ("faults", "errors")}
        shown |= {"faults": dict(sorted(self.faults.items())), "errors": dict(sorted(self.errors.items()))}
        return json.dumps(shown | {"seconds": round(self.seconds, 1), "latest_error": round(self.latest_error, 3)})
