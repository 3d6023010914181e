# SPDX-License-Identifier: MIT
"""A deliberately bad network: drops, duplicates, reorders and delays packets in each direction, from a seed."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from netsum.packet_batch import ReceiveBatch, congested
from netsum.transports.base import Packet, Transport
from netsum.transports.peer_filter import Address
from netsum.transports.udp import Joins


@dataclass(frozen=True)
class Impairment:
    """The faults of one direction.

    Attributes:
        drop, duplicate, reorder: probabilities, each for one packet.
        delay: how long a reordered packet is held back, seconds.
        burst: packets that are lost together on average, 1 or more; ``drop`` remains the fraction of all packets lost.
        latency: how long every packet is held, seconds.
        jitter: additional uniformly random latency up to this, seconds; it also reorders.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.002
    burst: float = 1.0
    latency: float = 0.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        for name in ("drop", "duplicate", "reorder"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}, not a probability")
        for name in ("delay", "latency", "jitter"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name} is {getattr(self, name)}; seconds cannot be negative")
        if not self.burst >= 1.0:
            raise ValueError(f"burst is {self.burst}; at least 1 packet is lost at a time")


@dataclass
class ImpairmentCounts:
    """Counts of the faults so far, both directions together."""

    packets: int = 0
    dropped: int = 0
    duplicated: int = 0
    reordered: int = 0
    delayed: int = 0
    cut: int = 0
    """Lost because the link was cut."""


@dataclass(order=True)
class _Held:
    due: float
    serial: int
    packet: bytes = field(compare=False)


class _Direction:
    """One direction: decides what happens to each packet, and holds those that are delayed."""

    def __init__(self, faults: Impairment, seed: str, counts: ImpairmentCounts, clock: Callable[[], float]) -> None:
        self.faults = faults
        self._rng = random.Random(seed)
        self._counts = counts
        self._clock = clock
        self._serial = 0
        self._losing = False
        self.held: list[_Held] = []

    def due(self) -> list[bytes]:
        """Packets that have been held long enough, in the order in which they are due."""
        released = []
        now = self._clock()
        while self.held and self.held[0].due <= now:
            released.append(heapq.heappop(self.held).packet)
        return released

    def copies(self, packet: Packet) -> int:
        """The number of copies of the packet to pass on now; later ones are held."""
        counts, faults, rng = self._counts, self.faults, self._rng
        counts.packets += 1
        if self._lost():
            counts.dropped += 1
            return 0
        copies = 1
        if rng.random() < faults.duplicate:
            counts.duplicated += 1
            copies = 2
        late = 0
        if rng.random() < faults.reorder:
            counts.reordered += 1
            late = 1
            self._hold(packet, faults.delay + self._latency())
        if faults.latency or faults.jitter:
            counts.delayed += copies - late
            for _ in range(copies - late):
                self._hold(packet, self._latency())
            return 0
        return copies - late

    def _lost(self) -> bool:
        """Gilbert's model: in a burst every packet is lost. A burst ends with probability 1/burst, and begins often enough to
        make ``drop`` the fraction that is lost. If burst is 1, packets are lost independently."""
        faults = self.faults
        if faults.drop in (0.0, 1.0) or faults.burst == 1.0:
            return self._rng.random() < faults.drop
        chance = 1.0 - 1.0 / faults.burst if self._losing else faults.drop / (faults.burst * (1.0 - faults.drop))
        self._losing = self._rng.random() < chance
        return self._losing

    def _latency(self) -> float:
        faults = self.faults
        return faults.latency + faults.jitter * self._rng.random() if faults.jitter else faults.latency

    def _hold(self, packet: Packet, seconds: float) -> None:
        self._serial += 1
        heapq.heappush(self.held, _Held(self._clock() + seconds, self._serial, b"".join(packet)))


class ImpairedTransport:
    """Wraps ``inner``; closing it closes ``inner``. The same seed and the same order of packets give the same faults. While
    ``cut`` is True, nothing passes in either direction; it may be set at any time."""

    def __init__(
        self,
        inner: Transport,
        faults: Impairment,
        seed: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        receiving: Impairment | None = None,
        counts: ImpairmentCounts | None = None,
    ) -> None:
        """``faults`` apply to both directions unless ``receiving`` is given. ``counts`` continues those of an earlier
        transport."""
        self._inner = inner
        self._clock = clock
        self.cut = False
        self.counts = ImpairmentCounts() if counts is None else counts
        self._outgoing = _Direction(faults, f"send {seed}", self.counts, clock)
        self._incoming = _Direction(faults if receiving is None else receiving, f"receive {seed}", self.counts, clock)
        self._stalled_until: float | None = None

    @property
    def last_error(self) -> str | None:
        return getattr(self._inner, "last_error", None)

    def stall(self, seconds: float) -> None:
        """Make the next send or receive wait until this many seconds from now, as if the process got no processor time."""
        self._stalled_until = self._clock() + seconds

    def _stand_still(self) -> None:
        until, self._stalled_until = self._stalled_until, None
        if until is not None:
            time.sleep(max(0.0, until - self._clock()))

    def _pass_on(self, packets: list[Packet]) -> None:
        if self.cut:
            self.counts.cut += len(packets)
        else:
            self._inner.send(packets)

    def send(self, packets: Sequence[Packet]) -> None:
        self._stand_still()
        passed: list[Packet] = [(held,) for held in self._outgoing.due()]
        for packet in packets:
            passed.extend([packet] * self._outgoing.copies(packet))
        self._pass_on(passed)

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        self._stand_still()
        marked = 0
        deadline = None if timeout is None else self._clock() + timeout
        while True:
            if late := self._outgoing.due():
                self._pass_on([(packet,) for packet in late])
            passed = [memoryview(packet) for packet in self._incoming.due()]
            wait = 0.0 if passed else self._wait(deadline)
            received = self._inner.recv(wait)
            if self.cut:
                self.counts.cut += len(received)
                received = []
            marked += congested(received)
            for packet in received:
                passed.extend([packet] * self._incoming.copies((packet,)))
            if passed or (deadline is not None and self._clock() >= deadline):
                return ReceiveBatch.of(passed, marked) if marked else passed

    def _wait(self, deadline: float | None) -> float | None:
        """Until the deadline or the next held packet, whichever comes first."""
        moments = [direction.held[0].due for direction in (self._outgoing, self._incoming) if direction.held]
        if deadline is not None:
            moments.append(deadline)
        return max(0.0, min(moments) - self._clock()) if moments else None

    def join(self, group: Address) -> None:
        """See :class:`netsum.transports.udp.Joins`."""
        if not isinstance(self._inner, Joins):
            raise OSError(f"{type(self._inner).__name__} cannot join a group")
        self._inner.join(group)

    def fileno(self) -> int | None:
        # A readable descriptor is not enough: held packets become due with time.
        return None

    def close(self) -> None:
        self._inner.close()
