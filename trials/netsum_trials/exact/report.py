"""The totals of a run of the matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from netsum_testbed.checking import Totals
from netsum_testbed.verify.cells import COLLECTIVES, KINDS, Cell, Kind
from netsum_testbed.verify.report import CellTotals

from netsum_trials.bytes.hosts import HostVolume, Volume


@dataclass
class Tally:
    """Cells of one collective, or of one topology."""

    cases: int = 0
    wrong: int = 0


@dataclass
class MatrixTotals(CellTotals):
    """``kinds``: the collectives, operations and types made so far; ``topology``: where cells are being made."""

    by_collective: dict[str, Tally] = field(default_factory=lambda: {name: Tally() for name in COLLECTIVES})
    by_topology: dict[str, Tally] = field(default_factory=dict)
    kinds: set[Kind] = field(default_factory=set)
    volumes: Sequence[Volume] | Sequence[HostVolume] = ()
    topology: str = ""

    @property
    def note(self) -> str:
        return f"{self.cells} cells, {len(self.kinds)} kinds, {self.failures} wrong"

    def count(self, cell: Cell, *, wrong: bool, timed_out: bool) -> None:
        super().count(cell, wrong=wrong, timed_out=timed_out)
        self.kinds.add(cell.kind)
        for tally in (self.by_collective[cell.kind.collective], self.by_topology.setdefault(self.topology, Tally())):
            tally.cases += 1
            tally.wrong += wrong

    def figures(self) -> dict[str, Any]:
        found = Totals.figures(self)
        for name in ("topology", "timeouts", "duplicated", "reordered"):
            del found[name]
        found |= {"cases": found.pop("cells"), "bytes": found.pop("volumes")}
        return found | {"wrong": self.failures, "kinds": [len(self.kinds), len(KINDS)]}
