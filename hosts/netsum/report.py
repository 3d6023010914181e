"""How a call went: what it got although somebody was late."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Report:
    """Counts blocks of data, each of at most ``block_bytes`` of lanes. Whole results on time: all but the first two and
    ``quantum`` are 0.

    Attributes:
        blocks: blocks of the call whose results have come or are lost.
        src_cnt_min: workers in the block that has the fewest; None before there is a result.
        degraded: blocks whose result is partial because a rank was late.
        late: blocks that were closed before this rank answered.
        missed: blocks whose result is without this rank's contribution: late, lost, or it had nothing to contribute.
        unfit: those of them that this rank could not contribute to, because the others had agreed on a scale that its
            values do not fit, before it came.
        skipped: blocks that were zeros on every rank, and were not sent.
        quantum: of sums and means of floats: the coarsest of the blocks' quanta. An element of a sum is off by at most n/2 of
            it (n with stochastic rounding), of a mean by 1/n of that. 0.0: exact, or nothing but zeros.
        lost: blocks whose result was gone before this rank asked for it.
        evicted: of an exchange or a product, the ranks that were evicted before it began: nothing of theirs is in it.
    """

    blocks: int = 0
    src_cnt_min: int | None = None
    degraded: int = 0
    late: int = 0
    missed: int = 0
    unfit: int = 0
    lost: int = 0
    skipped: int = 0
    quantum: float = 0.0
    evicted: tuple[int, ...] = ()

    def note_quantum(self, quantum: float) -> None:
        """Some of the call's blocks have a quantum of so much."""
        self.quantum = max(self.quantum, quantum)
