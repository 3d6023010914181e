"""What an algorithm is: who sends which rows to whom, in which order, and what is done with what comes.

A *batch* has rows; a row is one rank's contribution to one block, and combined with the other ranks' it becomes the block's
result. Ranks are numbered 0..workers-1 here: those that are present, in order. A plan is one rank's part of an algorithm. The
plans of all ranks fit together when, between each two of them, the receives of one are the sends of the other, in the same order
and with the same rows.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

Rows = tuple[int, ...]
"""Numbers of rows of the batch, ascending."""


class Mode(enum.Enum):
    """What is done with rows that come: combined with our own by the blocks' operation, or taken in place of our own."""

    COMBINE = "combine"
    TAKE = "take"


@dataclass(frozen=True, slots=True)
class Send:
    """``rows`` go to ``peer``; of those in ``bare`` the header only."""

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
    """First the sends, of the rows as they are when the round begins; then the receives, in this order whatever the order in
    which they come. The next round begins when all of them are there; sends are waited for by nobody.

    Rounds are a rank's own affair: the number of another rank's round need not be the same.
    """

    sends: tuple[Send, ...] = ()
    receives: tuple[Receive, ...] = ()

    @classmethod
    def of(cls, sends: Iterable[Send], receives: Iterable[Receive]) -> Round:
        """The round without what has no rows."""
        return cls(tuple(each for each in sends if each.rows), tuple(each for each in receives if each.rows))


@dataclass(frozen=True, slots=True)
class Plan:
    """One rank's part. Afterwards it holds every row's finished header, and the payload of those rows that it is to get."""

    rounds: tuple[Round, ...] = ()

    @classmethod
    def of(cls, rounds: Iterable[Round]) -> Plan:
        """The plan without rounds in which nothing happens."""
        return cls(tuple(each for each in rounds if each.sends or each.receives))
