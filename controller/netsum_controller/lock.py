"""One command at a time: a lock over the state file, between threads and between processes."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

from netsum_controller.errors import StateError

WAIT = 60.0
"""Seconds to wait for another command; each holds the lock for well under a second, loading a program for a few."""


class StateLock:
    """Re-entrant; the kernel drops it when the process dies."""

    def __init__(self, path: Path, wait: float = WAIT) -> None:
        self._path = path
        self._wait = wait
        self._threads = threading.RLock()
        self._depth = 0
        self._descriptor = -1

    def waiting(self, wait: float) -> StateLock:
        """The same lock for somebody who waits ``wait`` seconds; not re-entrant with this one."""
        return StateLock(self._path, wait)

    def __enter__(self) -> None:
        if not self._threads.acquire(timeout=self._wait):
            raise StateError(f"{self._path}: another thread has held the state for {self._wait:.0f} s")
        if self._depth == 0:
            try:
                self._acquire()
            except BaseException:
                self._threads.release()
                raise
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            os.close(self._descriptor)
        self._threads.release()

    def _acquire(self) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(f"{self._path}: {error.strerror}") from None
        deadline = time.monotonic() + self._wait
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    raise StateError(
                        f"{self._path}: another netsum command has held it for {self._wait:.0f} s"
                    ) from None
                time.sleep(0.01)  # flock has no timeout of its own
            else:
                self._descriptor = descriptor
                return
