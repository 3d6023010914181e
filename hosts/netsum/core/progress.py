# SPDX-License-Identifier: MIT
"""The calls of a member in order, and the loop that drives them: it sends, receives, and ends them.

A call is a generator (:data:`Flow`). It submits blocks to the session and yields the condition that it waits for; the engine
resumes it once that holds. Only one flow submits at a time, in the order of the calls, so that every rank gives the same block
the same id. When a flow yields :data:`SUBMITTED`, the next one may start while the first still waits for results.

The thread that waits for a call drives all of them. No other thread runs unless a call was started asynchronously; then one
drives them in the background as long as calls are outstanding.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from netsum.core.blocks import id_distance
from netsum.core.endpoint import LONE_SLICE, WAIT_SLICE
from netsum.errors import CallError, CallTimeoutError, ClosedError, CommunicatorError, MismatchError, NetsumError
from netsum.exit_hooks import close_at_exit
from netsum.fork_guard import ForkGuard
from netsum.report import Report
from netsum.settings import seconds

_SHARES: Final = 8
"""Results are taken a share of a window at a time, if they come more slowly than that: the rest of it keeps the links busy."""

_IDLE: Final = 0.02
"""Most seconds between two calls of ``progress``."""
_BUSY: Final = 0.005
"""The same, if there is no descriptor to poll, or another thread is doing the work."""

Condition = Callable[[], bool]
"""That of a flow. :class:`PartEnded` is one, too."""
Flow = Generator[Condition | object, None, Any]
"""A generator that submits blocks and yields the condition that it waits for; the engine resumes it once that holds."""
SUBMITTED: Final = object()
"""A flow yields this when all its blocks are submitted, so that the next call may submit."""
Ended = Callable[[BaseException | None], None]
"""Called when a call has ended, with what it raises or None."""
Result = TypeVar("Result")


def nested(flow: Flow) -> Flow:
    """Return the flow as a part of another one, which submits more blocks after it: the next call waits for those too."""
    try:
        while True:
            if (step := next(flow)) is not SUBMITTED:
                yield step
    except StopIteration as end:
        return end.value


@dataclass
class CallProgress:
    """The call in words (``text``), the id of its ``first`` block, its number of ``opening`` blocks, in which the ranks agree,
    and of ``blocks`` of data, of which ``skipped`` are not sent. What is not known yet is empty or 0."""

    text: str = ""
    first: int | None = None
    opening: int = 0
    blocks: int = 0
    skipped: int = 0

    def describe(self, base: int) -> str:
        """The progress of the call if every result below block ``base`` is held; only the call if its size is not known."""
        if self.first is None or not self.blocks:
            return self.text
        held = max(0, id_distance(base, self.first))  # 0: an earlier call is in progress
        done = min(max(0, held - self.opening) + self.skipped * (held > self.opening), self.blocks)
        return f"{self.text}: {done:,} of {self.blocks:,} blocks done"


class Work(Generic[Result]):
    """A call in progress."""

    independent = False
    """True if other calls neither wait for this one nor end when it fails."""

    def __init__(
        self,
        engine: ProgressEngine[Any],
        flow: Flow,
        gen: int,
        timeout: float | None,
        report: Report | None = None,
        ended: Ended | None = None,
        progress: CallProgress | None = None,
    ) -> None:
        """``report`` is filled in as results arrive, ``progress`` by the flow; ``ended`` is called when the call has ended."""
        self._engine = engine
        self._ended = ended
        self.report = Report() if report is None else report
        self.progress = CallProgress() if progress is None else progress
        self.flow = flow
        self.gen = gen
        self.begun = time.monotonic()
        self.deadline = None if timeout is None else self.begun + timeout
        self.timeout = timeout
        self.waiting: Condition | None = None
        self.submitting = not self.independent
        self.over = False
        self._ending = threading.Lock()  # held until the call is over; an Event takes much longer to make
        self._ending.acquire()
        self._value: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """True if the call has ended, with a result or an error. Neither waits nor drives the call."""
        return self.over

    def wait(self, timeout: float | None = None) -> Result:
        """Wait for the result (a new array, or the one given as ``out``) and return it, or raise what the call raised.

        ``timeout`` (seconds) bounds only this wait, with the built-in TimeoutError; the call stays in progress.
        """
        self._engine.drive(self, None if timeout is None else seconds(timeout))
        if not self.over:
            raise TimeoutError(f"the call is still in progress after {timeout} s")
        if self._error is not None:
            raise self._error
        value: Result = self._value
        return value

    result = wait

    def finished(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds while another thread drives the call; returns whether it has ended."""
        if self._ending.acquire(timeout=timeout):
            self._ending.release()
        return self.over

    def ready(self) -> bool:
        """True if the flow can continue."""
        return self.waiting is None or self.waiting()

    def step(self) -> Condition | object:
        """Resume the flow; returns what it yields. Raises what it raises, and StopIteration with its result."""
        return next(self.flow)

    def finish(self, value: Any = None, error: BaseException | None = None) -> None:
        """End the call. Only its engine may call this."""
        if not self.over:
            self.flow.close()
            self._value, self._error = value, error
            if self._ended is not None:
                self._ended(error)
            self.over = True
            self._ending.release()


