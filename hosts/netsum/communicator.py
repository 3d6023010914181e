"""The communicator: what a training loop holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np

from netsum.collectives import allreduce as allreduce_module
from netsum.collectives.barrier import barrier as barrier_flow
from netsum.collectives.call import Context
from netsum.descriptor import Descriptor
from netsum.engine import Engine, Work
from netsum.environment import DEFAULT_CALL_TIMEOUT
from netsum.errors import Unsupported
from netsum.fixed_point import Array
from netsum.transports.base import Transport
from netsum.window import Stats, Window

Explain = Callable[[int], tuple[str, tuple[int, ...]]]


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
        leave: Callable[[], None] | None = None,
    ) -> None:
        """``join_deadline`` (``time.monotonic()``): until then the switch may not know us yet. ``explain`` and ``leave``
        talk to the controller, if there is one."""
        self.descriptor = descriptor
        self.timeout = timeout
        self._window = Window(descriptor, join_deadline)
        self._engine = Engine(self._window, transport, explain)
        self._leave = leave
        self._gen = 0
        self._numbering = threading.Lock()  # generations rise in the order of the engine's calls
        self._predictions = allreduce_module.Predictions()

    @property
    def rank(self) -> int:
        """This member's rank, 0..size-1."""
        return self.descriptor.rank

    @property
    def size(self) -> int:
        """How many members the job has."""
        return self.descriptor.workers

    @property
    def stats(self) -> Stats:
        """What was sent and received so far; live."""
        return self._window.stats

    def allreduce(
        self,
        x: Any,
        op: str = "sum",
        out: Array | None = None,
        *,
        scale: str = "agreed",
        timeout: float | None = None,
    ) -> Array:
        """Reduce ``x`` over all ranks; every rank gets the result.

        Args:
            x: array of any shape and size, float16/32/64 or int8/16/32/64; equal shapes and types on all ranks.
            op: ``sum``, ``mean`` (floats) or ``max``.
            out: array to put the result in, of x's shape and type; may be ``x`` itself. Default: a new one.
            scale: ``agreed``: the ranks first agree on the range of every block. ``predicted``: they take it from the
                last call of the same kind and skip that round trip; blocks that do not fit are done again.

        Returns:
            ``out``, or a new array. Integer results are exact. A float sum is off by at most n/2 quanta an element
            (n ranks), a quantum at most 2^(e+1) / floor((2^w - 1) / 2n) in a block whose magnitudes are below 2^e, with w =
            32 (64 for float64); with predicted scales e is up to the exponent of the last call's sums plus one.

        Raises:
            Unsupported: type, operation or ``out`` does not go; nothing was sent.
            NotFinite: this rank's ``x`` has a NaN or an infinity. The others raise Aborted.
            DoesNotFit: an integer sum does not fit the type; on every rank.
            Mismatch: the ranks made different calls; on every rank.
            Timeout, Refused, Desynchronized, Closed: see :mod:`netsum.errors`.
        """
        return self._allreduce(x, op, out, scale, timeout, background=False).wait()  # type: ignore[no-any-return]

    def allreduce_async(
        self,
        x: Any,
        op: str = "sum",
        out: Array | None = None,
        *,
        scale: str = "agreed",
        timeout: float | None = None,
    ) -> Work:
        """Begin an :meth:`allreduce`; ``wait()`` on what it returns gives the result. ``x`` must not change until then."""
        return self._allreduce(x, op, out, scale, timeout, background=True)

    def barrier(self, timeout: float | None = None) -> None:
        """Return when every rank has called it."""
        self._start(barrier_flow, timeout, background=False).wait()

    def _allreduce(
        self, x: Any, op: str, out: Array | None, scale: str, timeout: float | None, *, background: bool
    ) -> Work:
        array = np.asarray(x)
        options = allreduce_module.check(array, op, scale)
        if out is not None:
            _check_out(out, array)

        def flow(context: Context) -> Any:
            result = yield from allreduce_module.allreduce(
                context,
                np.ascontiguousarray(array).reshape(array.shape),
                options,
                self._predictions,
                self._count_redone,
            )
            if out is None:
                return result
            out[...] = result
            return out

        return self._start(flow, timeout, background=background)

    def _start(self, flow: Callable[[Context], Any], timeout: float | None, *, background: bool) -> Work:
        bound = self.timeout if timeout is None else timeout
        with self._numbering:
            gen = self._gen & 0xFFFF
            context = Context(self._window, self.rank, self.size, self.descriptor.block_bytes, gen)
            work = self._engine.start(flow(context), gen, bound, background=background)
            self._gen += 1
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
        return f"<Communicator {self.descriptor.job!r} rank {self.rank} of {self.size}>"


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
