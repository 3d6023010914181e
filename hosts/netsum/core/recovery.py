# SPDX-License-Identifier: MIT
"""Recovery when results stop: query the controller, continue in another epoch or fail the calls, and explain timeouts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from netsum.controller_http import BackgroundRequest
from netsum.core.blocks import BlockRejected
from netsum.core.endpoint import BlockedOn, Endpoint, Waits
from netsum.core.progress import Work
from netsum.descriptor import Descriptor
from netsum.errors import CallTimeoutError, CommunicatorError, NetsumError, NotReadyError, RankLeftError
from netsum.transports.base import Transport
from netsum.wire.schema import Outcome

# When a member receives nothing new, the job may have moved on without it.


PATIENCE: Final = 1.0
"""Seconds that a block waits for its result before the controller is queried."""
MAX_PATIENCE: Final = 4.0
JITTER: Final = 0.01
"""Seconds for each rank of the job, up to which a rank waits longer, at random: otherwise all ranks would query at once."""
POLL_INTERVAL: Final = 5.0
"""Seconds between two queries of one member for all in a job without a switch, where no member is refused."""


class InactivityTimer:
    """The timer of the queries: after a while without results, then after twice as long, up to a cap. ``last_progress`` is when
    the last awaited result arrived, or the waiting began."""

    def __init__(self, ranks: int = 0, seed: int | None = None) -> None:
        """``ranks`` of the job."""
        self.last_progress = 0.0
        self._base = -1
        self._since = 0.0
        self._patience = PATIENCE
        self._spread = ranks * JITTER
        self._random = random.Random(seed)
        self._extra = self._random.uniform(0.0, self._spread)
        self._polled = time.monotonic()

    def expired(self, base: int, now: float, *, waiting: bool) -> bool:
        """True if the caller should query now. All results below ``base`` are held; ``waiting`` says whether more are awaited."""
        if base != self._base or not waiting:
            self._base, self._since, self._patience = base, now, PATIENCE
            self.last_progress = now
            return False
        if now - self._since < self._patience + self._extra:
            return False
        self._since, self._patience = now, min(2 * self._patience, MAX_PATIENCE)
        self._extra = self._random.uniform(0.0, self._spread)
        return True

    def poll_due(self, now: float) -> bool:
        """True if the caller should query although nothing is amiss, because a job without a switch may have been given one."""
        if now - self._polled < POLL_INTERVAL:
            return False
        self._polled = now
        return True


# The message of a CallTimeoutError: how far the call came, and whom it waits for if that is known.
#
# A rank is named only on evidence: a block has waited for a while, and the switch's record lacks the rank, or the rank
# answers no rank. As long as results arrive, no rank is late: the call was too large for its timeout.


LATE_AFTER: Final = 1.0
"""Seconds without a result (or half the call's timeout, if that is less) after which a rank counts as late."""
REPLY_TIMEOUT: Final = 3.0
"""Seconds that the controller has to reply for whom a block waits."""


class TimeoutDiagnosis:
    """Explains one communicator's timeouts. ``explain(block_id)`` queries the controller for whom a block waits."""

    def __init__(self, explain: Callable[[int], BlockedOn] | None) -> None:
        self._explain = explain
        self._early: BackgroundRequest[BlockedOn] | None = None
        self._late: tuple[tuple[int, tuple[int, ...]], BackgroundRequest[BlockedOn]] | None = None
        """The query for a block, after these ranks had left."""

    def query_early(self, work: Work[Any], endpoint: Endpoint, inactivity: InactivityTimer, now: float) -> None:
        """Query ahead of the deadline, if there is time: no call then waits for a controller that does not answer."""
        if (
            work.timeout is None
            or work.deadline is None
            or work.timeout < 2 * REPLY_TIMEOUT
            or now < work.deadline - REPLY_TIMEOUT
        ):
            return
        if self._early is None and self._waits(work, endpoint, inactivity, now):
            self._early = self._request(endpoint, now)

    def _waits(self, work: Work[Any], endpoint: Endpoint, inactivity: InactivityTimer, now: float) -> bool:
        assert work.timeout is not None
        return endpoint.base < endpoint.next_serial and now - inactivity.last_progress >= min(LATE_AFTER, work.timeout / 2)

    def _request(self, endpoint: Endpoint, now: float) -> BackgroundRequest[BlockedOn] | None:
        explain, block = self._explain, endpoint.block_id(endpoint.base)
        return None if explain is None or endpoint.explain(now) is not None else BackgroundRequest(lambda: explain(block))

    def error(self, work: Work[Any], endpoint: Endpoint, inactivity: InactivityTimer, now: float) -> CallTimeoutError:
        """The error of a call that has timed out; waits for the reply, at most :data:`REPLY_TIMEOUT`."""
        within = f"within {work.timeout:g} s"
        progress = work.progress.describe(endpoint.block_id(endpoint.base))
        if endpoint.base == endpoint.next_serial:
            return CallTimeoutError("; ".join(filter(None, [f"the call did not end {within}", progress])))
        block = endpoint.block_id(endpoint.base)
        sentence, missing = self._blocked_on(work, endpoint, inactivity, now)
        reasons = [f"no result for block {block} (generation {work.gen}) {within}", progress, sentence, _nothing_came(endpoint)]
        return CallTimeoutError("; ".join(filter(None, reasons)), block, missing)

    def _blocked_on(self, work: Work[Any], endpoint: Endpoint, inactivity: InactivityTimer, now: float) -> BlockedOn:
        if not self._waits(work, endpoint, inactivity, now):
            return "results were still arriving: it needs more time", ()
        known = endpoint.explain(now)
        if known is not None:
            return known
        early, self._early = self._early, None
        if early is not None and not early.done():
            return _UNKNOWN
        query = self._request(endpoint, now)  # the early reply may no longer be true
        if query is None:
            return "", ()
        return query.result() if query.done(REPLY_TIMEOUT) else _UNKNOWN

    def status(self, work: Work[Any], endpoint: Endpoint, inactivity: InactivityTimer, now: float) -> Callable[[], str]:
        """Return a function that says what a call waits for; it queries the controller, if only that knows."""
        block, silent = endpoint.block_id(endpoint.base), now - inactivity.last_progress
        reasons = [f"{work.progress.describe(block) or 'a call'}, in progress for {now - work.begun:.1f} s"]
        query: Callable[[], BlockedOn] | None = None
        if endpoint.base < endpoint.next_serial:
            reasons += [f"no result for block {block} (generation {work.gen}) for {silent:.1f} s", _nothing_came(endpoint)]
            if silent >= LATE_AFTER:
                known, explain = endpoint.explain(now), self._explain
                if known is not None:
                    reasons.append(known[0])
                elif explain is not None:
                    query = partial(explain, block)
        return lambda: "; ".join(filter(None, [*reasons, query()[0] if query is not None else ""]))

    def left_behind(self, endpoint: Endpoint, now: float, recovery: Recovery | None) -> RankLeftError | None:
        """The error of the calls in flight, if their oldest block waits for ranks that have left the job. A member that says
        goodbye may only be about to join again: the controller knows, and is queried in the background."""
        missing = endpoint.left_behind()
        left = missing if recovery is None else recovery.left
        if not (missing or left) or endpoint.base == endpoint.next_serial:
            return None
        block = endpoint.block_id(endpoint.base)
        if recovery is not None and not {*missing} <= {*left}:
            recovery.note_inactivity()
        elif not missing:
            missing = self._missing(endpoint, block, now, left)
        missing = tuple(rank for rank in missing if rank in left)
        if not missing:
            return None
        ranks = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
        have = "have" if len(missing) > 1 else "has"
        return RankLeftError(f"waiting for {ranks}, which {have} left the job: block {block} never gets a result", block, missing)

    def _missing(self, endpoint: Endpoint, block: int, now: float, left: tuple[int, ...]) -> tuple[int, ...]:
        """The ranks that a block waits for by the switch's record, once after these ranks have ``left``; none before the
        reply."""
        if self._late is None or self._late[0] != (block, left):
            query = self._request(endpoint, now)
            self._late = None if query is None else ((block, left), query)
        return self._late[1].result()[1] if self._late is not None and self._late[1].done() else ()


def _nothing_came(endpoint: Endpoint) -> str:
    return "" if endpoint.stats.packets_received else f"nothing at all has come from the {endpoint.combiner}"


_UNKNOWN: Final[BlockedOn] = ("whom it waits for is not known: the controller does not answer", ())


# When the switch suddenly refuses a member or falls silent, the member queries the controller for the job's state.
#
# A switch that has restarted knows no job. The controller installs the job again in a new epoch that *resumes* the old
# one: every rank reports the first block whose result it lacks, and all continue from the lowest, using the
# contributions that they kept (PROTOCOL.md, H21 to H23). If no switch is left, the members combine in that epoch
# themselves.
#
# A query changes nothing: until it is answered, however long that takes, the rank sends as before. Only once it has
# a reply says that another epoch is about to resume its own does it stop, and report: so what it reports stays true.


RECOVERABLE: Final = frozenset(
    {
        *(Outcome.UNKNOWN_JOB, Outcome.NOT_MEMBER, Outcome.WRONG_PORT, Outcome.BAD_KEY),
        *(Outcome.STALE, Outcome.OUT_OF_WINDOW),
    }
)
"""Refusals that a new epoch may explain."""
_AFTER_RESTART: Final = frozenset({Outcome.UNKNOWN_JOB, Outcome.NOT_MEMBER, Outcome.WRONG_PORT, Outcome.BAD_KEY})
"""Of these, the ones that a restarted switch may send before the controller has noticed the restart."""
QUERY_INTERVAL: Final = 0.1
"""Least seconds between two queries."""
INLINE_WAIT: Final = 0.02
"""Seconds for which a rank that is refused waits for the reply before it goes on: most come at once."""
QUERY_TIMEOUT: Final = 2.0
"""Seconds after which a query is abandoned, even if its reply trickles in byte by byte."""


class Stopped(NamedTuple):
    """The report of a rank that has stopped: a reply named ``next_epoch``, which is to resume its own, and ``needs`` is the
    first block whose result it lacks."""

    next_epoch: int
    needs: int


class MulticastReport(NamedTuple):
    """The report of a rank to which results shall come by the IP multicast ``group`` HOST:PORT; "": by unicast."""

    group: str


RejoinReport = Stopped | Waits | MulticastReport | None


class Recovery:
    """``descriptor`` is that of this member's epoch; ``reason`` says what the member waits for, if anything; ``left`` are the
    ranks that have left the epoch, by the last reply."""

    def __init__(
        self,
        descriptor: Descriptor,
        request: Callable[[int, RejoinReport], Descriptor],
        open_transport: Callable[[Descriptor], Transport],
    ) -> None:
        """``request(epoch, report)`` queries the controller once. It returns the current descriptor, or raises
        :class:`NotReadyError` if there is none yet, or the error that ends the communicator. ``report`` is
        the member's report or, as long as it goes on, what it waits for."""
        self.descriptor = descriptor
        self.reason = ""
        self.left: tuple[int, ...] = ()
        self._request = request
        self._open = open_transport
        self._refusal: BlockRejected | None = None
        self._pending: BackgroundRequest[Descriptor] | None = None
        self._cause: BlockRejected | None = None  # of the query, if a refusal was
        self._inactive = False
        self._next_epoch: int | None = None  # which is about to resume this one
        self._next = 0.0

    def note_refusal(self, refusal: BlockRejected) -> bool:
        """Note a refusal. True if a new epoch may explain it: then a query is :meth:`due`."""
        if refusal.reason not in RECOVERABLE:
            return False
        self._refusal = refusal
        return True

    def note_inactivity(self) -> None:
        """Note that nothing has arrived for a while, for which a query is due, too."""
        self._inactive = True

    def leave_group(self) -> None:
        """Report that nothing comes by IP multicast. There is no answer to wait for: results then come by unicast."""
        epoch = self.descriptor.epoch
        BackgroundRequest(lambda: self._request(epoch, MulticastReport(group="")))

    @property
    def stopped(self) -> bool:
        """True if the caller should begin nothing, so that what the member has reported stays true. Until it enters another
        epoch, even if the controller falls silent: its report is there, or may still arrive."""
        return self._next_epoch is not None

    def due(self, now: float) -> bool:
        """True if the caller should call :meth:`request` now."""
        return self._pending is not None or (self._is_uncertain and now >= self._next)

    @property
    def _is_uncertain(self) -> bool:
        return self._refusal is not None or self._inactive or self.stopped

    def request(self, needs: int, now: float, waits: Waits | None = None) -> Descriptor | None:
        """Query, or take the reply if it has come. Returns the descriptor of the epoch to continue in; None if there is no reply
        yet, or nothing has changed. Raises the error that ends the communicator."""
        query = self._pending
        if query is None:
            epoch, self._cause = self.descriptor.epoch, self._refusal
            report = waits if self._next_epoch is None else Stopped(self._next_epoch, needs)
            query = self._pending = BackgroundRequest(lambda: self._request(epoch, report))
            if self._cause is not None or self.stopped:  # else there are packets to send and to receive
                query.done(INLINE_WAIT)
        if not query.done() and time.monotonic() - query.begun < QUERY_TIMEOUT:
            return None
        self._pending = None
        return self._received(query, now)

    def _received(self, query: BackgroundRequest[Descriptor], now: float) -> Descriptor | None:
        refusal = self._cause
        self._next = now + QUERY_INTERVAL
        try:
            if not query.done():
                raise NotReadyError("the controller does not answer")
            answer = query.result()
        except NotReadyError as error:
            self.reason = str(error)
            self._inactive = error.retry > 0  # else it is away, and may be back before anything happens
            if error.next_epoch in (None, self._next_epoch):
                self._next = now + max(QUERY_INTERVAL, error.retry)
            else:  # stop, and report
                self._next_epoch, self._next = error.next_epoch, now
            return None
        self._inactive, self._next_epoch = False, None
        if answer.epoch != self.descriptor.epoch:
            return answer
        self.left = answer.left
        if refusal is None:
            self.reason = ""
            return None  # a refusal that came since is another query
        if refusal.reason not in _AFTER_RESTART:
            raise CommunicatorError(f"the switch refuses block {refusal.serial} of this epoch: {refusal}")
        self.reason = f"the switch refuses this rank ({_name(refusal)}), and the controller knows of no change"
        self._refusal = None
        return None

    def resumed(self, descriptor: Descriptor) -> Transport:
        """Move to the new epoch; returns its transport. The old one must be closed."""
        self.descriptor = descriptor
        self._refusal, self._inactive, self._next_epoch = None, False, None
        self._pending = None
        self.reason, self.left = "", ()
        try:
            return self._open(descriptor)
        except NetsumError:
            raise
        except OSError as error:
            raise CommunicatorError(f"the link for epoch {descriptor.epoch} cannot be opened: {error}") from error


def _name(refusal: BlockRejected) -> str:
    return refusal.reason.name.lower().replace("_", " ") if refusal.reason is not None else "unknown reason"
