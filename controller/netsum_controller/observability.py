# SPDX-License-Identifier: MIT
"""The controller's own counters and log."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

from netsum.logs import formatter

from netsum_controller.state.model import Job

# Counts what the controller does while it runs, for its metrics.


Labels = tuple[str, ...]


class Counters:
    """Counts by a name and labels; thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._counts: dict[str, Counter[Labels]] = {}

    def add(self, name: str, *labels: str, by: int = 1) -> None:
        with self._guard:
            self._counts.setdefault(name, Counter())[labels] += by

    def forget(self, name: str, labels: Iterable[Labels]) -> None:
        """Drop the counts of these labels, whose subject is gone."""
        with self._guard:
            counts = self._counts.get(name, Counter())
            for each in labels:
                counts.pop(each, None)

    def of(self, name: str) -> dict[Labels, int]:
        with self._guard:
            return dict(self._counts.get(name, {}))


# The controller's log: Python's logging with structured fields, which :mod:`netsum.logs` prints.


def set_up(level: int, kind: str) -> None:
    """Print records of this level and above to stderr as ``kind``: ``text`` or ``json``, one object per line. Does nothing if
    logging is already set up."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(kind))
    logging.basicConfig(level=level, handlers=[handler])


def about(job: Job, **fields: Any) -> dict[str, Any]:
    """The ``extra`` of a record about a job, with further ``fields`` such as ``rank`` and ``block``."""
    return {"job": job.name, "epoch": job.epoch.number, "switch": job.switch, **fields}
