# SPDX-License-Identifier: MIT
"""IdleTimeoutNotification: the entries that no packet has hit for as long as their `idle_timeout_ns` says.

The rule is the specification's, not simple_switch_grpc's: one notification for each time-to-live that passes without a hit. A
hit, MODIFY and a notification begin a new one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from netsum_p4runtime import p4runtime_pb2

from netsum_switch.pipeline import Pipeline
from netsum_switch.table import Entry, Table

_SHORTEST = 10_000  # microseconds; a shorter time-to-live is taken for this
_PAUSE = 0.01  # seconds between two looks; what falls due in one goes into one notification
_LONGEST_WAIT = 3600.0  # seconds; a thread cannot wait for as long as the longest time-to-live
_MESSAGE_BYTES = 1 << 20  # of a notification with several entries; gRPC's clients take 4 MB
_SLACK = 1024  # places of the heap that may be out of date before it is made anew


@dataclass(slots=True)
class _Watched:
    """An entry with a time-to-live, in microseconds. ``place``: the number of its place in the heap."""

    table: Table
    entry: Entry
    message: Any
    ttl: int
    place: int = 0


class IdleTimeouts:
    """The entries with a time-to-live in one pipeline, and the thread that sends notifications of them once the pipeline runs.
    Thread-safe."""

    def __init__(self, pipeline: Pipeline, send: Callable[[Any], None]) -> None:
        self._pipeline = pipeline
        self._send = send
        self._condition = threading.Condition()
        self._watched: dict[Any, _Watched] = {}
        self._heap: list[tuple[int, int, Any]] = []  # (when to look at an entry, the number of this place, the entry's key)
        self._places = 0
        self._running = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="idle-timeouts", daemon=True)

    def start(self) -> None:
        """Begin the time-to-live of all entries: the pipeline runs from now on."""
        with self._condition:
            self._running = True
            now = self._pipeline.now()
            for key, watched in self._watched.items():
                self._look(key, watched, now + watched.ttl)
        if any(table.with_timeouts for table in self._pipeline.tables.values()):
            self._thread.start()

    def stop(self) -> None:
        """End the thread. No notification is sent after that."""
        with self._condition:
            self._stopping = True
            self._watched.clear()
            self._heap.clear()
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join()

    def watch(self, key: Any, table: Table, entry: Entry, message: Any) -> None:
        """Begin the time-to-live of an entry, known by ``key`` from now on, which has been inserted or modified. ``message``: the
        TableEntry for notifications, with the time-to-live."""
        ttl = -(-message.idle_timeout_ns // 1000)
        with self._condition:
            first = self._heap[0][0] if self._heap else None
            self._watched[key] = watched = _Watched(table, entry, message, max(ttl, _SHORTEST))
            if not self._running:
                return
            self._look(key, watched, self._pipeline.now() + watched.ttl)
            if first is None or self._heap[0][0] < first:
                self._condition.notify()

    def forget(self, key: Any) -> None:
        """Send no notifications of an entry any more."""
        with self._condition:
            self._watched.pop(key, None)

    def check(self) -> None:
        """Send what is due, as the thread does by itself."""
        with self._condition:
            self._check()

    def _run(self) -> None:
        with self._condition:
            while not self._stopping:
                self._check()
                left = (self._heap[0][0] - self._pipeline.now()) / 1e6 if self._heap else _LONGEST_WAIT
                self._condition.wait(min(max(_PAUSE, left), _LONGEST_WAIT))

    def _check(self) -> None:
        now, expired = self._pipeline.now(), []
        while self._heap and self._heap[0][0] <= now:
            _, place, key = heappop(self._heap)
            watched = self._watched.get(key)
            if watched is None or watched.place != place:
                continue  # deleted, or modified since
            hit = watched.table.last_hit(watched.entry)
            begin = now if hit is None else hit
            if begin + watched.ttl <= now:
                expired.append(watched.message)
                begin = now
            self._look(key, watched, begin + watched.ttl)
        self._notify(expired)

    def _look(self, key: Any, watched: _Watched, when: int) -> None:
        """Look at an entry at this time, when it is idle if no packet hits it before. Its place in the heap until now counts no
        more."""
        self._places += 1
        watched.place = self._places
        heappush(self._heap, (when, watched.place, key))
        if len(self._heap) > 2 * len(self._watched) + _SLACK:
            self._heap = [each for each in self._heap if each[2] in self._watched and self._watched[each[2]].place == each[1]]
            heapify(self._heap)

    def _notify(self, expired: list[Any]) -> None:
        """Send notifications of these entries, each of a size that clients take."""
        while expired:
            response = p4runtime_pb2.StreamMessageResponse()
            notification = response.idle_timeout_notification
            notification.timestamp = time.time_ns()
            size = count = 0
            while count < len(expired) and (count == 0 or size + expired[count].ByteSize() <= _MESSAGE_BYTES):
                size += expired[count].ByteSize()
                count += 1
            notification.table_entry.extend(expired[:count])
            expired = expired[count:]
            self._send(response)
