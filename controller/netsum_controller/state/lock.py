"""The lock of the state file, between threads and between processes: one command at a time."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from filelock import FileLock, Timeout

from netsum_controller.errors import StateError

WAIT = 60.0
"""Seconds to wait for another command. Each holds the lock for well under a second, or a few if it loads a program."""

_POLL = 0.01
"""Seconds between two attempts: flock has no timeout of its own."""

logging.getLogger("filelock").setLevel(logging.INFO)  # it logs every attempt at DEBUG


class StateLock:
    """Re-entrant; the kernel releases it when the process dies."""

    def __init__(self, path: Path, wait: float = WAIT) -> None:
        self._path, self._wait = path, wait
        self._threads = threading.RLock()  # threads wait here, so that at most one of a process polls the file
        # On a file system without flock, filelock would fall back to a lock that a killed process leaves behind.
        self._file = FileLock(path, timeout=wait, mode=0o600, poll_interval=_POLL, fallback_to_soft=False)

    def waiting(self, wait: float) -> StateLock:
        """The same lock with a timeout of ``wait`` seconds; not re-entrant with this one."""
        return StateLock(self._path, wait)

    def __enter__(self) -> None:
        if not self._threads.acquire(timeout=self._wait):
            raise StateError(f"{self._path}: another thread has held the state for {self._wait:.0f} s")
        try:
            self._file.acquire()
        except BaseException as error:  # including Ctrl-C while it waits
            self._threads.release()
            if isinstance(error, Timeout):
                raise StateError(f"{self._path}: another netsum command has held it for {self._wait:.0f} s") from None
            if isinstance(error, OSError):
                raise StateError(f"{self._path}: {error.strerror}") from None
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._file.release()
        finally:
            self._threads.release()
