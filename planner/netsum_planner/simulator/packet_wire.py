# SPDX-License-Identifier: MIT
"""Events in order of time, and wires with queues of packets."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Arrive = Callable[["Frame"], None]


@dataclass(slots=True)
class Frame:
    """A packet on a wire: ``size`` bytes there, whatever ``data`` says. ``marked``: a queue on its way was long (ECN)."""

    data: Any
    size: int
    marked: bool = False


class Clock:
    """Makes scheduled calls, in order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self.count = 0

    def at(self, time: float, call: Callable[..., None], *arguments: Any) -> None:
        self._order += 1
        heapq.heappush(self._events, (time, self._order, call, arguments))

    def step(self) -> bool:
        """Make the next call; False if there is none."""
        if not self._events:
            return False
        self.now, _, call, arguments = heapq.heappop(self._events)
        self.count += 1
        call(*arguments)
        return True


@dataclass
class PacketCounts:
    """Counts of packets. ``longest``: of a queue, in bytes."""

    sent: int = 0
    sent_bytes: int = 0
    lost: int = 0
    dropped: int = 0
    marked: int = 0
    longest: float = 0.0


@dataclass
class PacketWire:
    """One direction of a link: ``rate`` bytes a second, ``delay`` seconds. A packet that finds more than ``queue`` bytes waiting
    is dropped, one that finds more than ``ecn`` is marked, and one is lost with the probability ``loss``."""

    clock: Clock
    rate: float
    delay: float
    queue: float
    ecn: float
    loss: float
    random: random.Random
    arrive: Arrive
    up: bool = True
    tally: PacketCounts = field(default_factory=PacketCounts)
    _free: float = 0.0

    @property
    def carried_bytes(self) -> float:
        """The bytes that have left by now, without those that wait in the queue."""
        return self.tally.sent_bytes - max(0.0, self._free - self.clock.now) * self.rate

    def send(self, frame: Frame) -> None:
        now, tally = self.clock.now, self.tally
        waiting = max(0.0, self._free - now) * self.rate
        tally.longest = max(tally.longest, waiting)
        if waiting > self.queue:
            tally.dropped += 1
            return
        if waiting > self.ecn and not frame.marked:
            frame = Frame(frame.data, frame.size, True)
            tally.marked += 1
        tally.sent += 1
        tally.sent_bytes += frame.size
        self._free = max(now, self._free) + frame.size / self.rate
        if not self.up or (self.loss and self.random.random() < self.loss):
            tally.lost += 1
            return
        self.clock.at(self._free + self.delay, self._arrives, frame)

    def _arrives(self, frame: Frame) -> None:
        if self.up:
            self.arrive(frame)
        else:
            self.tally.lost += 1
