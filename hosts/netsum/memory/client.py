"""Drives calls on memory in the network: passes what they submit through the window and the transport, and ends them when their
replies have come.

Whoever waits for a call drives all calls of the client. No thread runs unless a call was started asynchronously; then one drives
the client in the background as long as calls are outstanding. A call that fails or times out ends alone.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

from netsum.errors import Closed, CommunicatorError, NetsumError, Timeout, words
from netsum.home import Home
from netsum.memory.run import Run, Task
from netsum.memory.stats import MemoryStats
from netsum.memory.window import MemoryWindow
from netsum.transports.base import Transport
from netsum.transports.multicast import Joins
from netsum.transports.only_from import Address
from netsum.window import LONE_SLICE, WAIT_SLICE
from netsum.work import Flow, Work

_SHARES: Final = 8
"""Replies are taken a share of a window at a time, if they come more slowly than that."""


class MemoryWork(Work[Any]):
    """A call under way; ``task`` is what it has submitted."""

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


class MemoryClient:
    """One client's window, transport and calls. Thread-safe. Regions may share one; each then waits for the others' replies once
    256 instructions are under way."""

    def __init__(self, transport: Transport, *, timeout: float | None = None, shards: int = 1) -> None:
        """``timeout``: seconds that a call may take. ``shards`` is how many parts the memory is in."""
        self.home = Home()
        self.timeout = timeout
        self._window = MemoryWindow(shards)
        self._transport = transport
        self._works: deque[MemoryWork] = deque()
        self._gate = threading.Lock()  # guards what a caller changes: the list of works and how the client ended
        self._lock = threading.RLock()  # held by whoever drives
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._closed = False
        self._batch = 0  # how many packets came last

    @property
    def stats(self) -> MemoryStats:
        return self._window.stats

    def join(self, group: Address) -> None:
        """From now on take also what devices send to this group. Raises OSError if the transport has no multicast."""
        if not isinstance(self._transport, Joins):
            raise OSError(f"{type(self._transport).__name__} cannot join a group")
        with self._lock:
            self._transport.join(group)

    def submit(self, run: Run) -> None:
        """Queue instructions; for flows."""
        self._window.submit(run)

    def start(self, flow: Callable[[Task], Flow], timeout: float | None = None, *, background: bool) -> MemoryWork:
        """Begin a call: a flow submits runs of its task, and yields conditions that it waits for, such as ``task.done``."""
        self.home.check()
        work = MemoryWork(self, flow, self.timeout if timeout is None else timeout)
        with self._gate:
            if self._failure is not None:
                raise Closed(f"the client of memory has ended: {words(self._failure)}") from self._failure
            if self._closed:
                raise Closed("the client of memory is closed")
            self._works.append(work)
            if background and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="netsum memory", daemon=True)
                self._thread.start()
        # Whoever drives already will find the call; if nobody does, its first packets go out now.
        if background and self._lock.acquire(blocking=False):
            try:
                self._step(wait=False)
            finally:
                self._lock.release()
        return work

    def drive(self, work: Work[Any], timeout: float | None) -> None:
        """Run until ``work`` is done or ``timeout`` seconds are over."""
        self.home.check()
        until = None if timeout is None else time.monotonic() + timeout
        while not work.done() and (until is None or time.monotonic() < until):
            if not self._lock.acquire(blocking=False):
                # Another thread drives this call too. Not a wait for the lock: it is unfair, and that could take long.
                work.finished(WAIT_SLICE if until is None else min(WAIT_SLICE, max(0.0, until - time.monotonic())))
                continue
            try:
                if not work.done():
                    self._step(until)
            finally:
                self._lock.release()

    def _run(self) -> None:
        while True:
            with self._gate:
                if not self._works or self._closed:
                    self._thread = None
                    return
            with self._lock:
                try:
                    self._step()
                except BaseException:
                    # Every call under way has the error, and raises it where it is waited for.
                    continue
            time.sleep(0)  # let another thread take the lock

    def _step(self, until: float | None = None, *, wait: bool = True) -> None:
        """Send, receive one batch (waiting for it at most ``until`` then), resume the flows whose replies have arrived."""
        try:
            self._advance()
            due = self._window.next_deadline()
            if due is not None and due <= time.monotonic():
                self._receive(0.0)  # first what is waiting: a process that was stopped for long has its replies already
            if packets := self._window.poll(time.monotonic()):
                self._transport.send(packets)
            self._receive(self._patience(until) if wait else 0.0)
            self._time_out(time.monotonic())  # last, for the same reason
        except NetsumError as error:
            self._fail(error)
        except OSError as error:
            self._fail(CommunicatorError(f"the link failed: {error}"))
        except BaseException as error:
            # Ctrl-C or a bug: a step may have been missed, so nothing can continue.
            self._fail(error)
            raise

    def _receive(self, patience: float) -> None:
        """Take one batch, and resume the flows whose replies have arrived."""
        received = self._transport.recv(patience)
        self._batch = len(received)
        if received:
            self._window.receive_all(received, time.monotonic())
            self._advance()

    def _patience(self, until: float | None) -> float:
        """How long to wait for a packet. While many replies are on their way, let some gather first: a turn costs much more than
        a packet."""
        window, works = self._window, list(self._works)
        if not works:
            return 0.0
        now = time.monotonic()
        end = now + (LONE_SLICE if self._thread is None else WAIT_SLICE)
        for moment in (window.next_deadline(), until, *[work.deadline for work in works]):
            if moment is not None and moment < end:
                end = moment
        if self._batch < window.under_way // _SHARES and window.stats.rtt and end > now:
            time.sleep(min(window.stats.rtt / _SHARES, end - now))
            now = time.monotonic()
        return max(0.0, end - now)

    def _advance(self) -> None:
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
            self._window.give_up(work.task)
        work.flow.close()
        work.finish(value, error)

    def _time_out(self, now: float) -> None:
        for work in list(self._works):
            if work.over or work.deadline is None or now < work.deadline:
                continue
            oldest = self._window.give_up(work.task)
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
            self._end_one(work, error=Timeout(text))
        self._forget_ended()

    def _fail(self, error: BaseException) -> None:
        """End the client: every call under way raises."""
        with self._gate:
            self._failure = self._failure or error
        self._end_all(error if isinstance(error, Exception) else Closed(f"interrupted: {words(error)}"))

    def _end_all(self, error: Exception) -> None:
        with self._gate:
            works = list(self._works)
            self._works.clear()
        for work in works:
            work.flow.close()
            work.finish(error=error)

    def close(self) -> None:
        """End calls under way with Closed and close the transport. May be called twice; has no effect in a forked process."""
        if not self.home.here:
            return
        with self._gate:
            if self._closed:
                return
            self._closed = True  # the thread sees it and ends, so that the lock comes free
        with self._lock:
            self._end_all(Closed("the client of memory was closed while the call was under way"))
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with contextlib.suppress(OSError):
            self._transport.close()
