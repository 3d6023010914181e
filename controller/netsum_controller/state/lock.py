# SPDX-License-Identifier: MIT
"""The lock of the state file, between threads and between processes: one command at a time, in the order in which they came."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from netsum_controller.errors import AbandonedError, LockedError, StateError

WAIT = 60.0
"""Seconds to wait for another command. Each holds the lock for well under a second, or a few if it loads a program."""

_POLL = 0.01
"""Seconds between two attempts: flock has no timeout of its own."""

_LOOK = 0.25
"""Seconds between two looks at whether a waiting client is still there."""

logging.getLogger("filelock").setLevel(logging.INFO)  # it logs every attempt at DEBUG


class StateLock:
    """Re-entrant; the kernel releases it when the process dies.

    Threads of a process stand in line, and only the first of them polls the file. A process whose threads hand the file on would
    win it nearly every time: another one finds it free only if it happens to look in between. So the thread that polls the
        file holds
    the *turnstile*, a second file, at which the next one has to wait.
    """

    def __init__(self, path: Path, wait: float = WAIT) -> None:
        self._path, self._wait = path, wait
        self._guard = threading.Lock()
        self._line: deque[threading.Event] = deque()
        """A thread each, told when it is the first; the first has the lock, or polls for it."""
        # On a file system without flock, filelock would fall back to a lock that a killed process leaves behind.
        self._file, self._turnstile = (
            FileLock(each, mode=0o600, poll_interval=_POLL, fallback_to_soft=False)
            for each in (path, path.with_name(path.name + ".next"))
        )

    def waiting(self, wait: float) -> StateLock:
        """The same lock with a timeout of ``wait`` seconds; not re-entrant with this one."""
        return StateLock(self._path, wait)

    def __enter__(self) -> None:
        self._acquire(lambda: True)

    def __exit__(self, *_: object) -> None:
        try:
            self._file.release()
        finally:
            if not self._file.is_locked:
                self._step_out(self._line[0])

    @contextmanager
    def while_wanted(self, wanted: Callable[[], bool]) -> Iterator[None]:
        """The lock for a client that may go away: raises :class:`AbandonedError` if ``wanted()`` is false before the lock is
        had."""
        self._acquire(wanted)
        try:
            yield
        finally:
            self.__exit__()

    def _acquire(self, wanted: Callable[[], bool]) -> None:
        if self._file.is_locked:  # by this thread: filelock keeps count for each
            self._file.acquire()
            return
        deadline = time.monotonic() + self._wait
        turn = threading.Event()
        with self._guard:
            self._line.append(turn)
            self._line[0].set()
        try:
            while not turn.wait(min(_LOOK, deadline - time.monotonic())):
                if not wanted():
                    raise AbandonedError
                if time.monotonic() >= deadline:
                    raise LockedError(f"{self._path}: another thread has held the state for {self._wait:.0f} s")
            if not wanted():
                raise AbandonedError
            with self._turnstile.acquire(max(0.0, deadline - time.monotonic())):
                self._file.acquire(max(0.0, deadline - time.monotonic()))
        except BaseException as error:  # including Ctrl-C while it waits
            self._step_out(turn)
            if isinstance(error, Timeout):
                raise LockedError(f"{self._path}: another netsum command has held it for {self._wait:.0f} s") from None
            if isinstance(error, OSError):
                raise StateError(f"{self._path}: {error.strerror}") from None
            raise

    def _step_out(self, turn: threading.Event) -> None:
        with self._guard:
            self._line.remove(turn)
            if self._line:
                self._line[0].set()
