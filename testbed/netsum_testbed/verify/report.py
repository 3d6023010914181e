"""The totals of checked cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from netsum.descriptor import SWITCH

from netsum_testbed.checking import Totals
from netsum_testbed.verify.cells import Cell
from netsum_testbed.verify.members import Members


@dataclass
class CellTotals(Totals):
    """``elements`` of all cells, each counted once; ``packets`` and faults of faulty transports only."""

    algorithm: str = SWITCH
    cells: int = 0
    elements: int = 0
    wrong: int = 0
    timeouts: int = 0
    jobs: int = 0
    packets: int = 0
    dropped: int = 0
    duplicated: int = 0
    reordered: int = 0
    retransmissions: int = 0

    @property
    def made(self) -> int:
        return self.cells

    @property
    def failures(self) -> int:
        return self.wrong + self.timeouts

    @property
    def note(self) -> str:
        return f"{self.cells} calls, {self.elements:,} elements, {self.failures} wrong"

    def count(self, cell: Cell, *, wrong: bool, timed_out: bool) -> None:
        self.cells += 1
        self.elements += cell.size
        self.timeouts += timed_out
        self.wrong += wrong and not timed_out

    def count_packets(self, members: Members) -> None:
        """Add what a job's members have sent."""
        self.retransmissions += sum(comm.stats.retransmissions for comm in members.communicators)
        for transport in members.faulty:
            for name in ("packets", "dropped", "duplicated", "reordered"):
                setattr(self, name, getattr(self, name) + getattr(transport.counts, name))

    def figures(self) -> dict[str, Any]:
        found = super().figures()
        return {"calls": found.pop("cells"), "rounds": found.pop("jobs"), **found}
