# SPDX-License-Identifier: MIT
"""Egress queues: packets that wait for their port, and those that start over and wait for their turn.

As in simple_switch, each port has a queue for each priority, the highest is served first, a full one drops what comes, and a
queue may have a rate. Two things differ. A packet waits only if its port cannot take it now, so a port that nothing slows down
costs nothing; and a slow port does not hold up the others. Machine code decides which packet waits (`native.queueing`), by memory
that both share.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from netsum_switch.errors import SwitchError
from netsum_switch.native.layout import PORT_NUMBERS, PRIORITIES, QUEUE_BYTES, QUEUES_BYTES, WAITING_AT
from netsum_switch.native.memory import Memory
from netsum_switch.ports import Port

DEFAULT_DEPTH = 64  # simple_switch's
_HIGHEST_DEPTH = 1 << 20

_RECHECK = 1_000_000  # nanoseconds until a full interface is looked at again

_MOST_DEFERRED = 1024  # packets that start over and wait, as in simple_switch; more are dropped


Job = Callable[[], list[tuple[int, bytes]]]
"""Goes on with a packet; gives (egress port, frame) of all that leaves."""


class QueueError(SwitchError):
    """Options of queues are wrong."""


@dataclass(frozen=True)
class QueueOptions:
    """What simple_switch sets over Thrift.

    Attributes:
        depth: packets that a queue holds; `depths`: the same by port.
        rate: packets per second of each queue, 0 for as fast as the interface sends; `rates`: the same by port.
        priorities: queues of a port, 1 to 8. A packet of a higher priority is dropped.
    """

    depth: int = DEFAULT_DEPTH
    rate: float = 0.0
    priorities: int = 1
    depths: Mapping[int, int] = field(default_factory=dict)
    rates: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises QueueError for what is out of range."""
        if not 1 <= self.priorities <= PRIORITIES:
            raise QueueError(f"{self.priorities} priority queues: a port has 1 to {PRIORITIES}")
        for depth in (self.depth, *self.depths.values()):
            if not 0 <= depth <= _HIGHEST_DEPTH:
                raise QueueError(f"a queue of {depth} packets: it may hold 0 to {_HIGHEST_DEPTH}")
        for rate in (self.rate, *self.rates.values()):
            if not 0 <= rate <= 1e9:
                raise QueueError(f"a rate of {rate:g} packets per second: from 0 (no limit) to 1e9")
        for port in (*self.depths, *self.rates):
            if not 0 <= port < PORT_NUMBERS:
                raise QueueError(f"port {port}: ports are numbered 0 to {PORT_NUMBERS - 1}")

    @property
    def are_wanted(self) -> bool:
        """True if packets go through queues even of programs that do not look at these."""
        return (self.depth, self.rate, self.priorities) != (DEFAULT_DEPTH, 0.0, 1) or bool(self.depths) or bool(self.rates)


class Resumable(Protocol):
    """The pipeline that a waiting packet belongs to."""

    def resume(self, port: int, record: bytes, left: int) -> list[tuple[int, bytes]]:
        """Run egress for a packet behind which `left` packets stay in its queue."""

    def start_again(self, argument: int, record: bytes) -> list[tuple[int, bytes]]:
        """Go on with a packet that started over."""


@dataclass(slots=True)
class _Queue:
    """The packets of one port and priority, each with the time from which it may leave, in nanoseconds."""

    memory_at: int
    packets: deque[tuple[int, Resumable, bytes]] = field(default_factory=deque)


