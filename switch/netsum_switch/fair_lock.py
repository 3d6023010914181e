"""The lock between the data plane and the control plane."""

from __future__ import annotations

import threading
from types import TracebackType


class FairLock:
    """A mutex that a busy loop cannot monopolise.

    The data plane takes and releases its lock for every batch of packets, and would win an ordinary lock each time: a
    waiting thread is only woken up, and finds it taken again. Here the waiting thread holds the turnstile, at which the
    loop queues up before its next batch, so it waits for at most one batch.
    Not re-entrant. Costs one uncontended lock more than `threading.Lock`, some 50 ns.
    """

    def __init__(self) -> None:
        self._turnstile = threading.Lock()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._turnstile:
            self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
