"""Binomial tree: up to one rank and down again, for rows that are put together at one rank.

Source: R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication operations in MPICH, Int. J. High
Performance Computing Applications 19 (2005): reduce and broadcast.

Ranks are numbered from the root on. The parent of number v is v without its lowest one bit, and its children are v + 1, v + 2,
v + 4 ... as long as what is added is below that bit. Rows for the root come back as headers; what goes up of rows from the
root are headers.

Cost: 2 floor(log2 n) steps. Of rows for the root every other rank sends R. Of rows from the root a rank sends R to each
child, the root to ceil(log2 n) of them.
"""

from __future__ import annotations

from netsum.peers.plan import Mode, Plan, Receive, Round, Rows, Send
from netsum.peers.plans.rows import Ranks, bare


def plan(rank: int, workers: int, dests: Ranks, root: int) -> Plan:
    """One rank's part. No row is for one rank alone but for the root."""
    rows: Rows = tuple(range(len(dests)))
    number = (rank - root) % workers
    bit = number & -number if number else 1 << workers.bit_length()
    parents = [(number - bit + root) % workers] if number else []
    children = []
    step = 1
    while step < bit and number + step < workers:
        children.append((number + step + root) % workers)
        step *= 2
    headers = bare(rows, dests)
    return Plan.of(
        [
            Round.of([], [Receive(child, rows, Mode.COMBINE) for child in children]),
            Round.of(
                [Send(parent, rows) for parent in parents], [Receive(parent, rows, Mode.TAKE) for parent in parents]
            ),
            # First to the child that has the most below it.
            Round.of([Send(child, rows, headers) for child in reversed(children)], []),
        ]
    )
