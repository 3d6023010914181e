# SPDX-License-Identifier: MIT
"""Checks whether a round's errors are true: the soak knows what was done to whom, and who kept up and so must not be named.

Pure: everything carries its time, and is judged when the round is over.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from tests.system.faults.scenario import EventKind
from tests.system.soak.cases import RoundPlan
from tests.system.soak.messages import Answer, Began, Failure, Left, NotJoined, Resynced, Resyncing, WorkerMessage

MOMENT: Final = 1.0
"""Seconds by which reports may be late: a rank that began a step longer ago than this keeps up."""
BAD_LINK: Final = "bad_link"
BUSY: Final = "busy_machine"
_SETTLES: Final[dict[str, float]] = {EventKind.KILL: 15.0, EventKind.RESTART_SWITCH: 6.0, BUSY: 0.0}
"""Seconds for which a trouble may still have effects after it is over: a killed rank's successor starts and joins; a restarted
switch is noticed, loaded and joined again ..."""
_SETTLED: Final = 4.0
"""... and any other trouble: members ask again at least every two seconds."""
_CONTROLLER: Final = (EventKind.RESTART_CONTROLLER, EventKind.HANG_CONTROLLER)
_ENDS_EPOCHS: Final = (EventKind.KILL, EventKind.EVICT)
_NAMES: Final = re.compile(r"\branks? ((?:\d+, )*\d+)(?:, \.\.\.)? must still")


@dataclass
class Trouble:
    """Something done from ``begun`` to ``over`` to these ``ranks``, or (None) to all."""

    kind: str
    ranks: Collection[int] | None = None
    begun: float = -math.inf
    over: float = math.inf

    def felt(self, begun: float, ended: float) -> bool:
        """True if it may explain what a rank saw at that time."""
        return self.begun <= ended and begun <= self.over + _SETTLES.get(self.kind, _SETTLED)

    def of(self, rank: int) -> bool:
        """True if it concerns this rank."""
        return self.ranks is None or rank in self.ranks


@dataclass(frozen=True)
class _Time:
    """The steps that a rank was making; a resync has none, and ``stop`` 0."""

    begun: float
    start: int = 0
    stop: int = 0


@dataclass(frozen=True)
class _Error:
    """``step`` is None for a resync or joining. ``where`` says which, for people."""

    rank: int
    step: int | None
    failure: Failure
    begun: float
    ended: float
    where: str


class History:
    """Record of what was done in a round, and what its ranks said."""

    def __init__(self, plan: RoundPlan) -> None:
        self._plan = plan
        self.troubles: list[Trouble] = []
        self._times: dict[int, list[_Time]] = defaultdict(list)
        self._ended: dict[tuple[int, int], float] = {}  # (rank, step): when it had the result
        self._errors: list[_Error] = []
        self._left: dict[int, float] = {}

    def begins(self, kind: str, ranks: Collection[int] | None, when: float) -> Trouble:
        """Record a trouble that is not over yet."""
        self.troubles.append(Trouble(kind, ranks, when))
        return self.troubles[-1]

    @property
    def evicted(self) -> set[int]:
        """Ranks that were evicted at some time."""
        return {rank for each in self.troubles if each.kind == EventKind.EVICT for rank in each.ranks or ()}

    def busy(self, begun: float, ended: float) -> float:
        """Seconds within that time in which the ranks got no processor."""
        spans = [(each.begun, each.over) for each in self.troubles if each.kind == BUSY]
        return sum(max(0.0, min(over, ended) - max(since, begun)) for since, over in spans)

    def take(self, message: WorkerMessage) -> None:
        """Record a rank's word."""
        rank = message.rank
        match message:
            case Began():
                self._times[rank].append(_Time(message.when, message.step, message.stop))
            case Resyncing():
                self._times[rank].append(_Time(message.when))
            case Left():
                self._left[rank] = message.when
            case Answer(failure=None):
                self._ended[rank, message.step] = message.when
            case Answer(failure=failure):
                assert failure is not None
                self._errors.append(_Error(rank, message.step, failure, message.begun, message.when, f"call {message.step}"))
            case Resynced(failure=Failure() as failure):
                self._errors.append(_Error(rank, None, failure, message.begun, message.when, "resync"))
            case NotJoined(failure=failure):
                self._errors.append(_Error(rank, None, failure, message.begun, message.when, "join"))

    def complaints(self) -> Iterator[str]:
        """Find what is wrong with the errors, in the order in which they came."""
        for error in sorted(self._errors, key=lambda error: error.ended):
            if not error.failure.ours:
                continue  # counted elsewhere
            for line in self._complaints(error):
                yield f"rank {error.rank}, {error.where}: {line}: {error.failure.name}: {error.failure.text}{self._around(error)}"

    def _around(self, error: _Error) -> str:
        """List what was happening, in seconds relative to the error."""
        told = [
            f"{each.kind} of {'all' if each.ranks is None else sorted(each.ranks)} "
            f"{each.begun - error.ended:+.1f}..{each.over - error.ended:+.1f}"
            for each in self.troubles
            if each.kind != BAD_LINK and each.begun <= error.ended
        ]
        return f" (called {error.ended - error.begun:.1f} s ago; {'; '.join(told) or 'nothing had happened'})"

    def _complaints(self, error: _Error) -> Iterator[str]:
        name = error.failure.name
        rule = {
            "CallTimeoutError": self._timeout,
            "NotReadyError": self._not_ready,
            "DesynchronizedError": self._desynchronized,
            "ResultLostError": self._late,
            "DegradedError": self._late,
            "AbortedError": self._aborted,
            "EvictedError": self._evicted,
            "ClosedError": self._closed,
        }.get(name)
        if rule is None:
            yield f"{name} should not have been raised"
            return
        yield from rule(error)
        yield from self._words(error)

    def _felt(self, error: _Error, rank: int | None = None, *, since: float | None = None) -> bool:
        """True if anything was done that may explain the error: to any rank or, if ``rank`` is given, to it or to all. Calls
        do not need the controller."""
        begun = error.begun if since is None else min(since, error.begun)
        troubles = [each for each in self.troubles if error.step is None or each.kind not in _CONTROLLER]
        return any(each.felt(begun, error.ended) for each in troubles if rank is None or each.of(rank)) or self._resynced(error)

    def _resynced(self, error: _Error) -> bool:
        """True if another rank resynced meanwhile, so that all had to start over."""
        if error.step is None:
            return False
        since = max(self._in_step_since(error), error.begun - MOMENT)
        return any(since < each.begun < error.ended for each in self._resyncs(error.rank))

    def _in_step_since(self, error: _Error) -> float:
        """Time at which the rank began its last resync before the error."""
        begun = [each.begun for each in self._times[error.rank] if not each.stop and each.begun < error.ended]
        return max(begun, default=-math.inf)

    def _timeout(self, error: _Error) -> Iterator[str]:
        named = error.failure.missing
        behind_one = any(self._felt(error, rank) for rank in named)
        for rank in named:
            if why := self._keeps_up(error, rank, behind_one=behind_one):
                yield f"rank {rank} is named, and {why}"

    def _keeps_up(self, error: _Error, rank: int, *, behind_one: bool) -> str:
        """Say why a rank should not have been named; empty if it may be. ``behind_one``: others that were held up are named."""
        if self._felt(error, rank):
            return ""
        if rank == error.rank:
            return "it is the one that raises"
        moment = error.ended - MOMENT
        begun = [each for each in self._times[rank] if each.begun <= moment]
        at = begun[-1] if begun else None
        if error.step is None:
            if at is not None and not at.stop:
                return "it was in its resync, too"
        elif at is not None and at.stop:
            if at.start > error.step or self._ended.get((rank, error.step), math.inf) <= moment:
                return "it had gone on"
            if at.stop > error.step:
                return "" if behind_one else "it was in the same call"
        held = self._felt(error, since=at.begun if at is not None else None)
        return "" if held else "nothing had happened to any rank"

    def _not_ready(self, error: _Error) -> Iterator[str]:
        if not self._felt(error) and not any(each.begun <= error.ended for each in self._resyncs(error.rank)):
            yield "nothing had happened for which the controller would make it wait"

    def _resyncs(self, rank: int) -> Iterator[_Time]:
        """The other ranks' resyncs."""
        for other, times in self._times.items():
            yield from (each for each in times if other != rank and not each.stop)

    def _desynchronized(self, error: _Error) -> Iterator[str]:
        ends = _ENDS_EPOCHS + ((EventKind.RESTART_SWITCH,) if self._plan.degrades else ())
        since = self._in_step_since(error)
        if any(each.kind in ends and each.felt(since, error.ended) for each in self.troubles):
            return
        if any(since - MOMENT <= each.begun <= error.ended for each in self._resyncs(error.rank)):
            return
        if self._plan.degrades and "this rank was so late" in error.failure.text:
            return  # about itself; a few milliseconds count as late there
        yield "nothing had happened that ends an epoch"

    def _late(self, error: _Error) -> Iterator[str]:
        step = None if error.step is None or error.step >= len(self._plan.steps) else self._plan.steps[error.step]
        if not self._plan.degrades:
            yield "this job waits for every rank"
        elif error.step is None:
            yield "a resync waits for every rank"
        elif error.failure.name == "DegradedError" and (step is None or step.late != "raise"):
            yield "the call had not asked for it"

    def _aborted(self, error: _Error) -> Iterator[str]:
        if error.step is None:
            sources: Collection[int] = range(self._plan.workers)
        elif error.step < len(self._plan.steps):
            sources = self._plan.steps[error.step].needs
        else:
            sources = ()
        if not self.evicted.intersection(sources):
            yield "no rank gave it up, and no contributor to it was evicted"

    def _evicted(self, error: _Error) -> Iterator[str]:
        before = (each for each in self.troubles if each.kind == EventKind.EVICT and each.begun <= error.ended)
        if not any(each.of(error.rank) for each in before):
            yield "it was not"

    def _closed(self, error: _Error) -> Iterator[str]:
        before = (each for each in self._errors if each is not error and each.ended <= error.ended)
        if not any(each.rank == error.rank for each in before):
            yield "no error had ended it"

    def _words(self, error: _Error) -> Iterator[str]:
        """Check what the error's text says of other ranks."""
        text = error.failure.text
        for rank in map(int, re.findall(r"rank (\d+) was evicted", text)):
            if rank not in self.evicted:
                yield f"rank {rank} was not evicted"
        for rank in map(int, re.findall(r"rank (\d+)(?: \(\w+\))?, which has left", text)):
            if self._left.get(rank, math.inf) > error.ended and not any(
                each.begun <= error.ended for each in self._resyncs(error.rank)
            ):
                yield f"rank {rank} had not left"
        for rank in (int(message) for ranks in _NAMES.findall(text) for message in ranks.split(", ")):
            if rank not in error.failure.missing and (why := self._keeps_up(error, rank, behind_one=False)):
                yield f"rank {rank} is said to be waited for, and {why}"
