"""What a worker tells the soak, and what it has to know before it begins. All of it may travel between processes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from netsum.report import Report
from netsum.transports.faulty import FaultCounts
from netsum_testbed.link_ends import Opening
from netsum_testbed.verify.data import Array

from netsum_trials.soak.cases import Plan

JOIN_TIMEOUT: Final = 30.0
RESYNC_TIMEOUT: Final = 30.0
"""Seconds that a rank gives the others to come to a resync."""

ASKING: Final = 4.0
"""Seconds by which a call may outlast its timeout: one question to the controller about the epoch (1 s at most) and one about
whom the block waits for (3 s at most)."""
SCHEDULING: Final = 2.0
"""Seconds more, for a machine on which threads and switches wait for a processor."""
LATE: Final = ASKING + SCHEDULING
"""An error that comes more than this after the call's timeout is late."""


@dataclass(frozen=True)
class Posting:
    """A rank's post: what it joins and how. ``first``: nobody sat there before. ``spoil``: the scenario's packet faults are
    the transport's business."""

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
    """Something that a rank says, and ``when``: all processes of a machine have the same ``time.monotonic()``."""

    rank: int
    when: float = field(default_factory=time.monotonic, kw_only=True)


@dataclass(frozen=True)
class Joined(Word):
    """It has joined; nothing was called yet."""


@dataclass(frozen=True)
class Began(Word):
    """It begins a step and those before ``stop``, for so many seconds; ``when`` it has slept."""

    step: int
    timeout: float
    stop: int


@dataclass(frozen=True)
class Failure:
    """What a call raised: the error's name, whether it is netsum's, its text; whom a Timeout names."""

    name: str
    ours: bool
    text: str
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer(Word):
    """What a step came to. ``since``: the epoch in which this communicator last began anew; ``late``: seconds after the time
    that the call had, without those that the rank was made to stand still."""

    step: int
    since: int
    result: Array | None
    report: Report
    failure: Failure | None = None
    late: float = 0.0
    begun: float = 0.0


@dataclass(frozen=True)
class Resyncing(Word):
    """It joins again with all others."""


@dataclass(frozen=True)
class Resynced(Word):
    """It is in step again, after so many seconds; or it failed, and tries again. ``wrong``: the state that it took over is
    not what it should be."""

    seconds: float
    progress: int
    failure: Failure | None = None
    late: float = 0.0
    wrong: str = ""


@dataclass(frozen=True)
class Evicted(Word):
    """It heard that it was evicted, and waits to be admitted."""


@dataclass(frozen=True)
class Finished(Word):
    """It has made all calls and waits to be told whether that was all."""


@dataclass(frozen=True)
class Left(Word):
    """The last word: what it went through, in all epochs together."""

    counts: FaultCounts
    retransmissions: int
    resumes: int


@dataclass(frozen=True)
class Crashed(Word):
    """The worker itself failed, with this traceback."""

    trace: str
