# SPDX-License-Identifier: MIT
"""A port on an unreliable wire: frames are lost, duplicated, reordered and delayed in each direction, from a seed.

It wraps any port and does not look into frames. With the same seed, the same sequence of frames meets the same faults.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import random
import select
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from netsum_switch.errors import SwitchError
from netsum_switch.ports.base import Port, PortCounters

# The argument of `--faults`: the faults of each port's wire.
#
#     {"seed": 1,
#      "ports": {"1": {"in": {"loss": 0.05, "burst": 4}, "out": {"reorder": 0.1}},
#                "*": {"in": {"duplicate": 0.01}, "out": {"delay_ms": 1.5, "jitter_ms": 0.5}}}}
#
# It is JSON, in a file or on the command line. `*` stands for all ports that are not named.


ALL = "*"


class FaultsError(SwitchError):
    """`--faults` is invalid; the message names the key."""


@dataclass(frozen=True, slots=True)
class Rates:
    """One direction of a wire. `loss`, `duplicate`, `reorder`: probabilities for a frame; `burst`: frames lost together on
    average, at least 1; `delay`, `jitter`: seconds that every frame is held, and at most as many more; `hold`: seconds that
    a reordered one is held."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    burst: float = 1.0
    delay: float = 0.0
    jitter: float = 0.0
    hold: float = 0.002


@dataclass(frozen=True, slots=True)
class PortFaults:
    """`into` the switch and `out` of it."""

    into: Rates = Rates()
    out: Rates = Rates()


@dataclass(frozen=True)
class Faults:
    """The faults of all ports, by number; `others` are those of the ports that are not named."""

    seed: int = 0
    ports: Mapping[int, PortFaults] = field(default_factory=dict)
    others: PortFaults = PortFaults()

    def of(self, number: int) -> PortFaults:
        return self.ports.get(number, self.others)

    @classmethod
    def load(cls, given: str) -> Self:
        """Read faults from a JSON text (which begins with a brace) or file. Raises FaultsError if it cannot be read or
        is invalid."""
        text, source = given, "--faults"
        if not given.lstrip().startswith("{"):
            source = given
            try:
                text = Path(given).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise FaultsError(f"cannot read {given}: {getattr(error, 'strerror', None) or error}") from error
        try:
            document = json.loads(text)
        except ValueError as error:
            raise FaultsError(f"{source} is not JSON: {error}") from error
        return cls._parse(document, source)

    @classmethod
    def _parse(cls, document: Any, source: str) -> Self:
        top = _table(document, source, ("seed", "ports"))
        seed = top.get("seed", 0)
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise FaultsError(f"{source}: seed is {seed!r}, not a whole number")
        ports: dict[int, PortFaults] = {}
        others = PortFaults()
        for key, value in _table(top.get("ports", {}), f"{source}: ports", None).items():
            where = f"{source}: ports.{key}"
            parts = _table(value, where, ("in", "out"))
            faults = PortFaults(*(_rates(parts.get(name, {}), f"{where}.{name}") for name in ("in", "out")))
            if key == ALL:
                others = faults
            elif key.isdecimal():
                ports[int(key)] = faults
            else:
                raise FaultsError(f"{where}: ports are numbers, or * for all others")
        return cls(seed, ports, others)


