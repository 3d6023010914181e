"""What an algorithm consists of: who sends which rows to whom, in which order, and what the receiver does with them.

A *batch* has rows; a row is one rank's contribution to one block, and combined with the other ranks' it becomes the block's
result. Ranks are numbered 0..workers-1 here: those that are present, in order. A plan is one rank's part of an algorithm. The
plans of all ranks match when, for any two ranks, the receives of one are the sends of the other, in the same order and with the
same rows.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

Rows = tuple[int, ...]
"""Numbers of rows, ascending."""


class Mode(enum.Enum):
    """What happens to rows that arrive: they are combined with our own by the blocks' operation, or replace them."""

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
    arrive in. The next round begins when all have arrived; nobody waits for sends. Different ranks need not have the same
    rounds."""

    sends: tuple[Send, ...] = ()
    receives: tuple[Receive, ...] = ()

    @classmethod
    def of(cls, sends: Iterable[Send], receives: Iterable[Receive]) -> Round:
        """The round, without sends and receives of no rows."""
        return cls(tuple(each for each in sends if each.rows), tuple(each for each in receives if each.rows))


@dataclass(frozen=True, slots=True)
class Plan:
    """One rank's part. At its end the rank holds every row's finished header, and the payloads of the rows that it gets."""

    rounds: tuple[Round, ...] = ()

    @classmethod
    def of(cls, rounds: Iterable[Round]) -> Plan:
        """The plan, without empty rounds."""
        return cls(tuple(each for each in rounds if each.sends or each.receives))
