"""What plans know of a batch's rows: of each, which rank its result is for, and which rank's payload it is.

EVERYONE as a row's dest is a result for all ranks; as its source, a row to which every rank may contribute (else the others'
contributions are empty, and travel as headers).
"""

from __future__ import annotations

from netsum.peers.plan import Plan, Receive, Round, Rows, Send
from netsum.wire.schema import EVERYONE

Ranks = tuple[int, ...]
"""A rank, or EVERYONE, for each row."""


def owner(dest: int, source: int) -> int:
    """The rank at which a row is best put together: the one that is to have it, else the one that has it; EVERYONE: any."""
    return source if dest == EVERYONE else dest


def owners(workers: int, dests: Ranks, sources: Ranks) -> tuple[Rows, ...]:
    """The rows of each rank, ascending. Those that may be put together anywhere are dealt out, a stretch to each rank, so that
    no rank has more than one more of them than another."""
    owned: list[list[int]] = [[] for _ in range(workers)]
    free: list[int] = []
    for row, (dest, source) in enumerate(zip(dests, sources, strict=True)):
        rank = owner(dest, source)
        (free if rank == EVERYONE else owned[rank]).append(row)
    for rank in range(workers):
        owned[rank] += free[len(free) * rank // workers : len(free) * (rank + 1) // workers]
    return tuple(tuple(sorted(rows)) for rows in owned)


def bare(rows: Rows, dests: Ranks, behind: frozenset[int] = frozenset()) -> Rows:
    """Those of ``rows`` whose result is for none of the ranks ``behind``: a header is enough there."""
    return tuple(row for row in rows if dests[row] != EVERYONE and dests[row] not in behind)


def only(plan: Plan, rows: Rows) -> Plan:
    """A plan for a batch of ``len(rows)`` rows as one for these rows of a larger batch."""

    def of(numbers: Rows) -> Rows:
        return tuple(rows[number] for number in numbers)

    return Plan(
        tuple(
            Round(
                tuple(Send(send.peer, of(send.rows), of(send.bare)) for send in one.sends),
                tuple(Receive(receive.peer, of(receive.rows), receive.mode) for receive in one.receives),
            )
            for one in plan.rounds
        )
    )
