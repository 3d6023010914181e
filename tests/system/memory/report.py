"""The totals of a run of ``memory-check``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from netsum_testbed.checking import Totals

from tests.system.memory.history import Finding


@dataclass
class MemoryTotals(Totals):
    """Counts.

    Attributes:
        operations: instructions that were answered; ``histories``: of so many places.
        wrong: histories that no serial order explains, refusals that should not be, replicas that differ.
        lost, doubled: acknowledged changes that are nowhere to be seen, or that were done twice.
        undecided: histories with too many possible orders.
        hangs: instructions without an answer in time.
        faults: what was done to packets, and events, by kind.
    """

    rounds: int = 0
    operations: int = 0
    histories: int = 0
    wrong: int = 0
    lost: int = 0
    doubled: int = 0
    undecided: int = 0
    hangs: int = 0
    bytes: int = 0
    retransmissions: int = 0
    instructions: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def found(self, finding: Finding) -> None:
        """Count what is wrong with a history."""
        name = finding.value
        setattr(self, name, getattr(self, name) + 1)

    @property
    def made(self) -> int:
        return self.operations

    @property
    def failures(self) -> int:
        return self.wrong + self.lost + self.doubled + self.undecided + self.hangs

    @property
    def note(self) -> str:
        return f"{self.operations:,} operations, {self.wrong} wrong, {self.lost} lost, {self.doubled} doubled"

    def figures(self) -> dict[str, Any]:
        first = {name: getattr(self, name) for name in ("operations", "wrong", "lost", "doubled")}
        counted = {name: dict(sorted(getattr(self, name).items())) for name in ("instructions", "faults")}
        return first | super().figures() | counted
