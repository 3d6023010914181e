"""The message of a CallTimeoutError: how far the call came, and whom it waits for if that is known.

A rank is named only on evidence: a block has waited for a while, and the switch's record lacks the rank, or the rank answers
nobody. As long as results arrive, nobody is late: the call was too large for its timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netsum.errors import CallTimeoutError
from netsum.question import Question
from netsum.silence import InactivityTimer
from netsum.window import BlockedOn, Window
from netsum.work import Work

STILL: Final = 1.0
"""Seconds without a result (or half the call's timeout, if that is less) after which somebody counts as late."""
ANSWER: Final = 3.0
"""Seconds that the controller has to say whom a block waits for."""


class TimeoutDiagnosis:
    """Explains one communicator's timeouts. ``explain(block_id)`` asks the controller whom a block waits for."""

    def __init__(self, explain: Callable[[int], BlockedOn] | None) -> None:
        self._explain = explain
        self._early: Question[BlockedOn] | None = None

    def foresee(self, work: Work[Any], window: Window, silence: InactivityTimer, now: float) -> None:
        """Ask ahead of the deadline, if there is time: nobody then waits for a controller that does not answer."""
        if work.timeout is None or work.deadline is None or work.timeout < 2 * ANSWER or now < work.deadline - ANSWER:
            return
        if self._early is None and self._waits(work, window, silence, now):
            self._early = self._ask(window, now)

    def _waits(self, work: Work[Any], window: Window, silence: InactivityTimer, now: float) -> bool:
        assert work.timeout is not None
        return window.base < window.next_serial and now - silence.moved >= min(STILL, work.timeout / 2)

    def _ask(self, window: Window, now: float) -> Question[BlockedOn] | None:
        explain, block = self._explain, window.block_id(window.base)
        return None if explain is None or window.explain(now) is not None else Question(lambda: explain(block))

    def error(self, work: Work[Any], window: Window, silence: InactivityTimer, now: float) -> CallTimeoutError:
        """The error of a call that has timed out; waits for the controller's answer, at most :data:`ANSWER`."""
        within = f"within {work.timeout:g} s"
        progress = work.outline.progress(window.block_id(window.base))
        if window.base == window.next_serial:
            return CallTimeoutError("; ".join(filter(None, [f"the call did not end {within}", progress])))
        block = window.block_id(window.base)
        sentence, missing = self._whom(work, window, silence, now)
        reasons = [f"no result for block {block} (generation {work.gen}) {within}", progress, sentence]
        if not window.stats.packets_received:
            reasons.append(f"nothing at all has come from the {window.combiner}")
        return CallTimeoutError("; ".join(filter(None, reasons)), block, missing)

    def _whom(self, work: Work[Any], window: Window, silence: InactivityTimer, now: float) -> BlockedOn:
        if not self._waits(work, window, silence, now):
            return "results were still arriving: it needs more time", ()
        known = window.explain(now)
        if known is not None:
            return known
        early, self._early = self._early, None
        if early is not None and not early.answered():
            return _UNKNOWN
        question = self._ask(window, now)  # the early answer may no longer be true
        if question is None:
            return "", ()
        return question.answer() if question.answered(ANSWER) else _UNKNOWN


_UNKNOWN: Final[BlockedOn] = ("whom it waits for is not known: the controller does not answer", ())
