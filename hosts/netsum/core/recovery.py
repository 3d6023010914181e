"""Recovery when results stop: it queries the controller, recovers or fails the calls, and explains timeouts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from netsum.controller_http import BackgroundRequest
from netsum.core.blocks import BlockRejected
from netsum.core.endpoint import BlockedOn, Endpoint, Waits
from netsum.core.progress import Work
from netsum.descriptor import Descriptor
from netsum.errors import CallTimeoutError, CommunicatorError, NetsumError, NotReadyError
from netsum.transports.base import Transport
from netsum.wire.schema import Outcome

# Notices when a member receives nothing new: the job may have moved on without it.


PATIENCE: Final = 1.0
"""Seconds that a block waits for its result before the controller is asked."""
MAX_PATIENCE: Final = 4.0
SPREAD: Final = 0.01
"""Seconds for each rank of the job, up to which a rank waits longer, at random: otherwise all ranks would ask at once."""
LOOK: Final = 5.0
"""Seconds between two questions that one member asks for all in a job without a switch, where no member is refused."""


class InactivityTimer:
    """Tells when to ask: after a while without results, then after twice as long, up to a cap. ``moved`` is when the last
    awaited result arrived, or the waiting began."""

    def __init__(self, ranks: int = 0, seed: int | None = None) -> None:
        """``ranks`` of the job."""
        self.moved = 0.0
        self._base = -1
        self._since = 0.0
        self._patience = PATIENCE
        self._spread = ranks * SPREAD
        self._random = random.Random(seed)
        self._extra = self._random.uniform(0.0, self._spread)
        self._looked = time.monotonic()

    def too_long(self, base: int, now: float, *, waiting: bool) -> bool:
        """True if the caller should ask now. All results below ``base`` are held; ``waiting`` says whether more are awaited."""
        if base != self._base or not waiting:
            self._base, self._since, self._patience = base, now, PATIENCE
            self.moved = now
            return False
        if now - self._since < self._patience + self._extra:
            return False
        self._since, self._patience = now, min(2 * self._patience, MAX_PATIENCE)
        self._extra = self._random.uniform(0.0, self._spread)
        return True

    def look(self, now: float) -> bool:
        """True if the caller should ask although nothing is amiss, because a job without a switch may have been given one."""
        if now - self._looked < LOOK:
            return False
        self._looked = now
        return True


# The message of a CallTimeoutError: how far the call came, and whom it waits for if that is known.
#
# A rank is named only on evidence: a block has waited for a while, and the switch's record lacks the rank, or the rank
# answers no rank. As long as results arrive, no rank is late: the call was too large for its timeout.


STILL: Final = 1.0
"""Seconds without a result (or half the call's timeout, if that is less) after which a rank counts as late."""
ANSWER: Final = 3.0
"""Seconds that the controller has to say whom a block waits for."""


class TimeoutDiagnosis:
    """Explains one communicator's timeouts. ``explain(block_id)`` asks the controller whom a block waits for."""

    def __init__(self, explain: Callable[[int], BlockedOn] | None) -> None:
        self._explain = explain
        self._early: BackgroundRequest[BlockedOn] | None = None

    def foresee(self, work: Work[Any], endpoint: Endpoint, silence: InactivityTimer, now: float) -> None:
        """Ask ahead of the deadline, if there is time: no call then waits for a controller that does not answer."""
        if work.timeout is None or work.deadline is None or work.timeout < 2 * ANSWER or now < work.deadline - ANSWER:
            return
        if self._early is None and self._waits(work, endpoint, silence, now):
            self._early = self._request(endpoint, now)

    def _waits(self, work: Work[Any], endpoint: Endpoint, silence: InactivityTimer, now: float) -> bool:
        assert work.timeout is not None
        return endpoint.base < endpoint.next_serial and now - silence.moved >= min(STILL, work.timeout / 2)

    def _request(self, endpoint: Endpoint, now: float) -> BackgroundRequest[BlockedOn] | None:
        explain, block = self._explain, endpoint.block_id(endpoint.base)
        return None if explain is None or endpoint.explain(now) is not None else BackgroundRequest(lambda: explain(block))

    def error(self, work: Work[Any], endpoint: Endpoint, silence: InactivityTimer, now: float) -> CallTimeoutError:
        """The error of a call that has timed out; waits for the controller's answer, at most :data:`ANSWER`."""
        within = f"within {work.timeout:g} s"
        progress = work.progress.describe(endpoint.block_id(endpoint.base))
        if endpoint.base == endpoint.next_serial:
            return CallTimeoutError("; ".join(filter(None, [f"the call did not end {within}", progress])))
        block = endpoint.block_id(endpoint.base)
        sentence, missing = self._whom(work, endpoint, silence, now)
        reasons = [f"no result for block {block} (generation {work.gen}) {within}", progress, sentence]
        if not endpoint.stats.packets_received:
            reasons.append(f"nothing at all has come from the {endpoint.combiner}")
        return CallTimeoutError("; ".join(filter(None, reasons)), block, missing)

    def _whom(self, work: Work[Any], endpoint: Endpoint, silence: InactivityTimer, now: float) -> BlockedOn:
        if not self._waits(work, endpoint, silence, now):
            return "results were still arriving: it needs more time", ()
        known = endpoint.explain(now)
        if known is not None:
            return known
        early, self._early = self._early, None
        if early is not None and not early.answered():
            return _UNKNOWN
        question = self._request(endpoint, now)  # the early answer may no longer be true
        if question is None:
            return "", ()
        return question.answer() if question.answered(ANSWER) else _UNKNOWN


_UNKNOWN: Final[BlockedOn] = ("whom it waits for is not known: the controller does not answer", ())


# When the switch suddenly refuses a member or falls silent, the member asks the controller what has become of the job.
#
# A switch that has restarted knows no job. The controller installs the job again in a new epoch that *resumes* the old
# one: every rank reports the first block whose result it lacks, and all continue from the lowest, using the
# contributions that they kept (docs/protocol.md, "Epochs"). If no switch is left, the members combine in that epoch
# themselves.
#
# A question changes nothing: until it is answered, however long that takes, the rank sends as before. Only once it has
# been told that another epoch is about to resume its own does it stop, and report: so what it reports stays true.


ASKABLE: Final = frozenset({Outcome.UNKNOWN_JOB, Outcome.NOT_MEMBER, Outcome.WRONG_PORT, Outcome.STALE, Outcome.OUT_OF_WINDOW})
"""Refusals that a new epoch may explain."""
_LASTING: Final = frozenset({Outcome.UNKNOWN_JOB, Outcome.NOT_MEMBER, Outcome.WRONG_PORT})
"""Of these, the ones that a restarted switch may send before the controller has noticed the restart."""
PAUSE: Final = 0.1
"""Least seconds between two questions."""
BRIEF: Final = 0.02
"""Seconds for which a rank that is refused waits for an answer on the spot: most come at once."""
LONGEST: Final = 2.0
"""Seconds after which a question is abandoned, even if an answer trickles in byte by byte."""


class Stopped(NamedTuple):
    """The report of a rank that has stopped: it was told of ``next_epoch``, which is to resume its own, and ``needs`` is the
    first block whose result it lacks."""

    next_epoch: int
    needs: int


RejoinReport = Stopped | Waits | None


class Recovery:
    """``descriptor`` is that of this member's epoch; ``reason`` says what the member waits for, if anything."""

    def __init__(
        self,
        descriptor: Descriptor,
        request: Callable[[int, RejoinReport], Descriptor],
        open_transport: Callable[[Descriptor], Transport],
    ) -> None:
        """``request(epoch, report)`` asks the controller once. It returns the current descriptor, or raises
        :class:`NotReadyError` if there is none yet, or the error that ends the communicator. ``report`` is
        the member's report or, as long as it goes on, what it waits for."""
        self.descriptor = descriptor
        self.reason = ""
        self._request = request
        self._open = open_transport
        self._refusal: BlockRejected | None = None
        self._question: BackgroundRequest[Descriptor] | None = None
        self._about: BlockRejected | None = None  # what the question was asked for
        self._wonders = False
        self._next_epoch: int | None = None  # which is about to resume this one
        self._next = 0.0

    def begin(self, refusal: BlockRejected) -> bool:
        """True if this refusal is worth a question; :meth:`due` then says when."""
        if refusal.reason not in ASKABLE:
            return False
        self._refusal = refusal
        return True

    def wonder(self) -> None:
        """Nothing has arrived for a while, which is worth a question too."""
        self._wonders = True

    @property
    def stopped(self) -> bool:
        """True if the caller should begin nothing, so that what the member has reported stays true. Until it enters another
        epoch, even if the controller falls silent: its report is there, or may still arrive."""
        return self._next_epoch is not None

    def due(self, now: float) -> bool:
        """True if the caller should ask now, or to look for an answer."""
        return self._question is not None or (self._is_in_doubt and now >= self._next)

    @property
    def _is_in_doubt(self) -> bool:
        return self._refusal is not None or self._wonders or self.stopped

    def request(self, needs: int, now: float, waits: Waits | None = None) -> Descriptor | None:
        """Ask once, or look for the answer. Returns the descriptor of the epoch to continue in; None if there is no answer
        yet, or nothing has changed. Raises the error that ends the communicator."""
        question = self._question
        if question is None:
            epoch, self._about = self.descriptor.epoch, self._refusal
            report = waits if self._next_epoch is None else Stopped(self._next_epoch, needs)
            question = self._question = BackgroundRequest(lambda: self._request(epoch, report))
            if self._about is not None or self.stopped:  # else there are packets to send and to receive
                question.answered(BRIEF)
        if not question.answered() and time.monotonic() - question.begun < LONGEST:
            return None
        self._question = None
        return self._received(question, now)

    def _received(self, question: BackgroundRequest[Descriptor], now: float) -> Descriptor | None:
        refusal = self._about
        self._next = now + PAUSE
        try:
            if not question.answered():
                raise NotReadyError("the controller does not answer")
            answer = question.answer()
        except NotReadyError as error:
            self.reason = str(error)
            self._wonders = error.retry > 0  # else it is away, and may be back before anything happens
            if error.next_epoch in (None, self._next_epoch):
                self._next = now + max(PAUSE, error.retry)
            else:  # stop, and report
                self._next_epoch, self._next = error.next_epoch, now
            return None
        self._wonders, self._next_epoch = False, None
        if answer.epoch != self.descriptor.epoch:
            return answer
        if refusal is None:
            self.reason = ""
            return None  # a refusal that came since is another question
        if refusal.reason not in _LASTING:
            raise CommunicatorError(f"the switch refuses block {refusal.serial} of this epoch: {refusal}")
        self.reason = f"the switch refuses this rank ({_name(refusal)}), and the controller knows of no change"
        self._refusal = None
        return None

    def resumed(self, descriptor: Descriptor) -> Transport:
        """Move to the new epoch; returns its transport. The old one must be closed."""
        self.descriptor = descriptor
        self._refusal, self._wonders, self._next_epoch = None, False, None
        self._question = None
        self.reason = ""
        try:
            return self._open(descriptor)
        except NetsumError:
            raise
        except OSError as error:
            raise CommunicatorError(f"the link for epoch {descriptor.epoch} cannot be opened: {error}") from error


def _name(refusal: BlockRejected) -> str:
    return refusal.reason.name.lower().replace("_", " ") if refusal.reason is not None else "unknown reason"
