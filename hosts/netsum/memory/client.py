"""The client of memory devices."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netsum.errors import (
    CallTimeoutError,
)
from netsum.memory.run import Run, Task
from netsum.memory.window import MemoryStats, MemoryWindow
from netsum.progress import Driver
from netsum.transports.base import Transport
from netsum.transports.peer_filter import Address
from netsum.transports.udp import Joins
from netsum.work import Flow, Work

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


# Drives calls on memory in the network (:mod:`netsum.progress`): passes what they submit through the window and the
# transport, and ends them when their replies have come. A call that fails or times out ends alone.


class MemoryWork(Work[Any]):
    """A call in progress; ``task`` is what it has submitted."""

    def __init__(self, client: MemoryClient, flow: Callable[[Task], Flow], timeout: float | None) -> None:
        self.task = Task()
        self._callbacks: list[Callable[[MemoryWork], object]] = []
        super().__init__(client, flow(self.task), 0, timeout)

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

        def tell() -> None:
            if not over.done():  # the coroutine may have been cancelled
                over.set_result(None)

        self.add_done_callback(lambda _: loop.call_soon_threadsafe(tell))
        yield from over.__await__()
        return self.wait()

    def finish(self, value: Any = None, error: BaseException | None = None) -> None:
        super().finish(value, error)
        self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            with contextlib.suppress(Exception, IndexError):
                self._callbacks.pop()(self)


class MemoryClient(Driver[MemoryWork]):
    """One client's window, transport and calls. Thread-safe. Regions may share one; each then waits for the others' replies once
    256 instructions are in flight."""

    name, thread_name = "client of memory", "netsum memory"
    window: MemoryWindow

    def __init__(self, transport: Transport, *, timeout: float | None = None, shards: int = 1) -> None:
        """``timeout``: seconds that a call may take. ``shards`` is how many parts the memory is in."""
        super().__init__(transport)
        self.timeout = timeout
        self.window = MemoryWindow(shards)

    @property
    def stats(self) -> MemoryStats:
        return self.window.stats

    def join(self, group: Address) -> None:
        """From now on take also what devices send to this group. Raises OSError if the transport has no multicast."""
        if not isinstance(self._transport, Joins):
            raise OSError(f"{type(self._transport).__name__} cannot join a group")
        with self._lock:
            self._transport.join(group)

    def submit(self, run: Run) -> None:
        """Queue instructions; for flows."""
        self.window.submit(run)

    def start(self, flow: Callable[[Task], Flow], timeout: float | None = None, *, background: bool) -> MemoryWork:
        """Begin a call: a flow submits runs of its task, and yields conditions that it waits for, such as ``task.done``."""
        self.fork_guard.check()
        work = MemoryWork(self, flow, self.timeout if timeout is None else timeout)
        return self._begin(work, background=background)

    @property
    def _awaited(self) -> int:
        return self.window.under_way

    def _advance(self) -> None:
        self._unseen = False
        for work in list(self._works):
            while not work.over and (work.task.error or work.waiting is None or work.waiting()):
                self._resume(work)
        self._forget_ended()

    def _forget_ended(self) -> None:
        while self._works and self._works[0].over:
            self._works.popleft()

    def _resume(self, work: MemoryWork) -> None:
        """Let a flow do its next step, or end it if one of its instructions was refused."""
        try:
            if work.task.error is not None:
                raise work.task.error
            work.waiting = next(work.flow)  # type: ignore[assignment]  # memory's flows yield conditions only
        except StopIteration as end:
            self._end_one(work, end.value)
        except Exception as error:
            self._end_one(work, error=error)

    def _end_one(self, work: MemoryWork, value: Any = None, error: BaseException | None = None) -> None:
        if work.task.left:
            work.task.error = work.task.error or error
            self.window.give_up(work.task)
        work.flow.close()
        work.finish(value, error)

    def _time_out(self, now: float) -> None:
        for work in list(self._works):
            if work.over or work.deadline is None or now < work.deadline:
                continue
            oldest = self.window.give_up(work.task)
            text = f"memory: nothing to wait for in {work.timeout} s"
            if oldest is not None:
                region, address, what, tries = oldest
                text = (
                    f"region {region!r}: no reply to {what} at {address:#x} in {work.timeout} s, sent {tries} times; "
                )
                text += "it may have been done" if tries else "it has not been done"
            if work.task.answer:
                text += f"; the last answer was {work.task.answer}"
            if link := getattr(self._transport, "last_error", None):
                text += f"; the link's last error: {link}"
            self._end_one(work, error=CallTimeoutError(text))
        self._forget_ended()
