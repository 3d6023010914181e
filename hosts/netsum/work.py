"""A call under way, and the generator that is its flow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Final, Generic, Protocol, TypeVar

from netsum.environment import seconds
from netsum.outline import Outline
from netsum.report import Report

Condition = Callable[[], bool]
Flow = Generator["Condition | object", None, Any]
"""A generator that submits blocks and yields what it waits for; the engine resumes it when that holds."""
SUBMITTED: Final = object()
"""Yielded by a flow when all its blocks are submitted: the next call may submit."""
Ended = Callable[[BaseException | None], None]
"""Told that a call has ended: what it raises, or None."""

Result = TypeVar("Result")


class Driver(Protocol):
    """What sends and receives for calls."""

    def drive(self, work: Work[Any], timeout: float | None) -> None:
        """Run until ``work`` is done or ``timeout`` seconds are over."""


class Work(Generic[Result]):
    def __init__(
        self,
        engine: Driver,
        flow: Flow,
        gen: int,
        timeout: float | None,
        report: Report | None = None,
        ended: Ended | None = None,
        outline: Outline | None = None,
    ) -> None:
        """``report``: what the call's blocks came to, filled in as they come. ``ended`` is told when the call has ended.
        ``outline``: what the call is, filled in by its flow."""
        self._engine = engine
        self._ended = ended
        self.report = Report() if report is None else report
        self.outline = Outline() if outline is None else outline
        self.flow = flow
        self.gen = gen
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self.timeout = timeout
        self.waiting: Condition | None = None
        self.submitting = True
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether the call has ended, with a result or an error. Does not wait and drives nothing."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> Result:
        """Wait for the result (a new array, or the one given as ``out``) and return it, or raise what the call raised.

        ``timeout`` (seconds) bounds this wait only, with the built-in TimeoutError; the call goes on.
        """
        self._engine.drive(self, None if timeout is None else seconds(timeout))
        if not self._done.is_set():
            raise TimeoutError(f"the call is not done after {timeout} s; it goes on")
        if self._error is not None:
            raise self._error
        value: Result = self._value
        return value

    result = wait

    def finished(self, timeout: float) -> bool:
        """Whether the call ends within ``timeout`` seconds, somebody else driving it."""
        return self._done.wait(timeout)

    def finish(self, value: Any = None, error: BaseException | None = None) -> None:
        """End the call; the engine's business."""
        if not self._done.is_set():
            self._value, self._error = value, error
            if self._ended is not None:
                self._ended(error)
            self._done.set()
