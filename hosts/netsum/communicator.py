# SPDX-License-Identifier: MIT
"""The communicator: what a training loop holds."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import index
from typing import Any, Final, Protocol, Self

import numpy as np

from netsum.collectives.abort import give_up
from netsum.collectives.arguments import check_state
from netsum.collectives.call import PART_OF, Call, Context, MemoryUse, Result
from netsum.collectives.data_movement import Exchanges
from netsum.collectives.history import History
from netsum.collectives.opening import same_run
from netsum.collectives.reductions import Reductions
from netsum.collectives.way_selection import RING
from netsum.companion import Companion
from netsum.core.endpoint import BlockedOn, Endpoint
from netsum.core.endpoint_factory import open_endpoint
from netsum.core.progress import ProgressEngine, Work
from netsum.core.recovery import Recovery, RejoinReport
from netsum.core.session import JobSession
from netsum.descriptor import Descriptor
from netsum.errors import (
    AbortedError,
    CallError,
    CallTimeoutError,
    CommunicatorError,
    DesynchronizedError,
    InvalidTimeoutError,
    RankLeftError,
    ResultLostError,
    UnsupportedError,
)
from netsum.numeric.fixed_point import Array
from netsum.peers.transport import PeerSocket
from netsum.report import Report
from netsum.settings import DEFAULT_CALL_TIMEOUT, Settings, seconds
from netsum.stats import Stats
from netsum.telemetry import CallEnd, MemberLog, Watcher
from netsum.transports.base import Transport
from netsum.tuning import Tuner, overridden

Explain = Callable[[int], BlockedOn]
JOIN_TIMEOUT: Final = 30.0
COMPANION: Final = "companion"
"""The label of the group that :mod:`netsum.companion` makes."""


class Membership(Protocol):
    """This rank at the controller, where there is one: :class:`netsum.membership.ControllerMembership`."""

    def open_transport(self, descriptor: Descriptor) -> Transport:
        """Open the link to the switch, or to the other members."""

    def rejoin(self, epoch: int, report: RejoinReport) -> Descriptor:
        """Query what has become of the epoch; ``report`` is this rank's report, or what it waits for."""

    def join_anew(self, deadline: float) -> Descriptor:
        """Take the rank again as a new process, which begins a new epoch."""

    def group(self, epoch: int, label: str, ranks: Sequence[int], deadline: float, algorithm: str | None = None) -> Communicator:
        """The communicator of a group of these ranks, this one among them, by a host ``algorithm`` in place of the job's."""

    def p2p_socket(self, purpose: str) -> tuple[PeerSocket, bytes] | None:
        """A socket of this member's for messages of the ``purpose`` between two ranks, and the key that seals them."""


