"""Drives a communicator's calls: passes what they submit through the window and the transport, and hands them their results.

A call is a generator (:class:`Flow`). It submits blocks to the window and yields a condition; it is resumed when the condition
holds. Only one flow submits at a time, in the order of the calls, so that every rank gives the same block the same id. When a
flow yields :data:`SUBMITTED`, the next one may start while the first still waits for results. Who drives, and when, says
:mod:`netsum.driver`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from netsum.driver import Driver
from netsum.endpoint_factory import resume_window
from netsum.errors import CallError, CommunicatorError, DesynchronizedError, MismatchError, NetsumError, RejectedError
from netsum.outline import Outline
from netsum.overdue import TimeoutDiagnosis
from netsum.peers.background_progress import BackgroundProgress
from netsum.recovery import Recovery
from netsum.refusal import BlockRejected, CallMismatch
from netsum.report import Report
from netsum.silence import InactivityTimer
from netsum.telemetry import MemberLog
from netsum.transports.base import Packet, Transport
from netsum.transports.sockets import packets_held
from netsum.window import GOODBYE_REPEATS, BlockedOn, Window
from netsum.window.block import Block, id_distance
from netsum.wire.schema import Outcome, Status
from netsum.work import SUBMITTED, Ended, Flow, Work

_LISTENINGS: Final = 256
"""Most batches received between calls: more than a socket's buffer holds, and a bound if somebody floods it."""


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
        """Send and receive whatever is due, unless calls are under way: then whoever drives them does it."""
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
        if refusal.reason is Outcome.SIGNATURE:
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
        """Tell the others through the blocks that they wait for: the switch takes MISMATCH whatever the signature."""
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
