"""Calls and their state: a generator that submits blocks, what the caller waits for, and how far it has come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from netsum.report import Report
from netsum.settings import seconds
from netsum.window.blocks import id_distance


@dataclass
class Outline:
    """The ``call`` in words, the id of its ``first`` block, its number of ``opening`` blocks, in which the ranks agree, and of
    ``blocks`` of data, of which ``skipped`` are not sent. What is not known yet is empty or 0."""

    call: str = ""
    first: int | None = None
    opening: int = 0
    blocks: int = 0
    skipped: int = 0

    def progress(self, base: int) -> str:
        """The progress of the call if every result below block ``base`` is held; only the call if its size is not known."""
        if self.first is None or not self.blocks:
            return self.call
        held = max(0, id_distance(base, self.first))  # 0: an earlier call is in progress
        done = min(max(0, held - self.opening) + self.skipped * (held > self.opening), self.blocks)
        return f"{self.call}: {done:,} of {self.blocks:,} blocks done"


Condition = Callable[[], bool]


Flow = Generator["Condition | object", None, Any]
"""A generator that submits blocks and yields the condition that it waits for; the engine resumes it once that holds."""


SUBMITTED: Final = object()
"""A flow yields this when all its blocks are submitted, so that the next call may submit."""


Ended = Callable[[BaseException | None], None]
"""Called when a call has ended, with what it raises or None."""


Result = TypeVar("Result")


def nested(flow: Flow) -> Flow:
    """Return the flow as a part of another one, which submits more blocks after it: the next call waits for those too."""
    try:
        while True:
            if (step := next(flow)) is not SUBMITTED:
                yield step
    except StopIteration as end:
        return end.value


class Drives(Protocol):
    """:class:`Driver`, as far as a call needs it."""

    def drive(self, work: Work[Any], timeout: float | None) -> None:
        """Run until ``work`` is done or ``timeout`` seconds are over."""


class Work(Generic[Result]):
    def __init__(
        self,
        driver: Drives,
        flow: Flow,
        gen: int,
        timeout: float | None,
        report: Report | None = None,
        ended: Ended | None = None,
        outline: Outline | None = None,
    ) -> None:
        """``report`` is filled in as results arrive, ``outline`` by the flow; ``ended`` is called when the call has ended."""
        self._driver = driver
        self._ended = ended
        self.report = Report() if report is None else report
        self.outline = Outline() if outline is None else outline
        self.flow = flow
        self.gen = gen
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self.timeout = timeout
        self.waiting: Condition | None = None
        self.submitting = True
        self.over = False
        self._ending = threading.Lock()  # held until the call is over; an Event takes much longer to make
        self._ending.acquire()
        self._value: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """True if the call has ended, with a result or an error. Neither waits nor drives the call."""
        return self.over

    def wait(self, timeout: float | None = None) -> Result:
        """Wait for the result (a new array, or the one given as ``out``) and return it, or raise what the call raised.

        ``timeout`` (seconds) bounds only this wait, with the built-in TimeoutError; the call goes on.
        """
        self._driver.drive(self, None if timeout is None else seconds(timeout))
        if not self.over:
            raise TimeoutError(f"the call is still in progress after {timeout} s")
        if self._error is not None:
            raise self._error
        value: Result = self._value
        return value

    result = wait

    def finished(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds while another thread drives the call; returns whether it has ended."""
        if self._ending.acquire(timeout=timeout):
            self._ending.release()
        return self.over

    def finish(self, value: Any = None, error: BaseException | None = None) -> None:
        """End the call. Only its driver may call this."""
        if not self.over:
            self._value, self._error = value, error
            if self._ended is not None:
                self._ended(error)
            self.over = True
            self._ending.release()
