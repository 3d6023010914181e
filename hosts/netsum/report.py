# SPDX-License-Identifier: MIT
"""The report on a call: what its results lack because a rank was late."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Report:
    """Counts blocks of data, each of at most ``block_bytes`` of lanes. If every result is whole and on time, everything but
    ``blocks``, ``min_worker_cnt`` and ``quantum`` is 0.

    Attributes:
        blocks: blocks of the call whose results have arrived or are lost.
        min_worker_cnt: workers in the block that has the fewest; None before there is a result.
        degraded: blocks whose result is partial because a rank was late.
        late: blocks that were closed before this rank answered.
        missed: blocks whose result lacks this rank's contribution: late, lost, or it had nothing to contribute.
        overflowed: of these, the blocks that this rank could not contribute to because the others had already agreed on a scale
            that its values do not fit.
        skipped: blocks that were zeros on every rank and were not sent.
        quantum: for sums and means of floats, the coarsest of the blocks' quanta. An element of a sum is off by at most n/2
            quanta (n with stochastic rounding), of a mean by 1/n of that. 0.0 if the result is exact.
        lost: blocks whose result was gone before this rank asked for it.
        evicted: for an exchange or a product, the ranks evicted before it began, whose data it lacks.
    """

    blocks: int = 0
    min_worker_cnt: int | None = None
    degraded: int = 0
    late: int = 0
    missed: int = 0
    overflowed: int = 0
    lost: int = 0
    skipped: int = 0
    quantum: float = 0.0
    evicted: tuple[int, ...] = ()

    @property
    def partial(self) -> bool:
        """True if the result lacks a late rank's part."""
        return self.degraded > 0 or self.lost > 0

    def include(self, part: Report) -> None:
        """Add the report on a part of the call."""
        counts = [each.min_worker_cnt for each in (self, part) if each.min_worker_cnt is not None]
        self.min_worker_cnt = min(counts, default=None)
        for name in ("blocks", "degraded", "late", "missed", "overflowed", "lost", "skipped"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        self.note_quantum(part.quantum)

    def note_quantum(self, quantum: float) -> None:
        self.quantum = max(self.quantum, quantum)
