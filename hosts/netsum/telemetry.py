# SPDX-License-Identifier: MIT
"""A member's reports about itself: each call as it ends, and the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from netsum.descriptor import Descriptor
from netsum.errors import CallTimeoutError, ClosedError, DegradedError, EvictedError, outcome_of
from netsum.logs import FieldLogger, Seldom, logger_for
from netsum.report import Report
from netsum.stats import Stats
from netsum.text import counted

FAULTS: Final = (
    *("retransmissions", "duplicates", "stale", "refused", "malformed", "redone"),
    *("degraded", "late", "lost", "resumes"),
)
"""The counts of :class:`netsum.Stats` that stay 0 as long as nothing goes wrong."""


class CallEnd(NamedTuple):
    """A call that has ended.

    Attributes:
        collective: ``allreduce``, ``broadcast`` and so on.
        seconds: its duration.
        nbytes: size of this rank's array.
        error: what it raises; None if it has a result.
        report: how its blocks went.
    """

    collective: str
    seconds: float
    nbytes: int
    error: BaseException | None
    report: Report

    @property
    def outcome(self) -> str:
        """``ok``, ``partial`` (a late rank's part is missing), or the error's name: ``call_timeout``, ``mismatch``, ..."""
        if self.error is not None:
            return outcome_of(self.error)
        return "partial" if self.report.partial else "ok"


Watcher = Callable[[CallEnd], None]


class MemberLog:
    """The log of one member. Frequent events are logged only now and then."""

    def __init__(self, job: str | None, rank: int | None, seldom: Seldom | None = None) -> None:
        self.member = f"job {job}, rank {rank}"
        self._log: FieldLogger = logger_for(job, rank)
        self._seldom = seldom or Seldom()
        self._open = False

    def joined(self, descriptor: Descriptor) -> None:
        self._open = True
        self._log = logger_for(descriptor.job, descriptor.rank, epoch=descriptor.epoch)
        self._log.info(
            "joined job %s as rank %d of %d, epoch %d, over %s",
            *(descriptor.job, descriptor.rank, descriptor.workers, descriptor.epoch),
            _path(descriptor),
        )

    def resync(self) -> None:
        self._log.info("resync: joining again, together with all other ranks")

    def requests(self, block: int, reason: str) -> None:
        self._log.info("the switch refuses block %d (%s): querying the controller", block, reason, extra={"block": block})

    def resumed(self, descriptor: Descriptor) -> None:
        block = descriptor.first_block_id
        what = "the switch restarted" if descriptor.by_switch else "without a switch"
        self._log = self._log.with_fields(epoch=descriptor.epoch)
        self._log.warning("%s: resumes at block %d, epoch %d", what, block, descriptor.epoch, extra={"block": block})

    def selected(self, text: str) -> None:
        """Report the way that calls of some size go."""
        self._log.info("%s", text)

    def multicast_lost(self, results: int) -> None:
        """Report that results come by unicast from now on."""
        self._log.warning(
            "%d results in a row have not come by IP multicast: they come by unicast from now on (is there a router on the way, "
            "or a switch that snoops on IGMP in a network without a querier?)",
            results,
        )

    def failed(self, error: BaseException) -> None:
        extra = {}
        if isinstance(error, CallTimeoutError):
            extra = {"block": error.block_id, "missing": list(error.missing)}
        if isinstance(error, EvictedError):
            self._log.warning("evicted: %s", error)
        elif not isinstance(error, ClosedError):
            self._log.error("%s: %s", type(error).__name__, error, extra=extra)

    def call_ended(self, call: CallEnd) -> None:
        """Report partial results, at most once in ten seconds."""
        report = call.report
        if not report.partial or not isinstance(call.error, DegradedError | None):
            return
        held = self._seldom.due()
        if held is None:
            return
        more = f"; so {'was' if held == 1 else 'were'} {counted(held, 'call')} before it" if held else ""
        self._log.warning(
            f"%s: %d of %d blocks are partial, %d without this rank's part, %d lost{more}",
            *(call.collective, report.degraded, report.blocks, report.missed, report.lost),
            extra={"degraded": report.degraded, "missed": report.missed, "lost": report.lost},
        )

    def closed(self, stats: Stats) -> None:
        """Log, at level DEBUG, what went wrong on the way."""
        if not self._open:
            return
        self._open = False
        faults = {name: getattr(stats, name) for name in FAULTS if getattr(stats, name)}
        words = ", ".join(f"{count} {name}" for name, count in faults.items())
        self._log.debug("closed after %d blocks: %s", stats.blocks, words or "no faults", extra={"faults": faults})


def _path(descriptor: Descriptor) -> str:
    """The path of a member's contributions, in words."""
    if not descriptor.by_switch:
        return f"peers ({descriptor.algorithm})"
    if not descriptor.shares_source:
        return descriptor.link.kind
    ranks = ", ".join(map(str, descriptor.local_ranks))
    return f"memory shared by ranks {ranks} of this host, and {descriptor.link.kind} of rank {descriptor.leader}"
