# SPDX-License-Identifier: MIT
"""Flows that share a link, on a clock of their own: a queue that marks from some length on and drops above another."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

from netsum.core.congestion import CongestionWindow


class Flow(Protocol):
    """Sends as much as it may, for ever."""

    in_flight: int

    def room(self, now: float) -> int:
        """The number of packets to send now."""

    def acknowledged(self, marked: bool) -> None:
        """One has come through."""

    def lost(self) -> None:
        """One was dropped, as the flow learns a round trip later."""

    def wakes(self) -> float:
        """The time at which it may send more although nothing comes; 0.0: never."""


class Member:
    """A member of a job, by its congestion window alone."""

    def __init__(self, window: int, rtt: float) -> None:
        self.congestion = CongestionWindow(window)
        self.in_flight = 0
        self._rtt = rtt

    def room(self, now: float) -> int:
        room = max(self.congestion.room(now, self.in_flight, self._rtt), 0)
        self.congestion.sent(room)
        return room

    def acknowledged(self, marked: bool) -> None:
        if marked:
            self.congestion.marked(1, self.in_flight + 1)
        self.congestion.arrived(1)

    def lost(self) -> None:
        self.congestion.lost(self.in_flight)

    def wakes(self) -> float:
        return self.congestion.paced_until


class Reno:
    """TCP as in RFC 5681, which takes a mark like a loss (RFC 3168)."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.window = 10.0
        self._threshold = 1e9
        self._cut_holdoff = 0

    def room(self, now: float) -> int:  # noqa: ARG002
        return max(int(self.window) - self.in_flight, 0)

    def acknowledged(self, marked: bool) -> None:
        if marked:
            self.lost()
        if self._cut_holdoff:
            self._cut_holdoff -= 1
        else:
            self.window += 1 if self.window < self._threshold else 1 / self.window

    def lost(self) -> None:
        if not self._cut_holdoff:
            self.window = self._threshold = max(self.window / 2, 2.0)
            self._cut_holdoff = self.in_flight + 1

    def wakes(self) -> float:
        return 0.0


class Bottleneck:
    """``rate`` packets a second; ``delay`` seconds of a round trip besides the queue, which marks from ``ecn`` packets on and
    holds ``queue``."""

    def __init__(self, flows: Sequence[Flow], rate: float, delay: float, ecn: int, queue: int) -> None:
        self.flows, self._rate, self._delay, self._ecn, self._queue = flows, rate, delay, ecn, queue
        self.now = 0.0
        self.delivered = [0] * len(flows)
        self.dropped = 0
        self.longest = 0
        self._free = 0.0  # when the link has sent all that is queued
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def _at(self, moment: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), event))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        for number in range(len(self.flows)):
            self._send(number)
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end

    def _send(self, number: int) -> None:
        flow = self.flows[number]
        for _ in range(flow.room(self.now)):
            flow.in_flight += 1
            self._enqueue(number)
        wakes = flow.wakes()
        if wakes > self.now:
            self._at(wakes, lambda: self._send(number))

    def _enqueue(self, number: int) -> None:
        waiting = max(self._free - self.now, 0.0) * self._rate
        self.longest = max(self.longest, int(waiting))
        if waiting >= self._queue:
            self.dropped += 1
            self._at(self._free + self._delay, lambda: self._lose(number))
            return
        self._free = max(self._free, self.now) + 1 / self._rate
        self._at(self._free + self._delay, lambda: self._deliver(number, waiting >= self._ecn))

    def _deliver(self, number: int, marked: bool) -> None:
        self.flows[number].in_flight -= 1
        self.delivered[number] += 1
        self.flows[number].acknowledged(marked)
        self._send(number)

    def _lose(self, number: int) -> None:
        self.flows[number].in_flight -= 1
        self.flows[number].lost()
        self._send(number)
