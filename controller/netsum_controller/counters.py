"""Counts what the controller does while it runs, for its metrics."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

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