AnyWork = TypeVar("AnyWork", bound=Work[Any])


class PartEnded:
    """The condition that a ``part`` of a call has ended which another engine makes. That part has the call's deadline."""

    def __init__(self, part: Work[Any]) -> None:
        self.part = part

    def __call__(self) -> bool:
        return self.part.over


class Session(Protocol[AnyWork]):
    """An endpoint, which is a pure state machine, and the transport under it, as an engine drives them. Only one thread calls it
    at a time.

    Attributes:
        name: what has ended, in the error of a later call.
    """

    name: str

    def begin(self, call: CallProgress) -> None:
        """Note that the blocks submitted from now on are of this call."""

    @property
    def rtt(self) -> float:
        """Seconds of a usual round trip; 0: not known yet."""

    @property
    def awaited(self) -> int:
        """The number of results that may come in one batch; 0: none is worth waiting for more."""

    @property
    def needs_background_progress(self) -> bool:
        """True if :meth:`progress` must be called between calls, too."""

    def fileno(self) -> int | None:
        """A descriptor that is readable when something has arrived, or None."""

    def recover(self) -> bool:
        """Do what a refusal, or a long silence, calls for. True if the endpoint and the transport are others now."""

    def next_deadline(self) -> float | None:
        """The time when :meth:`send` may have something to send although nothing has arrived. None: only when something does."""

    def send(self, now: float) -> None:
        """Send what may be sent now."""

    def receive(self, timeout: float) -> int:
        """Wait up to ``timeout`` seconds for packets, and take them; returns how many."""

    def progress(self) -> None:
        """Between calls: receive and send what other members need."""

    def overdue(self, works: Sequence[AnyWork], now: float) -> Iterable[tuple[AnyWork, CallTimeoutError]]:
        """The calls whose time is over, with the errors that say so. ``works`` are all in progress."""

    def status(self, works: Sequence[AnyWork], now: float) -> Callable[[], str]:
        """Return a function that says in a sentence what the calls in progress (``works``) wait for. It may query the controller
        for that, so call it on a thread of its own."""

    def abort(self) -> None:
        """Tell the other ranks that this one can finish none of its calls."""

    def failed(self, error: BaseException) -> None:
        """Note that every call has ended with this error."""

    def close(self) -> None:
        """Leave, and close the transport."""


class BackgroundProgress:
    """A thread that calls ``progress`` when something has arrived, and now and then. It keeps a member in touch with the others
    between its calls: it repeats what they have not received, and acknowledges what they send."""

    def __init__(self, progress: Callable[[], bool], fileno: Callable[[], int | None]) -> None:
        """``progress()`` sends and receives whatever is due, or returns False if another thread does. ``fileno()`` is a
        descriptor that is readable when something has arrived, or None."""
        self._progress = progress
        self._fileno = fileno
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="netsum peers", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            fileno = self._fileno() if self._progress() else None
            if fileno is None:
                self._stopped.wait(_BUSY)
                continue
            readable = select.poll()
            readable.register(fileno, select.POLLIN)
            readable.poll(int(_IDLE * 1000))

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()


