"""Drives calls that share a window and a transport: sends, receives, and ends the calls whose results have arrived.

Whoever waits for a call drives all of them. No thread runs unless a call was started asynchronously; then one drives them in the
background as long as calls are outstanding.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from netsum.errors import ClosedError, CommunicatorError, NetsumError
from netsum.fork_guard import ForkGuard
from netsum.transports.base import Packet, Transport
from netsum.window import LONE_SLICE, WAIT_SLICE
from netsum.work import Work

_SHARES: Final = 8
"""Results are taken a share of a window at a time, if they come more slowly than that: the rest of it keeps the links busy."""


class Timed(Protocol):
    """What a window knows of time."""

    @property
    def rtt(self) -> float:
        """Seconds of a usual round trip; 0: not known yet."""


class Driven(Protocol):
    """A window, as far as it is driven; :class:`netsum.window.Window` says more."""

    @property
    def stats(self) -> Timed: ...
    def poll(self, now: float) -> Sequence[Packet]: ...
    def next_deadline(self) -> float | None: ...
    def receive_all(self, packets: Sequence[memoryview], now: float) -> None: ...


AnyWork = TypeVar("AnyWork", bound=Work[Any])


class Driver(ABC, Generic[AnyWork]):
    """Thread-safe."""

    name: str
    """What errors call it."""
    thread_name: str
    window: Driven

    def __init__(self, transport: Transport) -> None:
        self.fork_guard = ForkGuard()
        self._transport = transport
        self._works: deque[AnyWork] = deque()
        self._gate = threading.Lock()  # guards what a caller changes: the list of works and how everything ended
        self._lock = threading.RLock()  # held by whoever drives
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._closed = False
        self._batch = 0  # how many packets came last
        self._unseen = False  # whether there is anything that flows may not have seen

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return bool(self._works)

    def _begin(self, work: AnyWork, *, background: bool) -> AnyWork:
        """Take a call, after all earlier ones."""
        with self._gate:
            if self._failure is not None:
                raise ClosedError(f"the {self.name} has ended: {_words(self._failure)}") from self._failure
            if self._closed:
                raise ClosedError(f"the {self.name} is closed")
            self._works.append(work)
            self._unseen = True
            if background and self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self.thread_name, daemon=True)
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
        self.fork_guard.check()
        until = None if timeout is None else time.monotonic() + timeout
        while not work.over and (until is None or time.monotonic() < until):
            if not self._lock.acquire(blocking=False):
                # Another thread drives this call too. Not a wait for the lock: it is unfair, and that could take long.
                work.finished(WAIT_SLICE if until is None else min(WAIT_SLICE, max(0.0, until - time.monotonic())))
                continue
            try:
                if not work.over:
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
        """Send, receive one batch (waiting for it at most ``until`` then), resume the flows whose results have arrived."""
        try:
            self._turn(until, wait=wait)
        except NetsumError as error:
            self._fail(error)
        except OSError as error:
            self._fail(CommunicatorError(f"the link failed: {error}"))
        except BaseException as error:
            # Ctrl-C or a bug: the flows may have missed a step, so nothing can continue.
            self._fail(error)
            raise

    def _turn(self, until: float | None, *, wait: bool) -> None:
        if self._unseen:
            self._advance()
        due = self.window.next_deadline()
        if due is not None and due <= time.monotonic():
            self._receive(0.0)  # first what is waiting: a process that was stopped for long has its results already
        if packets := self._outgoing(time.monotonic()):
            self._transport.send(packets)
        self._receive(self._patience(until) if wait else 0.0)
        self._time_out(time.monotonic())  # last, for the same reason

    def _receive(self, patience: float) -> None:
        packets = self._transport.recv(patience)
        self._batch, self._unseen = len(packets), True
        self.window.receive_all(packets, time.monotonic())
        self._advance()

    def _patience(self, until: float | None) -> float:
        """How long to wait for a packet. While a window of results is on its way, let some gather first: a turn costs much more
        than a packet."""
        works = list(self._works)
        if not works:
            return 0.0
        now, rtt = time.monotonic(), self.window.stats.rtt
        end = now + (LONE_SLICE if self._alone else WAIT_SLICE)
        for moment in (self.window.next_deadline(), until, *[work.deadline for work in works]):
            if moment is not None and moment < end:
                end = moment
        if self._batch < self._awaited // _SHARES and rtt and end > now:
            time.sleep(min(rtt / _SHARES, end - now))
            now = time.monotonic()
        return max(0.0, end - now)

    @property
    def _alone(self) -> bool:
        """Whether nobody begins a call while this thread waits."""
        return self._thread is None

    @property
    @abstractmethod
    def _awaited(self) -> int:
        """How many results may come in one batch."""

    def _outgoing(self, now: float) -> Sequence[Packet]:
        return self.window.poll(now)

    @abstractmethod
    def _advance(self) -> None:
        """Resume flows until none can continue, and clear ``_unseen``."""

    @abstractmethod
    def _time_out(self, now: float) -> None:
        """End the calls whose time is over."""

    def _fail(self, error: BaseException) -> None:
        """Take no more calls, and end those under way with an error."""
        # A KeyboardInterrupt is for the thread that it hit, not for every thread that waits for a call.
        self._end(error if isinstance(error, Exception) else ClosedError(f"interrupted: {_words(error)}"), error)

    def _end(self, raised: Exception, failure: BaseException | None = None) -> None:
        with self._gate:
            self._failure = self._failure or failure
            works = list(self._works)
            self._works.clear()
        for work in works:
            work.flow.close()
            work.finish(error=raised)

    def close(self) -> None:
        """End calls under way with ClosedError and close the transport. May be called twice; has no effect in a forked
        process."""
        if not self.fork_guard.here:
            return
        with self._gate:
            if self._closed:
                return
            self._closed = True  # the thread sees it and ends, so that the lock comes free
        with self._lock:
            self._end(ClosedError(f"the {self.name} was closed while the call was under way"))
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._leave()
        with contextlib.suppress(OSError):
            self._transport.close()

    def _leave(self) -> None:
        """Say goodbye."""


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
