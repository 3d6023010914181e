"""The calls of a member in order, and the loop that drives them: it sends, receives, recovers and times out."""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from netsum.endpoint_factory import resume_window
from netsum.errors import (
    CallError,
    ClosedError,
    CommunicatorError,
    DesynchronizedError,
    MismatchError,
    NetsumError,
    RejectedError,
)
from netsum.fork_guard import ForkGuard
from netsum.peers.messenger import BackgroundProgress
from netsum.recovery import InactivityTimer, Recovery, TimeoutDiagnosis
from netsum.report import Report
from netsum.telemetry import MemberLog
from netsum.transports.base import Packet, Transport
from netsum.transports.sockets import packets_held
from netsum.window import GOODBYE_REPEATS, LONE_SLICE, WAIT_SLICE, BlockedOn, Window
from netsum.window.blocks import Block, BlockRejected, CallMismatch, id_distance
from netsum.wire.schema import Outcome, Status
from netsum.work import SUBMITTED, Ended, Flow, Outline, Work

# Drives calls that share a window and a transport: sends, receives, and ends the calls whose results have arrived.
#
# The thread that waits for a call drives all of them. No thread runs unless a call was started asynchronously; then one drives
# them in the background as long as calls are outstanding.


_SHARES: Final = 8
"""Results are taken a share of a window at a time, if they come more slowly than that: the rest of it keeps the links busy."""


class Timed(Protocol):
    """The parts of a window that concern time."""

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
    """The name of the call in errors."""
    thread_name: str
    window: Driven

    def __init__(self, transport: Transport) -> None:
        self.fork_guard = ForkGuard()
        self._transport = transport
        self._works: deque[AnyWork] = deque()
        self._gate = threading.Lock()  # guards what a caller changes: the list of works and how everything ended
        self._lock = threading.RLock()  # held by the thread that drives
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._closed = False
        self._batch = 0  # how many packets came last
        self._unseen = False  # whether there is anything that flows may not have seen

    @property
    def busy(self) -> bool:
        """True if a call is in progress."""
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
        # The thread that drives already will find the call; if none does, its first packets go out now.
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
                    # Every call in progress has the error, and raises it where it is waited for.
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
        """The seconds to wait for a packet. While a window of results is on its way, let some gather first: a turn costs much
        more than a packet."""
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
        """True if no thread begins a call while this thread waits."""
        return self._thread is None

    @property
    @abstractmethod
    def _awaited(self) -> int:
        """The number of results that may come in one batch."""

    def _outgoing(self, now: float) -> Sequence[Packet]:
        return self.window.poll(now)

    @abstractmethod
    def _advance(self) -> None:
        """Resume flows until none can continue, and clear ``_unseen``."""

    @abstractmethod
    def _time_out(self, now: float) -> None:
        """End the calls whose time is over."""

    def _fail(self, error: BaseException) -> None:
        """Take no more calls, and end those in progress with an error."""
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
        """End calls in progress with ClosedError and close the transport. May be called twice; has no effect in a forked
        process."""
        if not self.fork_guard.here:
            return
        with self._gate:
            if self._closed:
                return
            self._closed = True  # the thread sees it and ends, so that the lock comes free
        with self._lock:
            self._end(ClosedError(f"the {self.name} was closed while the call was in progress"))
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


# Drives a communicator's calls: passes what they submit through the window and the transport, and hands them their
# results.
#
# A call is a generator (:class:`Flow`). It submits blocks to the window and yields a condition; it is resumed when the
# condition holds. Only one flow submits at a time, in the order of the calls, so that every rank gives the same block
# the same id. When a flow yields :data:`SUBMITTED`, the next one may start while the first still waits for results. Who
# drives, and when, says :mod:`netsum.progress`.


_LISTENINGS: Final = 256
"""Most batches received between calls: more than a socket's buffer holds, and a bound if a sender floods it."""


