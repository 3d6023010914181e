"""The totals of a run: a tally for each switch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from netsum_testbed.checking import Totals


@dataclass
class FuzzTally:
    """One switch. ``state_changes``: records, buffers, entries, groups, counters and results that differ from what they
    were or should be; ``amplified``: answers with more bytes than what they answer. ``outcomes``: packets by the outcome
    that the switch counted, over all jobs; ``forwarded``: those that were not for it, ``forged``: those dropped because
    their address is not behind their port. ``bytes_in`` of all packets, ``bytes_out`` of the answers, ``bytes_forwarded``
    of other frames, with every copy of a flooded one."""

    packets: int = 0
    crashes: int = 0
    state_changes: int = 0
    amplified: int = 0
    left_out: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    forwarded: int = 0
    forged: int = 0
    arp: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_forwarded: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """For the JSON line."""
        outcomes = dict(sorted(self.outcomes.items()))
        return {**vars(self), "outcomes": outcomes, "seconds": round(self.seconds, 1)}


@dataclass
class FuzzTotals(Totals):
    """The totals of all switches; ``sent``: packets to the current target."""

    switches: dict[str, FuzzTally] = field(default_factory=dict)
    sent: int = 0

    def tally(self, switch: str) -> FuzzTally:
        """The tally of a switch."""
        return self.switches.setdefault(switch, FuzzTally())

    def _sum(self, name: str) -> int:
        return sum(getattr(tally, name) for tally in self.switches.values())

    @property
    def made(self) -> int:
        return self._sum("packets")

    @property
    def failures(self) -> int:
        return self._sum("crashes") + self._sum("state_changes") + self._sum("amplified")

    @property
    def done(self) -> float:
        return self.sent

    @property
    def note(self) -> str:
        return f"{self.made:,} packets, {self._sum('crashes')} crashes, {self._sum('state_changes')} state changes"

    def figures(self) -> dict[str, Any]:
        outcomes: Counter[str] = Counter()
        for tally in self.switches.values():
            outcomes.update(tally.outcomes)
        names = ("packets", "crashes", "state_changes", "amplified", "bytes_in", "bytes_out")
        return {
            **{name: self._sum(name) for name in names},
            "outcomes": dict(sorted(outcomes.items())),
            "seed": self.seed,
            "interrupted": self.interrupted,
            "switches": {name: tally.to_dict() for name, tally in self.switches.items()},
        }
