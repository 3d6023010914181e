# SPDX-License-Identifier: MIT
"""The plan of an algorithm without a switch: each rank's sends and receives of a batch's rows, in order."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from netsum.wire.schema import EVERYONE

# What an algorithm consists of: who sends which rows to whom, in which order, and what the receiver does with them.
#
# A *batch* has rows; a row is one rank's contribution to one block, and combined with the other ranks' it becomes the
# block's result. Ranks are numbered 0..workers-1 here: those that are present, in order. A plan is one rank's part of
# an algorithm. The plans of all ranks match when, for any two ranks, the receives of one are the sends of the other, in
# the same order and with the same rows.


Rows = tuple[int, ...]
"""Numbers of rows, ascending."""


class Mode(enum.Enum):
    """The treatment of rows that arrive: they are combined with our own by the blocks' operation, or replace them."""

    COMBINE = "combine"
    TAKE = "take"


@dataclass(frozen=True, slots=True)
class Send:
    """``rows`` go to ``peer``, those in ``bare`` as headers only."""

    peer: int
    rows: Rows
    bare: Rows = ()


@dataclass(frozen=True, slots=True)
class Receive:
    """``rows`` come from ``peer``."""

    peer: int
    rows: Rows
    mode: Mode


@dataclass(frozen=True, slots=True)
class Round:
    """First the sends, of the rows as they are when the round begins; then the receives, in this order whatever order they
    arrive in. The next round begins when all have arrived; no rank waits for sends. Different ranks need not have the same
    rounds."""

    sends: tuple[Send, ...] = ()
    receives: tuple[Receive, ...] = ()

    @classmethod
    def of(cls, sends: Iterable[Send], receives: Iterable[Receive]) -> Round:
        """The round, without sends and receives of no rows."""
        return cls(tuple(each for each in sends if each.rows), tuple(each for each in receives if each.rows))


@dataclass(frozen=True, slots=True)
class PeerPlan:
    """One rank's part. At its end the rank holds every row's finished header, and the payloads of the rows that it gets."""

    rounds: tuple[Round, ...] = ()

    @classmethod
    def of(cls, rounds: Iterable[Round]) -> PeerPlan:
        """The plan, without empty rounds."""
        return cls(tuple(each for each in rounds if each.sends or each.receives))


# What plans know of a batch's rows: of each, which rank its result is for, and which rank's payload it is.
#
# EVERYONE as a row's dest is a result for all ranks; as its source, a row to which every rank may contribute (else the
# others' contributions are empty, and travel as headers).


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


def only(plan: PeerPlan, rows: Rows) -> PeerPlan:
    """A plan for a batch of ``len(rows)`` rows as one for these rows of a larger batch."""

    def of(numbers: Rows) -> Rows:
        return tuple(rows[number] for number in numbers)

    return PeerPlan(
        tuple(
            Round(
                tuple(Send(send.peer, of(send.rows), of(send.bare)) for send in one.sends),
                tuple(Receive(receive.peer, of(receive.rows), receive.mode) for receive in one.receives),
            )
            for one in plan.rounds
        )
    )
