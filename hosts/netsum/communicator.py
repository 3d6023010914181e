"""The communicator: what a training loop holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, Self

import numpy as np

from netsum.collectives.allreduce import Memory
from netsum.collectives.allreduce import allreduce as allreduce_flow
from netsum.collectives.barrier import barrier as barrier_flow
from netsum.collectives.broadcast import broadcast as broadcast_flow
from netsum.collectives.call import Context
from netsum.collectives.options import check
from netsum.descriptor import Descriptor
from netsum.engine import Engine, Work
from netsum.environment import DEFAULT_CALL_TIMEOUT
from netsum.errors import CommunicatorError, Desynchronized, Unsupported
from netsum.fixed_point import Array
from netsum.recovery import Recovery
from netsum.report import Report
from netsum.stats import Stats
from netsum.transports.base import Transport
from netsum.window import Window

Explain = Callable[[int], tuple[str, tuple[int, ...]]]
JOIN_TIMEOUT: Final = 30.0


class Seat(Protocol):
    """The rank's place at the controller."""

    open_transport: Callable[[Descriptor], Transport]

    def rejoin(self, epoch: int, needs: int) -> Descriptor:
        """What has become of the epoch; ``needs`` is the first block whose result this rank lacks."""

    def join_anew(self, deadline: float) -> Descriptor:
        """Take the rank again, in an epoch where nobody remembers us."""


