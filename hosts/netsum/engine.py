"""Drives calls: passes what they submit through the window and the transport, and hands them their results.

A call is a generator (:class:`Flow`). It submits blocks to the window and yields a condition; it is resumed when the condition
holds. Only one flow submits at a time, in the order of the calls, so that every rank gives the same block the same id. When a
flow yields :data:`SUBMITTED`, the next one may start while the first still waits for results.

Whoever waits for a call drives the engine. No thread runs unless a call was started asynchronously; then one drives the engine
in the background as long as calls are outstanding.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from netsum.backend import resume_window
from netsum.errors import CallError, Closed, CommunicatorError, Desynchronized, Mismatch, NetsumError, Refused, words
from netsum.home import Home
from netsum.outline import Outline
from netsum.overdue import Overdue
from netsum.peers.keeper import Keeper
from netsum.recovery import Recovery
from netsum.refusal import Disagreement, Refusal
from netsum.report import Report
from netsum.silence import Silence
from netsum.transports.base import Transport
from netsum.watching import MemberLog
from netsum.window import FAREWELLS, LONE_SLICE, WAIT_SLICE, Whom, Window
from netsum.window.block import Block, id_distance
from netsum.wire.schema import Outcome, Status
from netsum.work import SUBMITTED, Ended, Flow, Work

_SHARES: Final = 8
"""Results are taken a share of a window at a time, if they come more slowly than that: the rest of it keeps the links busy."""
_LISTENINGS: Final = 256
"""Most batches received between calls: more than a socket's buffer holds, and a bound if somebody floods it."""