class Engine(Driver[Work[Any]]):
    """One communicator's window, transport and calls. Thread-safe."""

    name, thread_name = "communicator", "netsum"
    window: Window

    def __init__(
        self,
        window: Window,
        transport: Transport,
        explain: Callable[[int], BlockedOn] | None = None,
        recovery: Recovery | None = None,
        log: MemberLog | None = None,
    ) -> None:
        """``explain(block_id)`` asks the controller whom a block waits for: a sentence and the ranks. ``recovery`` asks it what
        has become of the job when the switch refuses this rank."""
        super().__init__(transport)
        self.window = window
        self._log = log or MemberLog(None, None)
        self._recovery = recovery
        self._overdue = TimeoutDiagnosis(explain)
        self._silence = InactivityTimer(window.active_size)
        self._background: BackgroundProgress | None = None
        self._attach()

    def submit(self, block: Block) -> None:
        self.window.submit_all((block,))

    def submit_all(self, blocks: Sequence[Block]) -> None:
        self.window.submit_all(blocks)

    @property
    def queued(self) -> int:
        return self.window.queued

    @property
    def combiner(self) -> str:
        return self.window.combiner

    @property
    def by_chain(self) -> bool:
        return self.window.by_chain

    def start(
        self,
        flow: Flow,
        gen: int,
        timeout: float | None,
        *,
        background: bool,
        report: Report | None = None,
        ended: Ended | None = None,
        outline: Outline | None = None,
    ) -> Work[Any]:
        """Begin a call after all earlier ones; see :class:`Work`. The caller has checked that this is the
        process that made the communicator."""
        work: Work[Any] = Work(self, flow, gen, timeout, report, ended, outline)
        return self._begin(work, background=background)

    def listen(self) -> None:
        """Receive what has arrived since the last call, and send nothing."""
        self.fork_guard.check()
        with self._lock:
            if self._works or self._closed or self._failure is not None:
                return
            try:
                for _ in range(_LISTENINGS):
                    packets = self._transport.recv(0.0)
                    if not packets:
                        return
                    self.window.receive_all(packets, time.monotonic())
            except BlockRejected:
                return  # the next call will meet it
            except OSError as error:
                self._fail(CommunicatorError(f"the link failed: {error}"))

    def _attach(self) -> None:
        """Make a window and a transport, either of which is new, go together."""
        if (number := self._fileno()) is not None:
            self.window.fit(partial(packets_held, number))
        if (
            self.window.needs_background_progress and self._background is None
        ):  # the others need this member between calls too
            self._background = BackgroundProgress(self._progress, self._fileno)

    def _fileno(self) -> int | None:
        return self._transport.fileno()

    def _progress(self) -> bool:
        """Send and receive whatever is due, unless calls are in progress: then the thread that drives them does it."""
        if self._works or self._closed or not self._lock.acquire(blocking=False):
            return False
        try:
            self.window.progress(self._transport)
        except OSError:
            return False  # the next call will meet it
        finally:
            self._lock.release()
        return True

    def _turn(self, until: float | None, *, wait: bool) -> None:
        try:
            if self._recovery is not None:
                self._recover(self._recovery)
            super()._turn(until, wait=wait)
        except BlockRejected as refusal:
            if self._recovery is None or not self._recovery.begin(refusal):
                raise self._refused(refusal) from None
            self._log.asks(self.window.block_id(refusal.serial), str(refusal))
        except CallMismatch as error:
            block, ours = self.window.block_id(error.serial), self._call_at(error.serial)
            text = f"block {block}: another rank made a different call, or failed in this one; {ours}"
            raise MismatchError(text) from None
        except (NetsumError, OSError):
            raise
        except BaseException:
            with contextlib.suppress(NetsumError, OSError):
                self.disagree()
            raise

    def _wonder(self, now: float) -> None:
        window, quiet = self.window, self._silence
        late = quiet.too_long(window.base, now, waiting=window.base < window.next_serial)
        if self._recovery is not None and (late or (window.polls_controller and quiet.look(now))):
            self._recovery.wonder()

    def _recover(self, recovery: Recovery) -> None:
        """If the switch refuses this rank or is silent, ask the controller, and move to the epoch that resumes this one."""
        now = time.monotonic()
        if not recovery.due(now):
            return
        window = self.window
        descriptor = recovery.ask(window.block_id(window.prefix), now, window.waits())
        if descriptor is None:
            return
        following = resume_window(window, descriptor)
        if following is None:
            raise DesynchronizedError(f"block {descriptor.first_block_id} is needed again and its contribution is gone")
        self._transport.close()
        self._transport = recovery.resumed(descriptor)
        self.window = following
        self._log.resumed(descriptor)
        self._attach()

    def _outgoing(self, now: float) -> Sequence[Packet]:
        # A rank that has stopped begins nothing: what it told the controller stays true, and the others wait and ask too.
        stopped = self._recovery is not None and self._recovery.stopped
        return self.window.outgoing(now) if stopped else self.window.poll(now)

    @property
    def _alone(self) -> bool:
        return self._thread is None and not self.window.needs_background_progress

    @property
    def _awaited(self) -> int:
        return 0 if self.window.by_chain else self.window.next_serial - self.window.base

    def _advance(self) -> None:
        """Resume flows until none can continue; start the next one once the one before has submitted everything."""
        self._unseen = False
        works, moved = self._works, True
        while moved and works:
            moved = False
            for work in list(works):
                while not work.over and (work.waiting is None or work.waiting()):
                    moved = True
                    self._resume(work)
                if work.submitting and not work.over:
                    break
            while works and works[0].over:
                works.popleft()

    def _resume(self, work: Work[Any]) -> None:
        if work.outline.first is None:
            work.outline.first = self.window.block_id(self.window.submitted)
        try:
            yielded = next(work.flow)
        except StopIteration as end:
            work.submitting = False
            work.finish(end.value)
        except CommunicatorError:
            raise
        except MismatchError as error:
            work.finish(error=error)
            raise
        except Exception as error:
            work.finish(error=error)
            if work.submitting and not isinstance(error, CallError):
                # The other ranks do not fail here: they expect blocks that this one has not submitted.
                self.disagree()
                raise CommunicatorError(f"a call failed half-way ({error!r}); join again") from error
            work.submitting = False
        else:
            if yielded is SUBMITTED:
                work.submitting, work.waiting = False, None
            else:
                assert callable(yielded)
                work.waiting = yielded

    def _time_out(self, now: float) -> None:
        if not self._works and not self.window.polls_controller:
            return  # nothing is waited for
        self._wonder(now)
        for work in list(self._works):
            if work.over or work.deadline is None:
                continue
            self._overdue.foresee(work, self.window, self._silence, now)
            if now >= work.deadline:
                error = self._overdue.error(work, self.window, self._silence, now)
                error.add(self._recovery.reason if self._recovery is not None else "")
                if link := getattr(self._transport, "last_error", None):
                    error.add(f"the link's last error: {link}")
                raise error

    def _call_at(self, serial: int) -> str:
        """The call that a block belongs to, in words."""
        block = self.window.block_id(serial)
        began = [work.outline for work in list(self._works) if work.outline.first is not None]
        mine = [each.call for each in began if id_distance(block, each.first or 0) >= 0 and each.call]
        return f"this rank's is {mine[-1]}" if mine else "this rank has not begun one"

    def _refused(self, refusal: BlockRejected) -> NetsumError:
        block = self.window.block_id(refusal.serial)
        if refusal.reason is Outcome.FINGERPRINT_MISMATCH:
            self.disagree()
            ours = self._call_at(refusal.serial)
            return MismatchError(
                f"block {block}: the other ranks made a different call (operation, type or size); {ours}"
            )
        if refusal.reason in (Outcome.WRONG_PORT, Outcome.STALE):
            known = "" if self._recovery is not None else ", with new descriptors: these may have been used before"
            return DesynchronizedError(f"block {block}: a new epoch of the job has begun; join again{known}")
        reason = refusal.reason.name if refusal.reason is not None else "unknown"
        return RejectedError(f"the switch refused block {block}: {reason.lower().replace('_', ' ')}", reason)

    def disagree(self) -> None:
        """Tell the others through the blocks that they wait for: the switch takes MISMATCH whatever the fingerprint."""
        window = self.window
        for _ in range(GOODBYE_REPEATS):
            self._transport.send(window.abort_outstanding(Status.MISMATCH))

    def _fail(self, error: BaseException) -> None:
        self._log.failed(error)
        super()._fail(error)

    def _leave(self) -> None:
        if self._background is not None:
            self._background.stop()
        with contextlib.suppress(OSError):
            self.window.leave(self._transport)
