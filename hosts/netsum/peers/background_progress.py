"""Keeps a member in touch with the others between its calls: it repeats what they have not received, and acknowledges what they
send. (With a switch this is not needed: results stay in its slots.)"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from typing import Final

IDLE: Final = 0.02
"""Most seconds between two calls of ``progress``."""
BUSY: Final = 0.005
"""The same, if there is no descriptor to poll, or another thread is doing the work."""


class BackgroundProgress:
    """A thread that calls ``progress`` when something has arrived, and now and then."""

    def __init__(self, progress: Callable[[], bool], fileno: Callable[[], int | None]) -> None:
        """``progress()`` sends and receives whatever is due, or returns False if another thread does. ``fileno()`` is a
        descriptor that is readable when something has arrived, or None."""
        self._progress = progress
        self._fileno = fileno
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="netsum peers", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            fileno = self._fileno() if self._progress() else None
            if fileno is None:
                self._stopped.wait(BUSY)
                continue
            readable = select.poll()
            readable.register(fileno, select.POLLIN)
            readable.poll(int(IDLE * 1000))

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