class Queues:
    """The egress queues of all ports. The data-plane thread alone may use them.

    Attributes:
        memory: what machine code reads and writes: `native.layout.QUEUES_BYTES`.
    """

    def __init__(
        self, ports: Mapping[int, Port], options: QueueOptions | None = None, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """`clock`: nanoseconds."""
        self.options = options = options or QueueOptions()
        self._clock = clock
        self.memory = Memory(QUEUES_BYTES)
        self._ports = ports
        self._queues: dict[int, dict[int, _Queue]] = {}  # by port and priority, while packets wait
        self._leaves: dict[tuple[int, int], int] = {}  # when the last packet of a queue with a rate leaves
        self._order: deque[int] = deque()  # of the ports that have queues, the next to be served first
        self._deferred: deque[Job] = deque()
        self._full_until: dict[int, int] = {}
        for port in range(PORT_NUMBERS):
            for priority in range(options.priorities):
                depth = options.depths.get(port, options.depth)
                self.memory.set_number(_place(port, priority) + 4, depth, 4)
            if self._rate(port) > 0:
                self._set_waiting(port, True)

    def add(self, port: int, priority: int, record: bytes, pipeline: Resumable) -> None:
        """Put a packet in its queue. Where this has a rate, the packet leaves one interval after the one before it, as in
        simple_switch."""
        queue = self._queues.setdefault(port, {}).setdefault(priority, _Queue(_place(port, priority)))
        if port not in self._order:
            self._order.append(port)
        leaves = now = self._clock()
        if rate := self._rate(port):
            leaves = max(now, self._leaves.get((port, priority), 0) + int(1e9 / rate))
            self._leaves[port, priority] = leaves
        queue.packets.append((leaves, pipeline, record))

    def hold(self, port: int) -> None:
        """Make packets wait for a port that is full."""
        self._set_waiting(port, True)

    def defer(self, argument: int, record: bytes, pipeline: Resumable) -> bool:
        """Keep a packet that starts over until the others have had a turn. False if too many wait: it is dropped."""
        if len(self._deferred) >= _MOST_DEFERRED:
            return False
        self._deferred.append(partial(pipeline.start_again, argument, record))
        return True

    def due(self) -> int | None:
        """The time from which `take` or `take_deferred` has something to do, in nanoseconds; None if nothing waits."""
        if self._deferred:
            return self._clock()
        return min((self._leaves_at(port) for port in self._order), default=None)

    def take_deferred(self) -> Job | None:
        """The packet that started over and has waited longest, as a call that goes on with it; None if none waits."""
        return self._deferred.popleft() if self._deferred else None

    def take(self) -> Job | None:
        """A packet whose time has come, as a call that runs its egress; None if there is none. The ports take turns."""
        if (found := self._next()) is None:
            return None
        port, queue = found
        _, pipeline, record = queue.packets.popleft()
        left = self.memory.number(queue.memory_at, 4) - 1
        self.memory.set_number(queue.memory_at, left, 4)
        self._settle(port)
        return partial(pipeline.resume, port, record, left)

    def _next(self) -> tuple[int, _Queue] | None:
        """The next queue with a packet that may leave."""
        now = self._clock()
        for _ in range(len(self._order)):
            port = self._order[0]
            self._order.rotate(-1)
            if self._full_until.get(port, 0) > now:
                continue
            if port in self._ports and self._ports[port].is_full():
                self._full_until[port] = now + _RECHECK
                continue
            self._full_until.pop(port, None)
            for _, queue in sorted(self._queues[port].items(), reverse=True):
                if queue.packets[0][0] <= now:
                    return port, queue
        return None

    def _leaves_at(self, port: int) -> int:
        first = min(queue.packets[0][0] for queue in self._queues[port].values())
        return max(first, self._full_until.get(port, 0))

    def _settle(self, port: int) -> None:
        """Forget queues that are empty; without any, packets of the port wait no more, unless it has a rate."""
        queues = self._queues[port]
        for priority in [priority for priority, queue in queues.items() if not queue.packets]:
            del queues[priority]
        if not queues:
            del self._queues[port]
            self._order.remove(port)
            self._set_waiting(port, self._rate(port) > 0)

    def _rate(self, port: int) -> float:
        return self.options.rates.get(port, self.options.rate)

    def _set_waiting(self, port: int, waiting: bool) -> None:
        self.memory.data[WAITING_AT + port] = int(waiting)


def _place(port: int, priority: int) -> int:
    return (port * PRIORITIES + priority) * QUEUE_BYTES
