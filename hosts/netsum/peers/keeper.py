"""Keeps a member in touch with the others while none of its calls is under way: what they have not received is sent again, and
what they send is acknowledged. (A switch does that for its members: results stay in its slots.)"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from typing import Final

IDLE: Final = 0.02
"""Seconds between two looks, at most."""
BUSY: Final = 0.005
"""The same, where nothing tells that something has come, or somebody else looks."""


class Keeper:
    """A thread that calls ``tend`` when something has come, and now and then."""

    def __init__(self, tend: Callable[[], bool], fileno: Callable[[], int | None]) -> None:
        """``tend()`` sends and receives what there is, and is False when somebody else does. ``fileno()``: a descriptor that is
        readable when something has come, or None."""
        self._tend = tend
        self._fileno = fileno
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="netsum peers", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            fileno = self._fileno() if self._tend() else None
            if fileno is None:
                self._stopped.wait(BUSY)
                continue
            readable = select.poll()
            readable.register(fileno, select.POLLIN)
            readable.poll(int(IDLE * 1000))

    def stop(self) -> None:
        """End the thread. May be called twice."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
