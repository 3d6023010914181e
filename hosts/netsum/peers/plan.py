"""What an algorithm is: who sends which rows to whom, in which order, and what is done with what comes.

A *batch* has rows; a row is one rank's contribution to one block, and combined with the other ranks' it becomes the block's
result. Members are numbered 0..workers-1 here: the ranks that are present, in order. A plan is one member's part of an
algorithm. The plans of all members fit together when, between each two of them, the receives of one are the sends of the other
in the same order and with the same rows.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Mode(enum.Enum):
    """What is done with rows that come: combined with our own by the blocks' operation, or taken in place of our own."""

    COMBINE = "combine"
    TAKE = "take"


@dataclass(frozen=True, slots=True)
class Send:
    """Rows ``start`` to ``stop`` (not empty) go to ``peer``."""

    peer: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Receive:
    """Rows ``start`` to ``stop`` (not empty) come from ``peer``."""

    peer: int
    start: int
    stop: int
    mode: Mode


@dataclass(frozen=True, slots=True)
class Round:
    """First the sends, of the rows as they are when the round begins; then the receives, in this order whatever the order in
    which they come. The next round begins when all of them are there; sends are waited for by nobody.

    Rounds are a member's own affair: the number of another member's round need not be the same.
    """

    sends: tuple[Send, ...] = ()
    receives: tuple[Receive, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """One member's part. Afterwards it holds the finished rows that the algorithm brings it: all of them in an allreduce."""

    rounds: tuple[Round, ...] = ()
