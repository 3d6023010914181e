# SPDX-License-Identifier: MIT
"""The client of memory devices."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netsum.core.progress import CallProgress, Condition, Flow, ProgressEngine, Work
from netsum.errors import CallTimeoutError
from netsum.memory.endpoint import MemoryEndpoint, MemoryStats
from netsum.memory.run import InstructionRun, Task
from netsum.text import counted
from netsum.transports.base import Transport
from netsum.transports.peer_filter import Address
from netsum.transports.udp import Joins

# Keys of tables: which shard has a key's row. Clients and devices must agree, so both take it from here.


Keys = NDArray[np.uint64]

_STEPS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def mixed(keys: NDArray[Any]) -> Keys:
    """splitmix64's finalizer: each bit of the result depends on all bits of the key."""
    values = keys.astype(np.uint64)
    for shift, factor in _STEPS:
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    values ^= values >> np.uint64(31)
    return values


def shards_of(keys: NDArray[Any], shards: int) -> Keys:
    """The shard of each key, of a power of two of shards."""
    return mixed(keys) & np.uint64(shards - 1)


# Calls on memory. A call that fails or times out ends alone.


class MemoryWork(Work[Any]):
    """A call in progress; ``task`` is what it has submitted."""

    independent = True

    def __init__(self, client: MemoryClient, flow: Callable[[Task], Flow], timeout: float | None) -> None:
        self.task = Task()
        self._client = client
        self._callbacks: list[Callable[[MemoryWork], object]] = []
        super().__init__(client.engine, flow(self.task), 0, timeout)

    def add_done_callback(self, callback: Callable[[MemoryWork], object]) -> None:
        """Call this with the call itself once that is done, in the thread that drives it then (at once if it is done). It must
        not wait for other calls; what it raises is lost."""
        self._callbacks.append(callback)
        if self.over:
            self._call_back()

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in a coroutine: ``await region.read_async(...)``."""
        import asyncio  # noqa: PLC0415  most programs do without

        loop = asyncio.get_running_loop()
        over = loop.create_future()

        def notify() -> None:
            if not over.done():  # the coroutine may have been cancelled
                over.set_result(None)

        self.add_done_callback(lambda _: loop.call_soon_threadsafe(notify))
        yield from over.__await__()
        return self.wait()

    def ready(self) -> bool:
        return self.task.error is not None or super().ready()

    def step(self) -> Condition | object:
        if self.task.error is not None:  # one of its instructions was refused
            raise self.task.error
        return super().step()

    def finish(self, value: Any = None, error: BaseException | None = None) -> None:
        if self.task.left:
            self.task.error = self.task.error or error
            self._client.endpoint.give_up(self.task)
        super().finish(value, error)
        self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            with contextlib.suppress(Exception, IndexError):
                self._callbacks.pop()(self)


class MemorySession:
    """A client's endpoint and the transport under it: a :class:`netsum.core.progress.Session`."""

    name = "client of memory"
    needs_background_progress = False

    def __init__(self, endpoint: MemoryEndpoint, transport: Transport) -> None:
        self.endpoint = endpoint
        self.transport = transport

    def begin(self, call: CallProgress) -> None:
        call.first = 0  # instructions have no blocks

    @property
    def rtt(self) -> float:
        return self.endpoint.stats.rtt

    @property
    def awaited(self) -> int:
        return self.endpoint.in_flight

    def fileno(self) -> int | None:
        return self.transport.fileno()

    def next_deadline(self) -> float | None:
        return self.endpoint.next_deadline()

    def recover(self) -> bool:
        return False  # what a device refuses is refused for good

    def progress(self) -> None:
        """Nothing to do: no other client waits for this one's packets."""

    abort = progress

    def send(self, now: float) -> None:
        if packets := self.endpoint.poll(now):
            self.transport.send(packets)

    def receive(self, timeout: float) -> int:
        packets = self.transport.recv(timeout)
        self.endpoint.receive(packets, time.monotonic())
        return len(packets)

    def overdue(self, works: Sequence[MemoryWork], now: float) -> Iterable[tuple[MemoryWork, CallTimeoutError]]:
        for work in works:
            if work.over or work.deadline is None or now < work.deadline:
                continue
            oldest = self.endpoint.give_up(work.task)
            text = f"memory: nothing to wait for in {work.timeout} s"
            if oldest is not None:
                region, address, what, tries = oldest
                text = f"region {region!r}: no reply to {what} at {address:#x} in {work.timeout} s, sent {tries} times; "
                text += "it may have been done" if tries else "it has not been done"
            if work.task.answer:
                text += f"; the last answer was {work.task.answer}"
            if link := getattr(self.transport, "last_error", None):
                text += f"; the link's last error: {link}"
            yield work, CallTimeoutError(text)

    def status(self, works: Sequence[MemoryWork], now: float) -> Callable[[], str]:
        text = "no call is in progress"
        if works:
            text = f"{counted(len(works), 'call')} in progress, the oldest for {now - works[0].begun:.1f} s, "
            text += f"{counted(works[0].task.left, 'instruction')} without a reply"
        return lambda: f"{self.name}: {text}"

    def failed(self, error: BaseException) -> None:
        """Nothing to note: each call raises it."""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.transport.close()


class MemoryClient:
    """One client's endpoint, transport and calls. Thread-safe. Regions may share one; each then waits for the others' replies
    once 256 instructions are in flight."""

    def __init__(self, transport: Transport, *, timeout: float | None = None, shards: int = 1) -> None:
        """``timeout``: seconds that a call may take. ``shards`` is how many parts the memory is in."""
        self.timeout = timeout
        self.endpoint = MemoryEndpoint(shards)
        self._session = MemorySession(self.endpoint, transport)
        self.engine: ProgressEngine[MemoryWork] = ProgressEngine(self._session, "netsum memory")

    @property
    def stats(self) -> MemoryStats:
        return self.endpoint.stats

    def join(self, group: Address) -> None:
        """From now on take also what devices send to this group. Raises OSError if the transport has no multicast."""
        transport = self._session.transport
        if not isinstance(transport, Joins):
            raise OSError(f"{type(transport).__name__} cannot join a group")
        with self.engine.lock:
            transport.join(group)

    def submit(self, run: InstructionRun) -> None:
        """Queue instructions; for flows."""
        self.endpoint.submit(run)

    def start(self, flow: Callable[[Task], Flow], timeout: float | None = None, *, background: bool) -> MemoryWork:
        """Begin a call: a flow submits runs of its task, and yields conditions that it waits for, such as ``task.done``."""
        self.engine.fork_guard.check()
        work = MemoryWork(self, flow, self.timeout if timeout is None else timeout)
        return self.engine.start(work, background=background)

    def close(self) -> None:
        """End calls in progress with ClosedError and close the transport. May be called twice; has no effect in a forked
        process."""
        self.engine.close()
