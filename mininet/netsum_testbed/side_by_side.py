# SPDX-License-Identifier: MIT
"""Programs that run side by side: their lines are passed on with a tag in front, and the first that fails ends all."""

from __future__ import annotations

import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TypeVar

from netsum_testbed.errors import TestbedError
from netsum_testbed.interrupts import SIGNALED, handled_by, interrupts_deferred, interrupts_held, raise_if_interrupted
from netsum_testbed.processes import STOPS, Child


@dataclass(frozen=True)
class ChildProgram:
    """``name`` is for error messages, ``tag`` stands in front of each line that it writes."""

    name: str
    tag: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class ProgramFailed(TestbedError):
    """A program did not end well; ``exit_code`` is its own."""

    def __init__(self, name: str, code: int, said: str) -> None:
        ended = f"failed with exit code {code}"
        if code < 0:
            ended, code = f"was ended by {signal.Signals(-code).name}", SIGNALED - code
        super().__init__(f"{name} {ended}{f': {said}' if said else ''}")
        self.exit_code = code

    def with_advice(self, words: str) -> ProgramFailed:
        """The same failure, with what to do."""
        self.args = (f"{self}; {words}",)
        return self


def run_side_by_side(programs: Sequence[ChildProgram], passed_on: Sequence[signal.Signals] = ()) -> None:
    """Run them until all have ended. The first failure ends the others, and so does an interrupt; nothing that they started in
    their process groups is left. Signals that are ``passed_on`` go to those of their processes that handle them. Call it from the
    main thread.

    Raises :class:`ProgramFailed`, or :class:`OSError` if our own output cannot be written.
    """
    events: queue.SimpleQueue[_Running | OSError | signal.Signals] = queue.SimpleQueue()
    width = max(len(program.tag) for program in programs)
    lock = threading.Lock()
    running: list[_Running] = []
    try:
        with handled_by(lambda number, _frame: events.put(signal.Signals(number)), passed_on):
            with interrupts_deferred():  # one that is half started could not be ended
                for program in programs:
                    running.append(_Running(program, width, lock, events.put))
            left = set(running)
            while left:
                event = _next(events)
                if isinstance(event, OSError):
                    raise event
                if isinstance(event, signal.Signals):
                    _pass_on(event, [each for each in running if each in left])
                    continue
                left.discard(event)
                if code := event.finish():
                    raise ProgramFailed(event.program.name, code, event.last_words)
    finally:
        with interrupts_held():
            for each in running:
                each.child.terminate()
            for each in running:
                each.finish()


def _pass_on(number: signal.Signals, running: Sequence[_Running]) -> None:
    for each in running:
        if not each.child.pass_on(number):
            why = f"it does not handle {number.name} (a rank does from netsum.join() on)"
            print(f"netsum: not passed on to {each.program.name}: {why}", file=sys.stderr, flush=True)


Event = TypeVar("Event")


def _next(events: queue.SimpleQueue[Event]) -> Event:
    while True:
        raise_if_interrupted()
        try:
            return events.get(timeout=1.0)
        except queue.Empty:
            continue


class _Running:
    """One of them, and the threads that pass on what it writes and tell when it has ended."""

    def __init__(
        self,
        program: ChildProgram,
        width: int,
        lock: threading.Lock,
        on_change: Callable[[_Running | OSError], None],
    ) -> None:
        self.program = program
        self.child = Child(program.command, output=None, apart=True, environment=program.environment)
        self._prefix = f"{program.tag:>{width}}| "
        self._lock = lock
        self._on_change = on_change
        self._errors: deque[str] = deque(maxlen=1)
        self._waiter = self._thread(self._wait)
        self._readers = [
            self._thread(self._copy, self.child.stdout, sys.stdout),
            self._thread(self._copy, self.child.stderr, sys.stderr, self._errors),
        ]

    def _thread(self, target: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, name=self.program.name, daemon=True)
        thread.start()
        return thread

    def _wait(self) -> None:
        self.child.wait_unreaped()
        self._on_change(self)

    def _copy(self, source: IO[str], sink: IO[str], last: deque[str] | None = None) -> None:
        """Whole lines, so that those of different programs never mix."""
        try:
            for line in source:
                text = line.rstrip("\n")
                if last is not None and text.strip():
                    last.append(text.strip())
                with self._lock:
                    sink.write(f"{self._prefix}{text}\n")
                    sink.flush()
        except OSError as error:
            self._on_change(error)

    @property
    def last_words(self) -> str:
        """The last line of its standard error."""
        return "".join(self._errors)

    def finish(self) -> int:
        """End it and what it has left in its process group, by force if they take too long; pass on the rest of what they wrote.
        Returns the exit code. May be repeated."""
        self.child.terminate()
        deadline = time.monotonic() + STOPS
        for thread in (self._waiter, *self._readers):
            thread.join(max(0.0, deadline - time.monotonic()))
        self.child.kill()
        for thread in self._readers:
            thread.join(1.0)
        if not any(thread.is_alive() for thread in self._readers):  # else a process that left the group has the pipe
            self.child.stop()
        return self.child.wait()
