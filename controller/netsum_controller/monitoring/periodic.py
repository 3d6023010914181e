# SPDX-License-Identifier: MIT
"""What the watchers of a serving controller have in common: a look now and then, in a thread of their own."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

from netsum_controller.errors import ControllerError

log = logging.getLogger(__name__)


class PeriodicWatcher(ABC):
    """Looks every ``period`` seconds, in a thread of its own, until closed. With ``period`` 0 it looks when it is told to.

    Attributes:
        looks_for: in the log, what it looks for.
    """

    looks_for: str

    def __init__(self, period: float) -> None:
        """Subclasses call this last: the thread begins here."""
        self._period = period
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"netsum {self.looks_for}", daemon=True)
        if period > 0:
            self._thread.start()

    def close(self) -> None:
        """End the thread; if it is moving a job, it finishes first."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @abstractmethod
    def look(self) -> object:
        """One look. Raises :class:`ControllerError`."""

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            try:
                self.look()
            except ControllerError as error:
                log.info("looking for %s: %s", self.looks_for, error)
            except Exception:
                # Whatever happened, the network must still be watched.
                log.exception("looking for %s", self.looks_for)
