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

    # Ctrl-C may come between any two steps, rather where a call waits; whoever waits for the lock next would wait in vain.
    def __enter__(self) -> None:
        inner = self._threads._is_owned()  # type: ignore[attr-defined]  # as threading.Condition asks
        try:
            if not self._threads.acquire(timeout=self._wait):
                raise StateError(f"{self._path}: another thread has held the state for {self._wait:.0f} s")
            if not inner:
                self._acquire()
            self._depth += 1
        except BaseException:
            if not inner and self._threads._is_owned():  # type: ignore[attr-defined]
                self._release()
            raise

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._release()
        else:
            self._threads.release()

    def _release(self) -> None:
        self._depth = 0
        descriptor, self._descriptor = self._descriptor, -1
        try:
            if descriptor >= 0:
                os.close(descriptor)
        finally:
            self._threads.release()

    def _acquire(self) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(f"{self._path}: {error.strerror}") from None
        self._descriptor = descriptor
        deadline = time.monotonic() + self._wait
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StateError(
                        f"{self._path}: another netsum command has held it for {self._wait:.0f} s"
                    ) from None
                time.sleep(0.01)  # flock has no timeout of its own
            else:
                return
