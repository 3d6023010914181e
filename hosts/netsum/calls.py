"""The calls that a communicator offers: one method a collective, and one with ``_async`` behind its name that begins it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from netsum.call import Call, Make, Result, blocking, in_background
from netsum.collectives.all_gather import all_gather
from netsum.collectives.all_to_all import all_to_all
from netsum.collectives.allreduce import allreduce
from netsum.collectives.barrier import barrier
from netsum.collectives.broadcast import broadcast
from netsum.collectives.call import Context
from netsum.collectives.gather import gather
from netsum.collectives.options import Options, check, compressed
from netsum.collectives.product import product
from netsum.collectives.reduce import reduce
from netsum.collectives.reduce_scatter import reduce_scatter
from netsum.collectives.reduction import Memory
from netsum.collectives.scatter import scatter
from netsum.engine import Flow, Work
from netsum.errors import CallError, Unsupported
from netsum.fixed_point import Array


class CollectiveCalls:
    """What :class:`netsum.Communicator` inherits. Every rank makes the same calls in the same order.

    Arrays of any shape; results are new arrays in this machine's byte order (whatever the input's), or ``out``, which may be the
    input itself where it has the result's shape.
    What a rank gives must not change until the call is over. Every call takes ``timeout`` in seconds (default: the
    communicator's). Errors: Unsupported, BadTimeout, NotFinite, Aborted, DoesNotFit, Degraded, Behind, Mismatch,
    Timeout, Refused, Evicted, Desynchronized, Closed as in :mod:`netsum.errors`.
    """

    rank: Any
    size: Any
    _memory: Memory

    @property
    def _degrades(self) -> bool:
        raise NotImplementedError

    def _make(self, call: Call[Result], *, background: bool) -> Work[Result]:
        raise NotImplementedError

    # Reductions

    def _allreduce(
        self,
        x: Any,
        op: str = "sum",
        out: Array | None = None,
        *,
        scale: str = "agreed",
        bits: int | None = None,
        rounding: str = "nearest",
        late: str = "accept",
        give: bool = True,
        timeout: float | None = None,
    ) -> Call[Array]:
        """Reduce ``x`` over all ranks; every rank gets the result.

        Args:
            x: array of any shape and size; equal shapes and types on all ranks.
            op: ``sum``, ``mean`` (of float16, bfloat16, float32, float64; ``sum`` also of signed and unsigned integers of 8 to
                64 bits), ``min``, ``max`` (these and bool), ``and``, ``or``, ``xor`` (integers and bool). ``product`` (as
                ``sum``) runs on the hosts, at the cost of an :meth:`all_gather`.
            out: array to put the result in, of x's shape and type; may be ``x`` itself. Default: a new one.
            scale: ``agreed``: the ranks first agree on the range of every block. ``predicted``: they take it from the
                last call of the same kind and skip that round trip; blocks that do not fit, or that it is far too coarse for,
                are done again.
            bits: 8 or 16: carry a sum or mean of floats in lanes of so many bits, for a quarter or half of the bytes of
                float32; the quantum grows as below, with w = ``bits``. Default: 32, for float64 64.
            rounding: ``nearest``, or ``stochastic``: up or down at random, so that errors cancel out over many calls; an
                element of the sum is then off by less than n quanta.
            late: in a job that degrades, what to do about ranks that come too late. ``accept``: take partial results (``mean``
                divides by how many are in it). ``carry``: the same, and what this rank came too late with goes into its
                next call of the same kind (sums and means of floats). ``wait``, on all ranks alike: wait for every rank.
                ``raise``: Degraded.
            give: False: take part without adding ``x``, which only tells shape and type; the result counts this rank as
                late. For jobs that degrade: a rank that is behind catches up without computing (see :meth:`behind`).

        Returns:
            ``out``, or a new array. Integer results are exact. A float sum is off by at most n/2 quanta an element
            (n ranks), a quantum at most 2^(e+1) / floor((2^w - 1) / 2n) in a block whose magnitudes are below 2^e, with w =
            32 (64 for float64); with predicted scales e is up to floor(b / 8) + 2 + ceil(log2 n) more, 2^b being the largest
            power of two in a lane. ``report.quantum`` says what it was.

        Raises:
            Unsupported: type, operation or ``out`` does not go. The others raise Aborted, as for every error of arguments.
            NotFinite: this rank's ``x`` has a NaN or an infinity. The others raise Aborted.
            DoesNotFit: an integer sum does not fit the type; on every rank.
            Mismatch: the ranks made different calls; on every rank.
            Behind: this rank was so late that results are gone; nothing was returned.
            Degraded: partial results and ``late="raise"``.
            Timeout, Refused, Evicted, Desynchronized, Closed: see :mod:`netsum.errors`.
        """
        array = _array(x)
        options = check(array, op, scale, late, degrade=self._degrades)
        options = compressed(options, array, bits, rounding, self.size)
        if not give and (not self._degrades or options.firm):
            raise Unsupported("give=False is for calls of a job that degrades: elsewhere every rank is waited for")
        error = _wrong(out, array.shape, array.dtype)
        if op == "product":
            make = _into(out, lambda context: product(context, _whole(array)))
            return Call("allreduce", make, timeout, array.nbytes, error=error)
        make = _into(out, lambda context: allreduce(context, _whole(array), options, self._memory))
        return Call("allreduce", make, timeout, array.nbytes, firm=options.firm, give=give, error=error)

    allreduce, allreduce_async = blocking(_allreduce), in_background(_allreduce)

    def _reduce(
        self,
        x: Any,
        root: int = 0,
        op: str = "sum",
        out: Array | None = None,
        *,
        late: str = "accept",
        timeout: float | None = None,
    ) -> Call[Array | None]:
        """Reduce ``x`` over all ranks; ``root`` gets the result, the others None. ``op`` and ``late`` as for :meth:`allreduce`;
        DoesNotFit is raised by the root alone."""
        array = _array(x)
        options = self._options(array, op, late)
        self._check_root(root)
        error = _wrong(out, array.shape, array.dtype) if self.rank == root else None
        make = _into(out, lambda context: reduce(context, _whole(array), root, options, self._memory))
        return Call("reduce", make, timeout, array.nbytes, firm=options.firm, error=error)

    reduce, reduce_async = blocking(_reduce), in_background(_reduce)

    def _reduce_scatter(
        self,
        x: Any,
        op: str = "sum",
        out: Array | None = None,
        *,
        counts: Sequence[int] | None = None,
        late: str = "accept",
        timeout: float | None = None,
    ) -> Call[Array]:
        """Reduce ``x`` over all ranks; each rank gets its rows (along the first axis) of the result.

        ``counts``: how many rows each rank gets, together as many as ``x`` has. Default: equally many. ``op`` and ``late`` as for
        :meth:`allreduce`; DoesNotFit is raised by the ranks in whose part it happens.
        """
        array = np.atleast_1d(_array(x))
        options = self._options(array, op, late)
        rows = self._split(counts, len(array))
        error = _wrong(out, (rows[self.rank], *array.shape[1:]), array.dtype)
        make = _into(out, lambda context: reduce_scatter(context, _whole(array), rows, options, self._memory))
        return Call("reduce_scatter", make, timeout, array.nbytes, firm=options.firm, error=error)

    reduce_scatter, reduce_scatter_async = blocking(_reduce_scatter), in_background(_reduce_scatter)

    # Exchanges

    def _broadcast(
        self, x: Any, root: int = 0, out: Array | None = None, *, timeout: float | None = None
    ) -> Call[Array]:
        """Every rank gets the root's ``x``, bit for bit. ``x``: of any plain type, of the same shape and type on every rank; only
        the root's values count."""
        array = _plain(_array(x))
        self._check_root(root)
        error = _wrong(out, array.shape, array.dtype)
        make = _into(out, lambda context: broadcast(context, _whole(array), root))
        return Call("broadcast", make, timeout, array.nbytes, error=error)

    broadcast, broadcast_async = blocking(_broadcast), in_background(_broadcast)

    def _all_gather(
        self,
        x: Any,
        out: Array | None = None,
        *,
        counts: Sequence[int] | None = None,
        timeout: float | None = None,
    ) -> Call[Array]:
        """Every rank gets all ranks' rows (along the first axis), in the order of ranks. ``counts``: how many rows each rank has;
        default: as many as this one. Those of ranks that were evicted are left out (``report.evicted``), in :meth:`gather` and
        :meth:`all_to_all`, too."""
        array = np.atleast_1d(_plain(_array(x)))
        rows = self._rows(counts, array)
        error = _wrong(out, (sum(rows), *array.shape[1:]), array.dtype)
        make = _into(out, lambda context: all_gather(context, _whole(array), rows))
        return Call("all_gather", make, timeout, array.nbytes, error=error)

    all_gather, all_gather_async = blocking(_all_gather), in_background(_all_gather)

    def _gather(
        self,
        x: Any,
        root: int = 0,
        out: Array | None = None,
        *,
        counts: Sequence[int] | None = None,
        timeout: float | None = None,
    ) -> Call[Array | None]:
        """The root gets all ranks' rows (along the first axis), in the order of ranks; the others None. ``counts`` as for
        :meth:`all_gather`."""
        array = np.atleast_1d(_plain(_array(x)))
        self._check_root(root)
        rows = self._rows(counts, array)
        error = _wrong(out, (sum(rows), *array.shape[1:]), array.dtype) if self.rank == root else None
        make = _into(out, lambda context: gather(context, _whole(array), root, rows))
        return Call("gather", make, timeout, array.nbytes, error=error)

    gather, gather_async = blocking(_gather), in_background(_gather)

    def _scatter(
        self,
        x: Any,
        root: int = 0,
        out: Array | None = None,
        *,
        counts: Sequence[int] | None = None,
        timeout: float | None = None,
    ) -> Call[Array]:
        """Each rank gets its rows (along the first axis) of the root's ``x``.

        At the root ``x`` is all rows. Elsewhere its values do not count: it has the shape and type of what this rank gets (or,
        with ``counts``, of the rows at least). ``counts``: how many rows each rank gets; default: equally many.
        """
        array = np.atleast_1d(_plain(_array(x)))
        self._check_root(root)
        if self.rank == root:
            rows = self._split(counts, len(array))
        else:
            rows = [len(array)] * self.size if counts is None else self._counts(counts)
        error = _wrong(out, (rows[self.rank], *array.shape[1:]), array.dtype)
        make = _into(out, lambda context: scatter(context, _whole(array), root, rows))
        return Call("scatter", make, timeout, array.nbytes, error=error)

    scatter, scatter_async = blocking(_scatter), in_background(_scatter)

    def _all_to_all(
        self,
        x: Any,
        out: Array | None = None,
        *,
        counts: Any = None,
        timeout: float | None = None,
    ) -> Call[Array]:
        """Each rank gets from each rank the rows (along the first axis) that are for it, in the order of ranks.

        ``counts``: a matrix, ``counts[i][j]`` rows from rank i to rank j, the same on every rank. Default: each rank's rows are
        cut into equally many for everyone.
        """
        array = np.atleast_1d(_plain(_array(x)))
        if counts is None:
            matrix = np.tile(self._split(None, len(array)), (self.size, 1))
        else:
            matrix = np.asarray(counts)
            if matrix.shape != (self.size, self.size) or matrix.dtype.kind not in "iu" or matrix.min() < 0:
                raise Unsupported(f"counts must be a {self.size} x {self.size} matrix of numbers of rows")
            self._split(matrix[self.rank].tolist(), len(array))
        error = _wrong(out, (int(matrix[:, self.rank].sum()), *array.shape[1:]), array.dtype)
        make = _into(out, lambda context: all_to_all(context, _whole(array), matrix))
        return Call("all_to_all", make, timeout, array.nbytes, error=error)

    all_to_all, all_to_all_async = blocking(_all_to_all), in_background(_all_to_all)

    def _barrier(self, timeout: float | None = None) -> Call[None]:
        """Return when every rank has called it. It waits for every rank, also in a job that degrades."""
        return Call("barrier", barrier, timeout)

    barrier, barrier_async = blocking(_barrier), in_background(_barrier)

    # Arguments

    def _options(self, array: Array, op: str, late: str) -> Options:
        if late == "carry" or op == "product":
            what = "late='carry'" if late == "carry" else "op='product'"
            raise Unsupported(f"{what} is for allreduce, whose result every rank gets")
        return check(array, op, late=late, degrade=self._degrades)

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self.size:
            raise Unsupported(f"root {root} is not one of the {self.size} ranks")

    def _counts(self, counts: Sequence[int]) -> list[int]:
        numbers = [int(count) for count in counts]
        if len(numbers) != self.size or min(numbers) < 0:
            raise Unsupported(f"counts must be {self.size} numbers of rows, one for each rank; they are {numbers}")
        return numbers

    def _split(self, counts: Sequence[int] | None, rows: int) -> list[int]:
        """How many of this rank's rows each rank gets."""
        if counts is None:
            if rows % self.size:
                raise Unsupported(f"{rows} rows cannot be cut into {self.size} equal parts; give counts")
            return [rows // self.size] * self.size
        numbers = self._counts(counts)
        if sum(numbers) != rows:
            raise Unsupported(f"counts are {sum(numbers)} rows together, the array has {rows}")
        return numbers

    def _rows(self, counts: Sequence[int] | None, array: Array) -> list[int]:
        """How many rows each rank has."""
        if counts is None:
            return [len(array)] * self.size
        numbers = self._counts(counts)
        if numbers[self.rank] != len(array):
            raise Unsupported(f"counts give this rank {numbers[self.rank]} rows, its array has {len(array)}")
        return numbers


def _array(x: Any) -> Array:
    """The array, in this machine's order of bytes."""
    if isinstance(x, np.ma.MaskedArray):
        raise Unsupported("x is a masked array, and masks cannot be sent: give x.filled(value), or x.data")
    array = np.asarray(x)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _whole(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(array.shape)


def _plain(array: Array) -> Array:
    if array.dtype.hasobject:
        raise Unsupported(f"dtype {array.dtype} holds objects, which cannot be sent")
    return array


def _into(out: Array | None, flow: Make) -> Make:
    """The flow, whose result goes into ``out`` if there is one."""

    def make(context: Context) -> Flow:
        result = yield from flow(context)
        if out is None or result is None:
            return result
        if out.shape != result.shape:  # else it might be spread over what nobody has given
            gone = ", ".join(map(str, context.report.evicted))
            raise CallError(
                f"out is {out.shape}, the result {result.shape}: it has no rows of rank {gone}, which was evicted"
            )
        out[...] = result
        return out

    return make


def _wrong(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Unsupported | None:
    """What is wrong with ``out``."""
    if out is None:
        return None
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
        return Unsupported(f"out must be a plain numpy array, not {type(out).__name__}")
    if out.shape != shape or out.dtype.newbyteorder("=") != dtype:
        return Unsupported(f"out is {out.dtype} {out.shape}, the result {dtype} {shape}")
    if not out.flags.writeable:
        return Unsupported("out is read-only")
    return None
