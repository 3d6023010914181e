"""A bad network on purpose: drops, doubles, reorders and delays packets in both directions, from a seed."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from netsum.transports.base import Packet, Transport


@dataclass(frozen=True)
class Faults:
    """Probabilities, each for one packet in one direction; ``delay`` is how long a reordered packet is held, seconds."""

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.002

    def __post_init__(self) -> None:
        for name in ("drop", "duplicate", "reorder"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}, not a probability")


@dataclass
class FaultCounts:
    """What was done to the packets so far, both directions together."""

    packets: int = 0
    dropped: int = 0
    duplicated: int = 0
    reordered: int = 0


@dataclass(order=True)
class _Held:
    due: float
    serial: int
    packet: bytes = field(compare=False)


class FaultyTransport:
    """Wraps ``inner``. Same seed and same order of packets: same faults. Closing closes ``inner``."""

    def __init__(
        self,
        inner: Transport,
        faults: Faults,
        seed: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._faults = faults
        self._sending = random.Random(f"send {seed}")
        self._receiving = random.Random(f"receive {seed}")
        self._clock = clock
        self._serial = 0
        self._outgoing: list[_Held] = []
        self._incoming: list[_Held] = []
        self.counts = FaultCounts()

    def _hold(self, queue: list[_Held], packet: bytes) -> None:
        self._serial += 1
        heapq.heappush(queue, _Held(self._clock() + self._faults.delay, self._serial, packet))

    def _due(self, queue: list[_Held]) -> list[bytes]:
        released = []
        now = self._clock()
        while queue and queue[0].due <= now:
            released.append(heapq.heappop(queue).packet)
        return released

    def _copies(self, rng: random.Random, queue: list[_Held], packet: Packet) -> int:
        """How often to pass the packet on now; a reordered one is held instead."""
        counts, faults = self.counts, self._faults
        counts.packets += 1
        if rng.random() < faults.drop:
            counts.dropped += 1
            return 0
        copies = 1
        if rng.random() < faults.duplicate:
            counts.duplicated += 1
            copies = 2
        if rng.random() < faults.reorder:
            counts.reordered += 1
            self._hold(queue, b"".join(packet))
            copies -= 1
        return copies

    def send(self, packets: Sequence[Packet]) -> None:
        passed: list[Packet] = [(held,) for held in self._due(self._outgoing)]
        for packet in packets:
            passed.extend([packet] * self._copies(self._sending, self._outgoing, packet))
        self._inner.send(passed)

    def recv(self, timeout: float | None) -> list[memoryview]:
        deadline = None if timeout is None else self._clock() + timeout
        while True:
            if late := self._due(self._outgoing):
                self._inner.send([(packet,) for packet in late])
            passed = [memoryview(packet) for packet in self._due(self._incoming)]
            wait = 0.0 if passed else self._wait(deadline)
            for packet in self._inner.recv(wait):
                passed.extend([packet] * self._copies(self._receiving, self._incoming, (packet,)))
            if passed or (deadline is not None and self._clock() >= deadline):
                return passed

    def _wait(self, deadline: float | None) -> float | None:
        """Until the deadline or the next held packet, whichever comes first."""
        moments = [queue[0].due for queue in (self._outgoing, self._incoming) if queue]
        if deadline is not None:
            moments.append(deadline)
        return max(0.0, min(moments) - self._clock()) if moments else None

    def fileno(self) -> int | None:
        # Readable says too little here: held packets become due by time.
        return None

    def close(self) -> None:
        self._inner.close()