class Communicator:
    """The ranks of one job, in one epoch. Every rank makes the same calls in the same order, as in MPI and NCCL.

    Results are bit-for-bit the same on all ranks, whatever the order in which contributions arrive. Thread-safe, but calls from
    several threads have no order: make them from one. Made by :func:`netsum.join`; a context manager.

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
        seat: Seat | None = None,
        leave: Callable[[], None] | None = None,
    ) -> None:
        """``join_deadline`` (``time.monotonic()``): until then the switch may not know us yet. ``explain``, ``seat`` and
        ``leave`` talk to the controller, if there is one."""
        self.timeout = timeout
        self._explain = explain
        self._seat = seat
        self._leave = leave
        self._numbering = threading.Lock()  # generations rise in the order of the engine's calls
        self._begin(descriptor, transport, join_deadline)

    def _begin(self, descriptor: Descriptor, transport: Transport, join_deadline: float) -> None:
        """A new epoch: nothing is remembered of the one before."""
        self._descriptor = descriptor
        seat = self._seat
        self._recovery = Recovery(descriptor, seat.rejoin, seat.open_transport) if seat is not None else None
        self._window = Window(descriptor, join_deadline if seat is None else 0.0)
        self._engine = Engine(self._window, transport, self._explain, self._recovery)
        self._gen = 0
        self._memory = Memory()
        self._report = Report()

    @property
    def descriptor(self) -> Descriptor:
        """This rank's view of the epoch that it is in."""
        return self._recovery.descriptor if self._recovery is not None else self._descriptor

    @property
    def rank(self) -> int:
        """This member's rank, 0..size-1."""
        return self._descriptor.rank

    @property
    def size(self) -> int:
        """How many members the job has, those included that were evicted: ranks are 0..size-1."""
        return self._descriptor.workers

    @property
    def present(self) -> int:
        """How many ranks the job waits for, as the last result told: ``size`` less those that the controller evicted."""
        return self._window.present

    @property
    def stats(self) -> Stats:
        """What was sent and received in this epoch so far; live."""
        return self._window.stats

    @property
    def report(self) -> Report:
        """How the call that was made last went: whether results are partial, whether this rank was late. Of a call in the
        background, ``work.report`` says it."""
        return self._report

    def allreduce(
        self,
        x: Any,
        op: str = "sum",
        out: Array | None = None,
        *,
        scale: str = "agreed",
        late: str = "accept",
        give: bool = True,
        timeout: float | None = None,
    ) -> Array:
        """Reduce ``x`` over all ranks; every rank gets the result.

        Args:
            x: array of any shape and size, float16/32/64 or int8/16/32/64; equal shapes and types on all ranks.
            op: ``sum``, ``mean`` (floats) or ``max``.
            out: array to put the result in, of x's shape and type; may be ``x`` itself. Default: a new one.
            scale: ``agreed``: the ranks first agree on the range of every block. ``predicted``: they take it from the
                last call of the same kind and skip that round trip; blocks that do not fit are done again.
            late: in a job that degrades, what to do about ranks that come too late. ``accept``: take partial results (``mean``
                divides by how many are in it). ``carry``: the same, and what this rank came too late with goes into its
                next call of the same kind (sums and means of floats). ``wait``: wait for every rank. ``raise``: Degraded.
            give: False: take part without adding ``x``, which only tells shape and type; the result counts this rank as
                late. For jobs that degrade: a rank that is behind catches up without computing (see :meth:`behind`).

        Returns:
            ``out``, or a new array. Integer results are exact. A float sum is off by at most n/2 quanta an element
            (n ranks), a quantum at most 2^(e+1) / floor((2^w - 1) / 2n) in a block whose magnitudes are below 2^e, with w =
            32 (64 for float64); with predicted scales e is up to the exponent of the last call's sums plus one.

        Raises:
            Unsupported: type, operation or ``out`` does not go; nothing was sent.
            NotFinite: this rank's ``x`` has a NaN or an infinity. The others raise Aborted.
            DoesNotFit: an integer sum does not fit the type; on every rank.
            Mismatch: the ranks made different calls; on every rank.
            Behind: this rank was so late that results are gone; nothing was returned.
            Degraded: partial results and ``late="raise"``.
            Timeout, Refused, Evicted, Desynchronized, Closed: see :mod:`netsum.errors`.
        """
        work = self._allreduce(x, op, out, scale, late, timeout, give=give, background=False)
        return work.wait()  # type: ignore[no-any-return]

    def allreduce_async(
        self,
        x: Any,
        op: str = "sum",
        out: Array | None = None,
        *,
        scale: str = "agreed",
        late: str = "accept",
        give: bool = True,
        timeout: float | None = None,
    ) -> Work:
        """Begin an :meth:`allreduce`; ``wait()`` on what it returns gives the result. ``x`` must not change until then."""
        return self._allreduce(x, op, out, scale, late, timeout, give=give, background=True)

    def behind(self) -> int:
        """How many blocks the others are ahead of this rank, as far as results of theirs have arrived; 0 in a job that
        waits. Looks at what has come since the last call; to be asked between calls."""
        self._engine.listen()
        return max(0, self._window.heard - self._window.next_serial)

    def broadcast(self, x: Any, root: int = 0, out: Array | None = None, *, timeout: float | None = None) -> Array:
        """Every rank gets the root's ``x``, bit for bit.

        Args:
            x: array of any shape, size and plain type; the same shape and type on every rank, whose values only the root's
                count.
            root: the rank whose array it is.
            out: array to put the result in; may be ``x`` itself. Default: a new one.

        Raises:
            Unsupported: objects cannot be sent, there is no such root, or ``out`` does not go; nothing was sent.
            Mismatch, Timeout, Refused, Evicted, Desynchronized, Closed: see :mod:`netsum.errors`.
        """
        array = np.asarray(x)
        if array.dtype.hasobject:
            raise Unsupported(f"dtype {array.dtype} holds objects, which cannot be sent")
        if not 0 <= root < self.size:
            raise Unsupported(f"root {root} is not one of the {self.size} ranks")
        if out is not None:
            _check_out(out, array)

        def flow(context: Context) -> Any:
            result = yield from broadcast_flow(context, np.ascontiguousarray(array).reshape(array.shape), root)
            if out is None:
                return result
            out[...] = result
            return out

        return self._start(flow, timeout, background=False, firm=True).wait()  # type: ignore[no-any-return]

    def barrier(self, timeout: float | None = None) -> None:
        """Return when every rank has called it. It waits for every rank, also in a job that degrades."""
        self._start(barrier_flow, timeout, background=False, firm=True).wait()

    def resync(self, *state: Array, progress: int = 0, timeout: float = JOIN_TIMEOUT) -> int:
        """Come back into step after Behind, Desynchronized, or any error that ended the communicator: join again, together with
        all other ranks, and take over the state of the one that is furthest.

        It begins a new epoch: the others' calls raise Desynchronized, and each comes here too. Then all ranks are in their
        first call again, with nothing carried over or predicted.

        Args:
            state: arrays (weights, optimiser's moments, …), the same on all ranks in shape and type, overwritten with those
                of the rank whose ``progress`` is largest (of several, the lowest rank); none: only join.
            progress: how far this rank is, for instance its step; 0 or more.
            timeout: seconds until every rank must have come.

        Returns:
            the progress that the state belongs to: where to go on.

        Raises:
            Evicted, NotReady, Timeout and other :mod:`netsum.errors`: not joined; the communicator has ended, and it may be
            tried again.
        """
        if self._seat is None:
            raise CommunicatorError("this communicator was not joined at a controller; join again with new descriptors")
        deadline = time.monotonic() + timeout
        while True:
            self._engine.close()
            descriptor = self._seat.join_anew(deadline)
            self._begin(descriptor, self._seat.open_transport(descriptor), deadline)
            try:
                return self._share(state, progress, deadline)
            except Desynchronized:
                # Another rank came back later still, as somebody new: the last to come decides the epoch.
                if time.monotonic() >= deadline:
                    raise

    def _share(self, state: tuple[Array, ...], progress: int, deadline: float) -> int:
        def largest(number: int) -> int:
            return int(self.allreduce(np.array([number], np.int64), "max", late="wait", timeout=left())[0])

        def left() -> float:
            return max(0.0, deadline - time.monotonic())

        furthest = largest(progress)
        root = self.size - largest(self.size - self.rank if progress == furthest else 0)
        for array in state:
            self.broadcast(array, root, out=array, timeout=left())
        return furthest

    def _allreduce(
        self,
        x: Any,
        op: str,
        out: Array | None,
        scale: str,
        late: str,
        timeout: float | None,
        *,
        give: bool,
        background: bool,
    ) -> Work:
        array = np.asarray(x)
        degrade = self._descriptor.block_exp_ms > 0
        options = check(array, op, scale, late, degrade=degrade)
        if not give and (not degrade or options.firm):
            raise Unsupported("give=False is for calls of a job that degrades: elsewhere every rank is waited for")
        if out is not None:
            _check_out(out, array)

        def flow(context: Context) -> Any:
            whole = np.ascontiguousarray(array).reshape(array.shape)
            result = yield from allreduce_flow(context, whole, options, self._memory, self._count_redone)
            if out is None:
                return result
            out[...] = result
            return out

        return self._start(flow, timeout, background=background, firm=options.firm, give=give)

    def _start(
        self,
        flow: Callable[[Context], Any],
        timeout: float | None,
        *,
        background: bool,
        firm: bool = False,
        give: bool = True,
    ) -> Work:
        bound = self.timeout if timeout is None else timeout
        with self._numbering:
            gen = self._gen & 0xFFFF
            descriptor = self._descriptor
            degrade = descriptor.block_exp_ms > 0
            context = Context(self._window, self.rank, self.size, descriptor.block_bytes, gen, degrade, firm, give)
            work = self._engine.start(flow(context), gen, bound, background=background, report=context.report)
            self._gen += 1
            self._report = context.report
        return work

    def _count_redone(self, blocks: int) -> None:
        self._window.stats.redone += blocks

    def close(self) -> None:
        """Leave the job. Calls under way end with Closed. May be called twice."""
        self._engine.close()
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Communicator {self._descriptor.job!r} rank {self.rank} of {self.size}>"


def _check_out(out: Any, array: Array) -> None:
    if not isinstance(out, np.ndarray):
        raise Unsupported(f"out must be a numpy array, not {type(out).__name__}")
    if out.shape != array.shape or out.dtype != array.dtype:
        raise Unsupported(f"out is {out.dtype} {out.shape}, the input {array.dtype} {array.shape}")
    if not out.flags.writeable:
        raise Unsupported("out is read-only")


def wait_all(works: Iterable[Work]) -> list[Any]:
    """Wait for several calls; their results in order."""
    return [work.wait() for work in works]