class Engine:
    """One communicator's window, transport and calls. Thread-safe."""

    def __init__(
        self,
        window: Window,
        transport: Transport,
        explain: Callable[[int], Whom] | None = None,
        recovery: Recovery | None = None,
        log: MemberLog | None = None,
    ) -> None:
        """``explain(block_id)`` asks the controller whom a block waits for: a sentence and the ranks. ``recovery`` asks it what
        has become of the job when the switch refuses this rank."""
        self.home = Home()
        self.window = window
        self._log = log or MemberLog(None, None)
        self._recovery = recovery
        self._transport = transport
        self._overdue = Overdue(explain)
        self._silence = Silence()
        self._works: deque[Work[Any]] = deque()
        self._gate = threading.Lock()  # guards what a caller changes: the list of works and how the communicator ended
        self._lock = threading.RLock()  # held by whoever drives
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._closed = False
        self._batch = 0  # how many packets came last
        self._unseen = False  # whether there is anything that flows may not have seen
        self._keeper: Keeper | None = None
        self._keep()

    def submit(self, block: Block) -> None:
        self.window.submit(block)

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
        """Begin a call after all earlier ones; see :class:`Work`."""
        self.home.check()
        work: Work[Any] = Work(self, flow, gen, timeout, report, ended, outline)
        with self._gate:
            self._check()
            self._works.append(work)
            self._unseen = True
            if background and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="netsum", daemon=True)
                self._thread.start()
        # Whoever drives already will find the call; if nobody does, its first blocks go out now.
        if background and self._lock.acquire(blocking=False):
            try:
                self._step(wait=False)
            finally:
                self._lock.release()
        return work

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return bool(self._works)

    def _check(self) -> None:
        if self._failure is not None:
            raise Closed(f"the communicator has ended: {words(self._failure)}") from self._failure
        if self._closed:
            raise Closed("the communicator is closed")

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

    def listen(self) -> None:
        """Receive what has arrived since the last call, and send nothing."""
        self.home.check()
        with self._lock:
            if self._works or self._closed or self._failure is not None:
                return
            try:
                for _ in range(_LISTENINGS):
                    packets = self._transport.recv(0.0)
                    if not packets:
                        return
                    self.window.receive_all(packets, time.monotonic())
            except Refusal:
                return  # the next call will meet it
            except OSError as error:
                self._fail(CommunicatorError(f"the link failed: {error}"))

    def _keep(self) -> None:
        """Without a switch, the others need this member between calls too."""
        if self.window.needs_tending and self._keeper is None:
            self._keeper = Keeper(self._tend, self._fileno)

    def _fileno(self) -> int | None:
        return self._transport.fileno()

    def _tend(self) -> bool:
        """Send and receive whatever is due, unless calls are under way: then whoever drives them does it."""
        if self._works or self._closed or not self._lock.acquire(blocking=False):
            return False
        try:
            self.window.tend(self._transport)
        except OSError:
            return False  # the next call will meet it
        finally:
            self._lock.release()
        return True

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
            if self._unseen:
                self._advance()
            if self._recovery is not None:
                self._recover(self._recovery)
            due = self.window.next_deadline()
            if due is not None and due <= time.monotonic():
                self._receive(0.0)  # first what is waiting: a process that was stopped for long has its results already
            self._send()
            self._receive(self._patience(until) if wait else 0.0)
            now = time.monotonic()
            self._wonder(now)
            self._time_out(now)  # last, for the same reason
        except Refusal as refusal:
            if self._recovery is None or not self._recovery.begin(refusal):
                self._fail(self._refused(refusal))
            else:
                self._log.asks(self.window.block_id(refusal.serial), str(refusal))
        except Disagreement as error:
            block, ours = self.window.block_id(error.serial), self._call_at(error.serial)
            self._fail(Mismatch(f"block {block}: another rank made a different call, or failed in this one; {ours}"))
        except NetsumError as error:
            self._fail(error)
        except OSError as error:
            self._fail(CommunicatorError(f"the link failed: {error}"))
        except BaseException as error:
            # Ctrl-C or a bug: the generators may have missed a step, so nothing can continue.
            self._fail(error)
            with contextlib.suppress(NetsumError, OSError):
                self._disagree()
            raise

    def _receive(self, patience: float) -> None:
        """Take one batch, and resume the flows whose results have arrived."""
        packets = self._transport.recv(patience)
        self._batch, self._unseen = len(packets), True
        self.window.receive_all(packets, time.monotonic())
        self._advance()

    def _wonder(self, now: float) -> None:
        window, quiet = self.window, self._silence
        late = quiet.too_long(window.base, now, waiting=window.base < window.next_serial)
        if self._recovery is not None and (late or (window.speaks and quiet.look(now))):
            self._recovery.wonder()

    def _recover(self, recovery: Recovery) -> None:
        """If the switch refuses this rank or is silent, ask the controller, and move to the epoch that resumes this one."""
        now = time.monotonic()
        if not recovery.due(now):
            return
        window = self.window
        descriptor = recovery.ask(window.block_id(window.prefix), now)
        if descriptor is None:
            return
        following = resume_window(window, descriptor)
        if following is None:
            raise Desynchronized(f"block {descriptor.first_block_id} is needed again and its contribution is gone")
        self._transport.close()
        self._transport = recovery.resumed(descriptor)
        self.window = following
        self._log.resumed(descriptor)
        self._keep()

    def _send(self) -> None:
        now = time.monotonic()
        # While recovery holds, nothing begins: what it told the controller stays true, and the others wait and ask too.
        holds = self._recovery is not None and self._recovery.holds
        if packets := self.window.outgoing(now) if holds else self.window.poll(now):
            self._transport.send(packets)

    def _patience(self, until: float | None) -> float:
        """How long to wait for a packet. While a window of results is on its way, let some gather first: a turn costs much more
        than a packet."""
        window, works = self.window, list(self._works)
        if not works:
            return 0.0
        now = time.monotonic()
        alone = self._thread is None and not window.needs_tending  # nobody begins a call meanwhile
        moments = window.next_deadline(), until, *[work.deadline for work in works]
        end = min([now + (LONE_SLICE if alone else WAIT_SLICE), *(each for each in moments if each is not None)])
        few = self._batch < (window.next_serial - window.base) // _SHARES
        if few and window.stats.rtt and end > now and not window.by_chain:
            time.sleep(min(window.stats.rtt / _SHARES, end - now))
            now = time.monotonic()
        return max(0.0, end - now)

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
        except Mismatch as error:
            work.finish(error=error)
            raise
        except Exception as error:
            work.finish(error=error)
            if work.submitting and not isinstance(error, CallError):
                # The other ranks do not fail here: they expect blocks that this one has not submitted.
                self._disagree()
                raise CommunicatorError(f"a call failed half-way ({error!r}); join again") from error
            work.submitting = False
        else:
            if yielded is SUBMITTED:
                work.submitting, work.waiting = False, None
            else:
                assert callable(yielded)
                work.waiting = yielded

    def _time_out(self, now: float) -> None:
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

    def _refused(self, refusal: Refusal) -> NetsumError:
        block = self.window.block_id(refusal.serial)
        if refusal.reason is Outcome.SIGNATURE:
            self._disagree()
            ours = self._call_at(refusal.serial)
            return Mismatch(f"block {block}: the other ranks made a different call (operation, type or size); {ours}")
        if refusal.reason in (Outcome.WRONG_PORT, Outcome.STALE):
            known = "" if self._recovery is not None else ", with new descriptors: these may have been used before"
            return Desynchronized(f"block {block}: a new epoch of the job has begun; join again{known}")
        reason = refusal.reason.name if refusal.reason is not None else "unknown"
        return Refused(f"the switch refused block {block}: {reason.lower().replace('_', ' ')}", reason)

    def _disagree(self) -> None:
        """Tell the others through the blocks that they wait for: the switch takes MISMATCH whatever the signature."""
        window = self.window
        for _ in range(FAREWELLS):
            self._transport.send(window.overrule(Status.MISMATCH))

    def _fail(self, error: BaseException) -> None:
        """End the communicator: every call under way raises."""
        self._log.failed(error)
        for work in self._end(error):
            work.flow.close()
            # A KeyboardInterrupt is for the thread that it hit, not for every thread that waits for a call.
            work.finish(error=error if isinstance(error, Exception) else Closed(f"interrupted: {words(error)}"))

    def _end(self, error: BaseException | None) -> list[Work[Any]]:
        """Take no more calls; returns those under way."""
        with self._gate:
            self._failure = self._failure or error
            works = list(self._works)
            self._works.clear()
        return works

    def close(self) -> None:
        """End calls under way with Closed and close the transport. May be called twice; has no effect in a forked process."""
        if not self.home.here:
            return
        with self._gate:
            if self._closed:
                return
            self._closed = True  # the thread sees it and ends, so that the lock comes free
        with self._lock:
            for work in self._end(None):
                work.flow.close()
                work.finish(error=Closed("the communicator was closed while the call was under way"))
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        if self._keeper is not None:
            self._keeper.stop()
        with contextlib.suppress(OSError):
            self.window.leave(self._transport)
        self._transport.close()