def _table(value: Any, where: str, known: tuple[str, ...] | None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FaultsError(f"{where} is {value!r}, not an object")
    for key in value:
        if known is not None and key not in known:
            raise FaultsError(f"{where}: {key} is not one of {', '.join(known)}")
    return value


_LIMITS = {"loss": (0.0, 1.0), "duplicate": (0.0, 1.0), "reorder": (0.0, 1.0), "burst": (1.0, 1e6)}
_TIMES = {"delay_ms": "delay", "jitter_ms": "jitter", "hold_ms": "hold"}


def _rates(value: Any, where: str) -> Rates:
    given = _table(value, where, (*_LIMITS, *_TIMES))
    rates: dict[str, float] = {}
    for key, number in given.items():
        low, high = _LIMITS.get(key, (0.0, 60_000.0))
        if not isinstance(number, int | float) or isinstance(number, bool) or not low <= number <= high:
            raise FaultsError(f"{where}.{key} is {number!r}, not a number from {low:g} to {high:g}")
        rates[_TIMES.get(key, key)] = number / 1000 if key in _TIMES else float(number)
    return Rates(**rates)


@dataclass(slots=True)
class FaultCounts:
    """Counts of the faults of one direction."""

    frames: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    delayed: int = 0


class _Direction:
    """One direction: which frames pass now, and which are held until later."""

    def __init__(self, rates: Rates, seed: str) -> None:
        self.rates = rates
        self.counts = FaultCounts()
        self.held: list[tuple[float, int, bytes]] = []
        self._rng = random.Random(seed)
        self._serial = 0
        self._losing = False

    def passed(self, frame: bytes, now: float) -> list[bytes]:
        """The frames that pass now instead of this one."""
        counts, rates, rng = self.counts, self.rates, self._rng
        counts.frames += 1
        if self._lost():
            counts.lost += 1
            return []
        copies = 1
        if rng.random() < rates.duplicate:
            counts.duplicated += 1
            copies = 2
        if rng.random() < rates.reorder:
            counts.reordered += 1
            self._hold(frame, now + rates.hold + self._latency())
            copies -= 1
        if not (rates.delay or rates.jitter):
            return [frame] * copies
        counts.delayed += copies
        for _ in range(copies):
            self._hold(frame, now + self._latency())
        return []

    def due(self, now: float) -> list[bytes]:
        """Held frames that are due, in order."""
        released = []
        while self.held and self.held[0][0] <= now:
            released.append(heapq.heappop(self.held)[2])
        return released

    def _hold(self, frame: bytes, due: float) -> None:
        self._serial += 1
        heapq.heappush(self.held, (due, self._serial, frame))

    def _latency(self) -> float:
        rates = self.rates
        return rates.delay + rates.jitter * self._rng.random() if rates.jitter else rates.delay

    def _lost(self) -> bool:
        """Gilbert's model: all frames of a burst are lost, and bursts begin so often that `loss` is the share of lost frames."""
        rates = self.rates
        if rates.loss in (0.0, 1.0) or rates.burst == 1.0:
            return self._rng.random() < rates.loss
        chance = 1.0 - 1.0 / rates.burst if self._losing else rates.loss / (rates.burst * (1.0 - rates.loss))
        self._losing = self._rng.random() < chance
        return self._losing


class FaultyPort:
    """Wraps `inner` and shows its counters, which count frames on the wire."""

    def __init__(self, inner: Port, into: Rates, out: Rates, seed: int) -> None:
        """`into` and `out`: what happens to received and to sent frames."""
        self.number = inner.number
        self.name = inner.name
        self.counters: PortCounters = inner.counters
        self.inner = inner
        self._into = _Direction(into, f"{seed} {inner.number} in")
        self._out = _Direction(out, f"{seed} {inner.number} out")
        # Readable if the wire is, and when a held frame is due.
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.epoll()
        for descriptor in (inner.fileno(), self._wake):
            self._poll.register(descriptor, select.EPOLLIN)
        self._changed = threading.Condition()
        self._next: float | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def counts(self) -> dict[str, FaultCounts]:
        """Counts of the faults so far, by direction."""
        return {"in": self._into.counts, "out": self._out.counts}

    def set(self, into: Rates, out: Rates) -> None:
        """Set the faults from now on; held frames stay held. Call it under the data plane's lock or from its thread."""
        self._into.rates, self._out.rates = into, out

    def fileno(self) -> int:
        return self._poll.fileno()

    def receive(self) -> list[bytes]:
        now = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        for frame in self._out.due(now):
            self.inner.send(frame)
        frames = self._into.due(now)
        for frame in self.inner.receive():
            frames += self._into.passed(frame, now)
        self._schedule()
        return frames

    def send(self, frame: bytes) -> None:
        for passed in self._out.passed(frame, time.monotonic()):
            self.inner.send(passed)
        self._schedule()

    def is_full(self) -> bool:
        return self.inner.is_full()

    def close(self) -> None:
        """Close the wire; held frames are lost."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._poll.close()
        os.close(self._wake)
        self.inner.close()

    def _schedule(self) -> None:
        """Wake the data plane when the next held frame is due."""
        moments = [direction.held[0][0] for direction in (self._into, self._out) if direction.held]
        following = min(moments, default=None)
        if following == self._next:
            return
        with self._changed:
            self._next = following
            if self._thread is None:
                self._thread = threading.Thread(target=self._alarm, name=f"faults-{self.number}", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _alarm(self) -> None:
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                if self._next is not None and self._next <= now:
                    os.eventfd_write(self._wake, 1)
                    self._next = None
                self._changed.wait(None if self._next is None else self._next - now)