class ProgressEngine(Generic[AnyWork]):
    """Drives the calls of one session. Thread-safe."""

    def __init__(
        self, session: Session[AnyWork], thread_name: str = "netsum", on_close: Callable[[], None] | None = None
    ) -> None:
        """``on_close`` is called when the session has been closed."""
        self.fork_guard = ForkGuard()
        self.on_close = on_close
        self._session = session
        self._thread_name = thread_name
        self._works: deque[AnyWork] = deque()
        self._gate = threading.Lock()  # guards what a caller changes: the list of works and how everything ended
        self.lock = threading.RLock()
        """Held by the thread that drives."""
        self._thread: threading.Thread | None = None
        self._background: BackgroundProgress | None = None
        self._failure: BaseException | None = None
        self._closed = False
        self._last_batch = 0  # how many packets came last
        self._events_pending = False  # whether there is anything that flows may not have seen
        self._status_wanted = False
        self._start_background()
        close_at_exit(self)

    @property
    def busy(self) -> bool:
        """True if a call is in progress."""
        return bool(self._works)

    def print_status(self) -> None:
        """Print to standard error what the calls in progress wait for, as soon as the thread that drives them gets to it. Prints
        nothing if the session has ended."""
        if self._works:
            self._status_wanted = True
        elif not self._closed and self._failure is None:
            _print(self._session.status((), time.monotonic()))

    def start(self, work: AnyWork, *, background: bool) -> AnyWork:
        """Begin a call, after all earlier ones. With ``background``, a thread drives it too. Raises ClosedError."""
        with self._gate:
            if self._failure is not None:
                raise ClosedError(f"the {self._session.name} has ended: {_words(self._failure)}") from self._failure
            if self._closed:
                raise ClosedError(f"the {self._session.name} is closed")
            self._works.append(work)
            self._events_pending = True
            if background and self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._thread_name, daemon=True)
                self._thread.start()
        # The thread that drives already will find the call; if none does, its first packets go out now.
        if background and self.lock.acquire(blocking=False):
            try:
                self._turn(wait=False)
            finally:
                self.lock.release()
        return work

    def drive(self, work: Work[Any], timeout: float | None) -> None:
        """Run until ``work`` is done or ``timeout`` seconds are over."""
        self.fork_guard.check()
        until = None if timeout is None else time.monotonic() + timeout
        while not work.over and (until is None or time.monotonic() < until):
            if not self.lock.acquire(blocking=False):
                # Another thread drives this call too. Not a wait for the lock: it is unfair, and that could take long.
                work.finished(WAIT_SLICE if until is None else min(WAIT_SLICE, max(0.0, until - time.monotonic())))
                continue
            try:
                if not work.over:
                    self._turn(until)
            finally:
                self.lock.release()

    def _run(self) -> None:
        while True:
            with self._gate:
                if not self._works or self._closed:
                    self._thread = None
                    return
            with self.lock:
                try:
                    self._turn()
                except BaseException:
                    # Every call in progress has the error, and raises it where it is waited for.
                    continue
            time.sleep(0)  # let another thread take the lock

    def _turn(self, until: float | None = None, *, wait: bool = True) -> None:
        """Send, receive one batch (waiting for it at most ``until`` then), resume the flows whose results have arrived."""
        session = self._session
        try:
            if session.recover():
                self._start_background()
            if self._events_pending:
                self._advance()
            due = session.next_deadline()
            if due is not None and due <= time.monotonic():
                self._receive(0.0)  # first what is waiting: a process that was stopped for long has its results already
            session.send(time.monotonic())
            self._receive(self._patience(until) if wait else 0.0)
            self._time_out(time.monotonic())  # last, for the same reason
            if self._status_wanted:
                self._status_wanted = False
                sentence = session.status(list(self._works), time.monotonic())
                threading.Thread(target=_print, args=(sentence,), name="netsum status", daemon=True).start()
        except NetsumError as error:
            self._fail(error)
        except OSError as error:
            self._fail(CommunicatorError(f"the link failed: {error}"))
        except BaseException as error:
            # Ctrl-C or a bug: the flows may have missed a step, so nothing can continue.
            session.abort()
            self._fail(error)
            raise

    def _receive(self, patience: float) -> None:
        self._events_pending = True
        if patience and (part := self._awaited_part()) is not None:
            part.finished(patience)
            patience = 0.0
        self._last_batch = self._session.receive(patience)
        self._advance()

    def _awaited_part(self) -> Work[Any] | None:
        """The part of another engine that the oldest call waits for, if no call waits for packets."""
        conditions = [work.waiting for work in list(self._works)]
        parts = [each.part for each in conditions if isinstance(each, PartEnded)]
        return parts[0] if parts and len(parts) == len(conditions) else None

    def _patience(self, until: float | None) -> float:
        """The seconds to wait for a packet. While a window of results is on its way, let some gather first: a turn costs much
        more than a packet."""
        works = list(self._works)
        if not works:
            return 0.0
        session, now = self._session, time.monotonic()
        rtt = session.rtt
        alone = self._thread is None and self._background is None  # no thread begins a call while this one waits
        end = now + (LONE_SLICE if alone else WAIT_SLICE)
        for moment in (session.next_deadline(), until, *[work.deadline for work in works]):
            if moment is not None and moment < end:
                end = moment
        if self._last_batch < session.awaited // _SHARES and rtt and end > now:
            time.sleep(min(rtt / _SHARES, end - now))
            now = time.monotonic()
        return max(0.0, end - now)

    def _advance(self) -> None:
        """Resume flows until none can continue; start the next one once the one before has submitted everything."""
        self._events_pending = False
        works, moved = self._works, True
        while moved and works:
            moved = False
            for work in list(works):
                while not work.over and work.ready():
                    moved = True
                    self._resume(work)
                if work.submitting and not work.over:
                    break
            while works and works[0].over:
                works.popleft()

    def _resume(self, work: AnyWork) -> None:
        if work.progress.first is None:
            self._session.begin(work.progress)
        try:
            yielded = work.step()
        except StopIteration as end:
            work.finish(end.value)
        except Exception as error:
            work.finish(error=error)
            if work.independent:
                return
            if isinstance(error, CommunicatorError | MismatchError | CallTimeoutError):
                raise  # a call times out here if its part on another engine did, which has ended with it
            if work.submitting and not isinstance(error, CallError):
                # The other ranks do not fail here: they expect blocks that this one has not submitted.
                self._session.abort()
                raise CommunicatorError(f"a call failed half-way ({error!r}); join again") from error
        else:
            if yielded is SUBMITTED:
                work.submitting, work.waiting = False, None
            else:
                assert callable(yielded)
                work.waiting = yielded
                if isinstance(yielded, PartEnded):
                    work.deadline = None

    def _time_out(self, now: float) -> None:
        works = self._works
        for work, error in self._session.overdue(list(works), now):
            if not work.independent:
                raise error
            work.finish(error=error)
        while works and works[0].over:
            works.popleft()

    def _start_background(self) -> None:
        if self._session.needs_background_progress and self._background is None:
            self._background = BackgroundProgress(self._progress, self._session.fileno)

    def _progress(self) -> bool:
        """Send and receive whatever is due, unless calls are in progress: then the thread that drives them does it."""
        if self._works or self._closed or not self.lock.acquire(blocking=False):
            return False
        try:
            self._session.progress()
        except OSError:
            return False  # the next call will meet it
        finally:
            self.lock.release()
        return True

    @contextlib.contextmanager
    def between_calls(self) -> Generator[bool]:
        """Keep calls from being driven; yields whether none is in progress and the session is still usable. What fails ends the
        session, as in a call."""
        self.fork_guard.check()
        with self.lock:
            try:
                yield not (self._works or self._closed or self._failure is not None)
            except OSError as error:
                self._fail(CommunicatorError(f"the link failed: {error}"))

    def _fail(self, error: BaseException) -> None:
        """Take no more calls, and end those in progress with an error."""
        self._session.failed(error)
        # A KeyboardInterrupt is for the thread that it hit, not for every thread that waits for a call.
        self._end(error if isinstance(error, Exception) else ClosedError(f"interrupted: {_words(error)}"), error)

    def _end(self, raised: Exception, failure: BaseException | None = None) -> None:
        with self._gate:
            self._failure = self._failure or failure
            works = list(self._works)
            self._works.clear()
        for work in works:
            work.finish(error=raised)

    def close(self) -> None:
        """End calls in progress with ClosedError and close the session. The end of the process does it, too. May be called twice;
        has no effect in a forked process."""
        if not self.fork_guard.here:
            return
        with self._gate:
            if self._closed:
                return
            self._closed = True  # the thread sees it and ends, so that the lock comes free
        with self.lock:
            self._end(ClosedError(f"the {self._session.name} was closed while the call was in progress"))
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        if self._background is not None:
            self._background.stop()
        self._session.close()
        if self.on_close is not None:
            self.on_close()


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _print(sentence: Callable[[], str]) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"netsum: {sentence()}\n".encode())
