"""What a worker tells the soak, and what it must know before it begins. All of it may pass between processes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from netsum.report import Report
from netsum.transports.impairment import ImpairmentCounts
from netsum_testbed.links import Opening
from netsum_testbed.verify.data import Array

from netsum_trials.soak.cases import Plan

JOIN_TIMEOUT: Final = 30.0
"""Seconds within which the controller must let a rank in."""
RESYNC_TIMEOUT: Final = 30.0
"""Seconds that a rank waits for the others in a resync."""

ASKING: Final = 4.0
"""Seconds by which a call may outlast its timeout: one question to the controller about the epoch (1 s at most) and one about
whom the block waits for (3 s at most)."""
SCHEDULING: Final = 2.0
"""Additional seconds, for a machine on which threads and switches wait for a processor."""
LATE: Final = ASKING + SCHEDULING
"""An error is late if it comes more than this after the call's timeout."""


@dataclass(frozen=True)
class Posting:
    """What a worker needs to join as a rank. ``first``: it is the rank's first worker, not the successor of a killed one.
    ``spoil``: its transport applies the scenario's packet faults."""

    plan: Plan
    rank: int
    job: str
    token: str
    controller: str
    opening: Opening
    first: bool = True
    spoil: bool = True


@dataclass(frozen=True)
class Word:
    """Something that a rank says, and ``when``; all processes of a machine share ``time.monotonic()``."""

    rank: int
    when: float = field(default_factory=time.monotonic, kw_only=True)


@dataclass(frozen=True)
class Joined(Word):
    """The rank has joined and made no call yet."""


@dataclass(frozen=True)
class Began(Word):
    """It begins the steps from ``step`` up to ``stop``, each with that timeout, after its sleep (``when``)."""

    step: int
    timeout: float
    stop: int


@dataclass(frozen=True)
class Failure:
    """What a call raised: the error's name, whether it is netsum's, its text, and whom a CallTimeoutError names."""

    name: str
    ours: bool
    text: str
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class NotJoined(Word):
    """The controller did not let it in; it first asked at ``begun`` and asks again."""

    failure: Failure
    begun: float


@dataclass(frozen=True)
class Answer(Word):
    """The outcome of a step. ``since``: the epoch in which the communicator last started over; ``late``: seconds past the call's
    timeout, minus those for which the rank was stalled."""

    step: int
    since: int
    result: Array | None
    report: Report
    begun: float
    failure: Failure | None = None
    late: float = 0.0


@dataclass(frozen=True)
class Resyncing(Word):
    """It starts a resync."""


@dataclass(frozen=True)
class Resynced(Word):
    """Its resync has ended; after a ``failure`` it tries again. ``wrong``: a complaint about the state that it took over."""

    begun: float
    failure: Failure | None = None
    late: float = 0.0
    wrong: str = ""


@dataclass(frozen=True)
class Evicted(Word):
    """It heard that it was evicted, and waits to be admitted."""


@dataclass(frozen=True)
class Finished(Word):
    """It has made all calls and waits for orders."""


@dataclass(frozen=True)
class Left(Word):
    """Its last word, with counts over all epochs."""

    counts: ImpairmentCounts
    retransmissions: int
    resumes: int


@dataclass(frozen=True)
class Crashed(Word):
    """The worker itself failed, with this traceback."""

    trace: str