class Communicator(Reductions, Exchanges):
    """The ranks of one job, in one epoch. Every rank makes the same calls in the same order, as in MPI and NCCL.

    Results are bit-for-bit the same on all ranks, whatever the order in which contributions arrive. It is thread-safe, but calls
    from several threads have no order, so make them from one. A forked process cannot use it (ClosedError).
    :func:`netsum.join` makes it; it is a context manager.

    Every call takes ``timeout`` in seconds (default: the communicator's) and raises one of :mod:`netsum.errors`.
    """

    def __init__(
        self,
        descriptor: Descriptor,
        transport: Transport,
        *,
        timeout: float = DEFAULT_CALL_TIMEOUT,
        join_deadline: float = 0.0,
        explain: Explain | None = None,
        membership: Membership | None = None,
        leave: Callable[[], None] | None = None,
    ) -> None:
        """Until ``join_deadline`` (``time.monotonic()``) the switch may not know this rank yet. ``explain``, ``membership`` and
        ``leave`` talk to the controller, if there is one."""
        self.timeout = seconds(timeout)
        self._explain = explain
        self._membership = membership
        self._leave = _once(leave)
        self.watchers: list[Watcher] = []
        """Called after every call, on the thread that drives it: they must be quick and raise nothing."""
        self._log = MemberLog(descriptor.job, descriptor.rank)
        self._numbering = threading.Lock()  # generations rise in the order of the engine's calls
        self._enter(descriptor, transport, join_deadline)

    def _enter(self, descriptor: Descriptor, transport: Transport, join_deadline: float) -> None:
        """Enter a new epoch, with nothing left of the one before."""
        self._descriptor = descriptor
        membership = self._membership
        self._recovery = Recovery(descriptor, membership.rejoin, membership.open_transport) if membership is not None else None
        try:
            endpoint = open_endpoint(descriptor, join_deadline if membership is None else 0.0)
        except BaseException:
            transport.close()
            self._leave()
            raise
        self._session = JobSession(endpoint, transport, self._explain, self._recovery, self._log)
        self._engine: ProgressEngine[Work[Any]] = ProgressEngine(self._session, on_close=self._leave)
        self._block_bytes = descriptor.block_bytes
        self._degrades = descriptor.block_exp_ms > 0
        self._memory_use = MemoryUse(descriptor.on_one_host and not self._degrades)
        self._gen = 0
        self._opens = descriptor.one_run and descriptor.by_switch
        self._history = History(self._count_redone)
        self._splits = 0
        self._report = Report()
        self._log.joined(descriptor)
        self._companion: Companion | None = self._companion_of(descriptor)

    def _companion_of(self, descriptor: Descriptor) -> Companion | None:
        """The ring of the same ranks that may sum large arrays; None if the switch is to sum all, or no ring can help it: only a
        switch goes on without late or evicted ranks."""
        membership = self._membership
        if membership is None or not descriptor.advice or not descriptor.by_switch or descriptor.workers == 1:
            return None
        if self._degrades or descriptor.evicted:
            return None

        def make() -> Communicator:
            deadline = time.monotonic() + JOIN_TIMEOUT
            return membership.group(self.descriptor.epoch, COMPANION, range(descriptor.workers), deadline, RING)

        return Companion(descriptor.advice, make, self._log.selected)

    @property
    def _endpoint(self) -> Endpoint:
        return self._session.endpoint

    @property
    def descriptor(self) -> Descriptor:
        """This rank's view of its current epoch."""
        return self._recovery.descriptor if self._recovery is not None else self._descriptor

    @property
    def active_size(self) -> int:
        """Number of ranks that the job waits for, by the last result: ``size`` minus those that were evicted."""
        return self._endpoint.active_size

    @property
    def stats(self) -> Stats:
        """Statistics of packets sent and received in this epoch so far; live, unless the ranks also sum large arrays by
        themselves: then it has both."""
        own = self._endpoint.stats
        return own if self._companion is None else own.plus(self._companion.stats)

    @property
    def busy(self) -> bool:
        """True if a call is in progress."""
        return self._engine.busy

    @property
    def report(self) -> Report:
        """The report on the last call: whether results are partial, whether this rank was late. A call in the background has
        its own report, ``work.report``."""
        return self._report

    def lag(self) -> int:
        """Return the number of blocks by which the others are ahead, by the results that have arrived since the last call; 0 in
        a job that waits. Call it between collectives."""
        with self._engine.between_calls() as idle:
            if idle:
                self._session.listen()
        return max(0, self._endpoint.received_end - self._endpoint.next_serial)

    def split(self, color: int | None, key: int = 0, *, timeout: float = JOIN_TIMEOUT) -> Communicator | None:
        """Split the ranks into groups, each with a communicator of its own (MPI_Comm_split): ranks that give the same ``color``
        form a group, ordered by ``key``, then by rank. Every rank calls it; one that gives None gets None. After an eviction,
        ``split(0)`` is a communicator of all that are left, whose ranks have no gaps.

        A group is a job of its own at the switch, so calls on different groups and on this communicator may overlap. Close it
        before this communicator; it ends with this one's epoch (make groups again after :meth:`resync`).

        Raises:
            NotReadyError: no room for another job at the switch; other :mod:`netsum.errors`.
        """
        self._engine.fork_guard.check()
        began = time.monotonic()
        try:
            membership = self._grouping()
            if color is not None and not 0 <= index(color) < 1 << 31:
                raise UnsupportedError(f"color {color} is not a number from 0 to 2^31 - 1, nor None")
            own = np.array([[-1 if color is None else color, key, self.rank]], np.int64)
        except Exception as error:
            self._give_up("split", error, timeout)
            raise
        table = sorted(self.all_gather(own, timeout=timeout).tolist())  # without ranks that were evicted
        label, self._splits = f"{self._splits}.{color}", self._splits + 1  # now that every rank has made this call
        deadline = began + timeout
        if color is None:
            return None
        ranks = [rank for theirs, _, rank in table if theirs == color]
        return membership.group(self.descriptor.epoch, label, ranks, deadline)

    def group(self, ranks: Sequence[int], label: str, *, timeout: float = JOIN_TIMEOUT) -> Communicator:
        """A communicator over ``ranks``, in this order; this rank is one of them. Like :meth:`split`, but only these ranks call
        it (MPI_Comm_create_group), with a ``label`` of up to 64 characters that no earlier group of theirs has had."""
        self._engine.fork_guard.check()
        return self._grouping().group(self.descriptor.epoch, label, list(ranks), time.monotonic() + timeout)

    def _grouping(self) -> Membership:
        if self._membership is None:
            raise UnsupportedError("groups are made by the controller, and this communicator was not joined through one")
        return self._membership

    def tune(
        self,
        *,
        window: int | None = None,
        chunks: int | None = None,
        algorithm: str | None = None,
        again: bool = False,
        timeout: float | None = None,
    ) -> Settings:
        """Find by a short measurement (:mod:`netsum.tuning`) how this job is fastest, and go on like that: with a switch the
        chunks of a block and the blocks in flight, up to the job's; without one, if its algorithm is ``auto``, the algorithm for
        each size. Every rank calls it, while no other call is in progress; it lasts until :meth:`resync`.

        What is found is kept in the state folder of rank 0's user, and the next call in a job of this name and shape takes it
        from there. What rank 0 gives counts for all.

        Args:
            window, chunks, algorithm: take these as they are instead of measuring them.
            again: measure even if rank 0 has kept something.
            timeout: seconds of each call that it makes; default: the communicator's.

        Raises:
            UnsupportedError: the job may not have these settings, or a call is in progress. The others raise AbortedError.
            Other :mod:`netsum.errors`, as calls do; the job's own settings are then in use.
        """
        self._engine.fork_guard.check()
        wanted = {"window": window, "chunks": chunks, "algorithm": algorithm}
        given = {name: value for name, value in wanted.items() if value is not None}
        try:
            if self._engine.busy:
                raise ValueError("tune() was called while another call is in progress: wait for it first")
            overridden(Settings.of(self._descriptor), given, self._descriptor)
        except ValueError as error:
            wrong = UnsupportedError(str(error))
            self._give_up("tune", wrong, timeout)
            raise wrong from None
        companion, self._companion = self._companion, None  # what is measured goes by the switch
        try:
            return Tuner(self, self._apply, timeout).tune(given, again=again)
        finally:
            self._companion = companion

    def _apply(self, settings: Settings) -> None:
        self._endpoint.apply(settings)
        if settings.block_bytes != self._block_bytes:
            self._history.predictions.exponents.clear()  # they are those of other blocks
        self._block_bytes = settings.block_bytes

    def p2p_socket(self, purpose: str) -> tuple[PeerSocket, bytes] | None:
        """A socket for messages of the ``purpose`` between two ranks, and the key that seals them; None if this communicator was
        not joined through a controller, or this host has no address."""
        return None if self._membership is None else self._membership.p2p_socket(purpose)

    def resync(self, *state: Array, progress: int = 0, timeout: float = JOIN_TIMEOUT) -> int:
        """Get back into step after ResultLostError, DesynchronizedError, or any error that ended the communicator: join again
        together with all other ranks, and take over the state of the rank that is furthest ahead.

        This begins a new epoch: the others' calls raise DesynchronizedError, and each of them must call ``resync`` too. Then all
        ranks are at their first call again, with nothing carried over or predicted.

        Args:
            state: arrays (weights, the optimizer's moments, …) of the same shapes and types on all ranks. They are overwritten
                with those of the rank whose ``progress`` is largest (the lowest such rank), either all of them or none, which
                takes as much memory again. Without any, the rank only joins.
            progress: how far this rank is, for instance its step; 0 or more.
            timeout: seconds within which every rank must have called it.

        Returns:
            the progress that the state belongs to: where to continue.

        Raises:
            UnsupportedError, InvalidTimeoutError: an argument is wrong. Nothing has changed, and the others wait for this rank.
            EvictedError, NotReadyError, CallTimeoutError and other :mod:`netsum.errors`: the communicator has ended;
            ``resync`` may be called again.
        """
        self._engine.fork_guard.check()
        check_state(state, progress)
        deadline = time.monotonic() + seconds(timeout)
        if self._membership is None:
            raise CommunicatorError("this communicator was not joined through a controller; join again with new descriptors")
        self._log.resync()
        while True:
            self._end_epoch()
            descriptor = self._membership.join_anew(deadline)
            self._enter(descriptor, self._membership.open_transport(descriptor), deadline)
            try:
                return self._share(state, progress, deadline)
            except (AbortedError, ResultLostError, DesynchronizedError, RankLeftError) as error:
                # A rank came back even later, and the last to come decides the epoch. Or, in a job that degrades, the others
                # went on until results that this rank lacks were gone. Or the rank whose state was to be taken was evicted, or
                # one has left that may be started again.
                if time.monotonic() >= deadline:
                    self._end_epoch()
                    raise CallTimeoutError(f"the ranks did not resynchronize within {timeout:g} s: {error}") from error

    def _end_epoch(self) -> None:
        """Close the engine; this rank stays a member."""
        self._engine.on_close = None
        self._engine.close()
        if self._companion is not None:
            self._companion.close()

    def start_part(self, call: Call[Result], block_bytes: int) -> Work[Result]:
        """Begin a call that is a part of another communicator's, in its blocks; a thread drives it (:mod:`netsum.companion`)."""
        self._block_bytes = block_bytes
        return self._start(call, call.timeout, background=True)

    def end(self) -> None:
        """End the calls in progress at once, with ClosedError; :meth:`close` must follow (:mod:`netsum.companion`)."""
        self._engine.on_close = None
        self._engine.close()

    def _share(self, state: tuple[Array, ...], progress: int, deadline: float) -> int:
        def largest(number: int) -> int:
            return int(self.allreduce(np.array([number], np.int64), "max", on_late="wait", timeout=left())[0])

        def left() -> float:
            return max(0.0, deadline - time.monotonic())

        furthest = largest(progress)
        root = self.size - largest(self.size - self.rank if progress == furthest else 0)
        # Not in place: if this is interrupted, no rank is left with part of another's state.
        received = [self.broadcast(array, root, timeout=left()) for array in state]
        for array, new in zip(state, received, strict=True):
            array[...] = new
        return furthest

    def _start(self, call: Call[Result], timeout: float | None, *, background: bool) -> Work[Result]:
        self._engine.fork_guard.check()
        error, bound = call.error, self.timeout
        try:
            bound = seconds(bound if timeout is None else timeout)
        except InvalidTimeoutError as wrong:
            error, bound = wrong, DEFAULT_CALL_TIMEOUT
        began = time.monotonic()

        def ended(error: BaseException | None) -> None:
            end = CallEnd(call.collective, time.monotonic() - began, call.nbytes, error, report)
            self._log.call_ended(end)
            for notify in self.watchers:
                notify(end)

        with self._numbering:
            if self._opens:
                self._open(bound)
            gen = self._gen & 0xFFFF
            descriptor, size = self._descriptor, self._block_bytes
            rank, workers = descriptor.rank, descriptor.workers
            context = Context(self._session, rank, workers, size, gen, self._degrades, call.no_aging, call.contribute, error)
            context.whole, context.memory_use = PART_OF.get(), self._memory_use
            context.deadline = began + bound
            flow, report = call.flow(context), context.report
            work: Work[Result] = Work(self._engine, flow, gen, bound, report, ended, context.progress)
            self._engine.start(work, background=background)
            self._gen += 1
            self._report = report
        return work

    def _give_up(
        self,
        collective: str,
        error: Exception,
        timeout: float | None,
        *,
        background: bool = False,
    ) -> None:
        """Make the others raise AbortedError (:mod:`netsum.collectives.abort`). Errors of that call are not this caller's."""
        own = error if isinstance(error, CallError) else UnsupportedError(str(error))
        call: Call[Any] = Call(collective, partial(give_up, error=own))
        with contextlib.suppress(Exception):
            work = self._start(call, timeout, background=background)
            if not background:
                work.wait()

    def give_up(self, collective: str, error: Exception, *, timeout: float | None = None) -> None:
        """Take part in the next call, in which the other ranks raise AbortedError, because this one cannot make it: for who
        builds on these calls and finds arguments of a caller wrong. Returns at once."""
        self._give_up(collective, error, timeout, background=True)

    def _open(self, bound: float | None) -> None:
        """Before the first call, find out whether all ranks belong to the same run."""
        context = Context(self._session, self.rank, self.size, self._block_bytes, self._gen, self._degrades, no_aging=True)
        self._engine.start(Work(self._engine, same_run(context), self._gen, bound), background=False)
        self._gen += 1
        self._opens = False

    def _count_redone(self, blocks: int) -> None:
        self._endpoint.stats.redone += blocks

    def close(self) -> None:
        """Leave the job; the end of the program does it, too. Calls in progress raise ClosedError. May be called twice. In a
        forked process it does nothing, since the rank belongs to the parent."""
        if not self._engine.fork_guard.here:
            return
        self._engine.close()
        if self._companion is not None:
            self._companion.close()
        self._log.closed(self.stats)
        self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Communicator {self._descriptor.job!r} rank {self.rank} of {self.size}>"


def _once(action: Callable[[], None] | None) -> Callable[[], None]:
    """The action, for the first call only."""
    pending = [action] if action is not None else []
    return lambda: pending.pop()() if pending else None


def wait_all(works: Iterable[Work[Any]]) -> list[Any]:
    """Wait for several calls; returns their results in order."""
    return [work.wait() for work in works]
