"""When the switch suddenly refuses a member or falls silent, the member asks the controller what has become of the job.

A switch that has restarted knows no job. The controller installs the job again in a new epoch that *resumes* the old one: every
rank reports the first block whose result it lacks, and all continue from the lowest, using the contributions that they kept
(docs/protocol.md, "Epochs"). If no switch is left, the members combine in that epoch themselves.

A question changes nothing: until it is answered, however long that takes, the rank sends as before. Only once it has been told
that another epoch is about to resume its own does it stop, and report: so what it reports stays true.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from netsum.descriptor import Descriptor
from netsum.errors import CommunicatorError, NetsumError, NotReadyError
from netsum.question import Question
from netsum.refusal import BlockRejected
from netsum.transports.base import Transport
from netsum.window import Waits
from netsum.wire.schema import Outcome

ASKABLE: Final = frozenset({Outcome.UNKNOWN_JOB, Outcome.NOT_MEMBER, Outcome.WRONG_PORT, Outcome.STALE, Outcome.WINDOW})
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


Told = Stopped | Waits | None


class Recovery:
    """``descriptor`` is that of this member's epoch; ``reason`` says what the member waits for, if anything."""

    def __init__(
        self,
        descriptor: Descriptor,
        ask: Callable[[int, Told], Descriptor],
        open_transport: Callable[[Descriptor], Transport],
    ) -> None:
        """``ask(epoch, told)`` asks the controller once. It returns the current descriptor, or raises :class:`NotReadyError`
        if there is none yet, or the error that ends the communicator. ``told`` is the member's report or, as long as it goes
        on, what it waits for."""
        self.descriptor = descriptor
        self.reason = ""
        self._ask = ask
        self._open = open_transport
        self._refusal: BlockRejected | None = None
        self._question: Question[Descriptor] | None = None
        self._about: BlockRejected | None = None  # what the question was asked for
        self._wonders = False
        self._next_epoch: int | None = None  # which is about to resume this one
        self._next = 0.0

    def begin(self, refusal: BlockRejected) -> bool:
        """Whether this refusal is worth a question; :meth:`due` then says when."""
        if refusal.reason not in ASKABLE:
            return False
        self._refusal = refusal
        return True

    def wonder(self) -> None:
        """Nothing has arrived for a while, which is worth a question too."""
        self._wonders = True

    @property
    def stopped(self) -> bool:
        """Whether to begin nothing, so that what the member has reported stays true. Until it enters another epoch, even if the
        controller falls silent: its report is there, or may still arrive."""
        return self._next_epoch is not None

    def due(self, now: float) -> bool:
        """Whether to ask now, or to look for an answer."""
        return self._question is not None or (self._is_in_doubt and now >= self._next)

    @property
    def _is_in_doubt(self) -> bool:
        return self._refusal is not None or self._wonders or self.stopped

    def ask(self, needs: int, now: float, waits: Waits | None = None) -> Descriptor | None:
        """Ask once, or look for the answer. Returns the descriptor of the epoch to continue in; None if there is no answer
        yet, or nothing has changed. Raises the error that ends the communicator."""
        question = self._question
        if question is None:
            epoch, self._about = self.descriptor.epoch, self._refusal
            told = waits if self._next_epoch is None else Stopped(self._next_epoch, needs)
            question = self._question = Question(lambda: self._ask(epoch, told))
            if self._about is not None or self.stopped:  # else there are packets to send and to receive
                question.answered(BRIEF)
        if not question.answered() and time.monotonic() - question.asked < LONGEST:
            return None
        self._question = None
        return self._heard(question, now)

    def _heard(self, question: Question[Descriptor], now: float) -> Descriptor | None:
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
