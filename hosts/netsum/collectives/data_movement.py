# SPDX-License-Identifier: MIT
"""The exchanges that a communicator offers: broadcast, all_gather, gather, scatter, all_to_all, and barrier.

All of them move bytes from one rank to another, or to everyone. The source contributes its bytes, the others contribute nothing;
the switch's COPY passes them on as soon as they come. A block is finished when every rank has answered, so no slot is reused
before the receivers hold it: this is as reliable as a reduction, and uses the same window. The blocks never age out, since
nothing could replace the source's bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from netsum.collectives.arguments import (
    as_array,
    as_rows,
    check_arrays,
    check_plain,
    check_root,
    rows_by_rank,
    rows_from_each,
    rows_to_each,
    write_out,
    wrong_out,
)
from netsum.collectives.call import Call, Caller, Context, collective, in_background
from netsum.collectives.negotiation import NO_CODES, negotiate, ranks_present
from netsum.collectives.partition import Layout
from netsum.collectives.pipeline import BlockGroup, BlockPipeline
from netsum.core.progress import SUBMITTED, Flow
from netsum.errors import AbortedError, CallError, ResultLostError, UnsupportedError
from netsum.numeric.fixed_point import Array
from netsum.wire.schema import EVERYONE, Lane, Op, Status


class Part(NamedTuple):
    """``size`` bytes from ``source`` for ``dest`` (a rank, or EVERYONE)."""

    source: int
    dest: int
    size: int


class _Arrivals:
    """Blocks in flight, in the order in which they were submitted, and where their bytes go."""

    def __init__(self) -> None:
        self._groups: deque[tuple[BlockGroup, BlockPipeline, int, Array | None]] = deque()
        self._failed: list[BlockPipeline] = []
        self.bereft: set[int] = set()
        """Sources that were evicted before they had sent their part."""

    def add(self, group: BlockGroup, pipeline: BlockPipeline, source: int, result: Array | None) -> None:
        """``result`` is None if this rank does not get the bytes, or has them."""
        self._groups.append((group, pipeline, source, result))

    def receive(self) -> None:
        """Take the complete groups, in order."""
        while self._groups and self._groups[0][0].complete():
            group, pipeline, source, result = self._groups.popleft()
            pipeline.finish(group)
            if pipeline.verdict.highest != Status.OK:
                self._failed.append(pipeline)
            elif not group.data_cnt.all():
                self.bereft.add(source)
            elif result is not None:
                pipeline.partition.place(result, group.lanes, group.numbers)

    def rest(self) -> Flow:
        """The flow that waits for all groups, or raises the first failure."""
        while self._groups or self._failed:
            for pipeline in self._failed:
                pipeline.verdict.raise_failure(None)
            self._failed.clear()
            if self._groups:
                yield self._groups[0][0].complete
            self.receive()


def exchange(
    context: Context,
    fingerprint: tuple[object, ...],
    parts: Sequence[Part],
    mine: Sequence[Array],
    into: Sequence[Array],
) -> Flow:
    """The flow of an exchange; returns each part's bytes, or None for a part that this rank neither has nor gets. Parts from or
    for ranks that were evicted earlier are left out on every rank; AbortedError if no part is left.

    ``mine`` are the parts whose source is this rank, in order, as flat arrays of uint8. A rank's parts for itself are not sent.
    ``into`` has an array of uint8 for each part, where this rank gets it from another one; it is empty if this rank gets none.
    """
    agreed = yield from negotiate(context, fingerprint, NO_CODES)
    there = yield from ranks_present(context, agreed)
    left_out = [not {part.source, part.dest} <= {*there, EVERYONE} for part in parts]
    if parts and all(left_out):
        who = ", ".join(map(str, context.report.evicted))
        raise AbortedError(f"rank {who} was evicted, and without it this call has nothing for the others")
    rank = context.rank
    own = iter(mine)
    results: list[Array | None] = []
    arrivals = _Arrivals()
    pipelines = [
        None if gone or _stays(context, part) else BlockPipeline(context, Layout.whole(part.size, part.dest), Op.COPY, Lane.L8)
        for part, gone in zip(parts, left_out, strict=True)
    ]
    left = sum(pipeline.partition.number for pipeline in pipelines if pipeline is not None)
    for index, (part, pipeline) in enumerate(zip(parts, pipelines, strict=True)):
        given = next(own) if part.source == rank else None
        if pipeline is None:
            results.append(given)
            continue
        result = into[index] if given is None and part.dest in (EVERYONE, rank) else None
        results.append(result if given is None else given)
        for numbers in pipeline.groups():
            left -= len(numbers)
            if given is not None:
                group = pipeline.submit(pipeline.partition.rows(given, numbers), numbers, source=rank, more=left > 0)
            else:
                group = pipeline.submit_empty(numbers, source=part.source, more=left > 0)
            arrivals.add(group, pipeline, part.source, result)
            yield pipeline.window_has_room()
            arrivals.receive()
    yield SUBMITTED
    yield from arrivals.rest()
    if context.report.lost:
        # Even if a rank was evicted: what the lost results held is not known.
        raise ResultLostError(context.report)
    if arrivals.bereft:
        # The block finished without a payload: the switch does not wait for a member that was evicted.
        raise AbortedError(f"rank {min(arrivals.bereft)} was evicted before it had sent its part")
    return results


class GatheredRows:
    """Rows of all ranks one after the other, ``counts`` of each, as they arrive: in the caller's ``context.out`` if possible."""

    def __init__(self, context: Context, counts: Sequence[int], like: Array) -> None:
        shape, whole = (sum(counts), *like.shape[1:]), context.out
        if whole is None or (whole.shape, whole.dtype) != (shape, like.dtype):
            whole = np.empty(shape, like.dtype)
        self._context, self._counts, self._whole = context, counts, whole
        self.room = np.split(as_bytes(whole), np.cumsum(counts)[:-1] * row_bytes(like))
        """A flat array of uint8 for each rank's."""

    def joined(self, parts: Sequence[Array | None]) -> Array:
        """All rows; without those of the ranks that were left out, a new array."""
        rows = [part for part in parts if part is not None]
        if len(rows) < len(parts):
            count = sum(count for count, part in zip(self._counts, parts, strict=True) if part is not None)
            return np.concatenate(rows).view(self._whole.dtype).reshape(count, *self._whole.shape[1:])
        _copy_own(self.room, rows)
        self._context.filled = self._whole is self._context.out
        return self._whole


def _copy_own(rooms: Sequence[Array], parts: Sequence[Array]) -> None:
    """Copy the parts that were not sent, which are not in their room yet."""
    for room, part in zip(rooms, parts, strict=True):
        if part is not room:
            room[...] = part


def _fill(context: Context, out: Sequence[Array], parts: Sequence[Array | None], rooms: Sequence[Array]) -> Sequence[Array]:
    """``out``, whose bytes are the ``rooms``. Raises CallError if parts were left out."""
    rows = [part for part in parts if part is not None]
    if len(rows) < len(parts):
        gone = ", ".join(map(str, context.report.evicted))
        raise CallError(f"out has an array for each rank, and the result lacks the rows of rank {gone}, which was evicted")
    _copy_own(rooms, rows)
    return out


def _apart(array: Array, out: Sequence[Array]) -> Array:
    """The array; a copy if it would be overwritten while it is sent."""
    return array.copy() if any(np.may_share_memory(array, other) for other in out) else array


def _stays(context: Context, part: Part) -> bool:
    return part.source == part.dest or context.workers == 1


def as_bytes(array: Array) -> Array:
    """A C-contiguous array as a flat array of uint8."""
    return array.reshape(-1).view(np.uint8)


def row_bytes(array: Array) -> int:
    """Bytes of one row (along the first axis)."""
    return array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))


def gather_rows(context: Context, name: str, array: Array, counts: Sequence[int], shape: tuple[int, ...] | None = None) -> Flow:
    """The flow that brings all ranks' rows to every rank, in the order of ranks. ``counts``: how many rows each rank has;
    ``shape``: what the ranks compare, if that is not the shape of a row."""
    gathered = GatheredRows(context, counts, array)
    return gathered.joined((yield from _gather(context, name, array, counts, gathered.room, shape)))


def _gather(
    context: Context,
    name: str,
    array: Array,
    counts: Sequence[int],
    into: Sequence[Array],
    shape: tuple[int, ...] | None = None,
) -> Flow:
    size = row_bytes(array)
    parts = [Part(rank, EVERYONE, count * size) for rank, count in enumerate(counts)]
    fingerprint = (name, array.dtype, array.shape[1:] if shape is None else shape, tuple(counts))
    return (yield from exchange(context, fingerprint, parts, [as_bytes(array)], into))


def _all_to_all(context: Context, matrix: Array, like: Array, mine: Sequence[Array], into: Sequence[Array]) -> Flow:
    """The flow that exchanges rows like this array's; returns each rank's part for this one."""
    ranks, size = range(context.workers), row_bytes(like)
    parts = [Part(i, j, int(matrix[i][j]) * size) for i in ranks for j in ranks]
    fingerprint = ("all_to_all", like.dtype, like.shape[1:], matrix.tolist())
    got = yield from exchange(context, fingerprint, parts, mine, [room for room in into for _ in ranks])
    return got[context.rank :: context.workers]


class Exchanges(Caller):
    """Methods of :class:`netsum.Communicator`, which raise :mod:`netsum.errors`. They carry bytes of any plain type, and wait for
    every rank even in a job that degrades. The arguments and errors of :meth:`broadcast` and :meth:`all_gather` apply to all."""

    @collective
    def broadcast(self, x: ArrayLike, root: int = 0, out: Array | None = None, *, timeout: float | None = None) -> Call[Array]:
        """Every rank gets the root's ``x``, bit for bit.

        Args:
            x: array of any plain type, of the same shape and type on every rank; only the root's values count.
            root: a rank.
            out: array for the result, of x's shape and type; may be ``x`` itself. Default: a new one. After an error, what is in
                it means nothing, but at the root.
            timeout: seconds; default: the communicator's.

        Raises:
            UnsupportedError, InvalidTimeoutError: an argument is wrong. The others raise AbortedError.
            AbortedError: also if the root was evicted.
            MismatchError, ResultLostError, CallTimeoutError, RejectedError, EvictedError, DesynchronizedError, ClosedError:
                see :mod:`netsum.errors`.

        Cost, for S bytes: S out of the root, S into every rank; two round trips.
        """
        array = as_array(x)
        check_plain(array)
        check_root(root, self.size)
        error = wrong_out(out, array.shape, array.dtype)
        fits = error is None and out is not None and out.flags.c_contiguous and out.dtype == array.dtype
        room = out if fits else None

        def flow(context: Context) -> Flow:
            parts = [Part(root, EVERYONE, array.nbytes)]
            mine = [as_bytes(array)] if context.rank == root else []
            fingerprint = ("broadcast", f"root {root}", array.dtype, array.shape)
            target = array if context.rank == root else np.empty_like(array) if room is None else room
            (result,) = yield from exchange(context, fingerprint, parts, mine, [as_bytes(target)])
            if result is None or out is None:
                return target.copy() if target is array else target
            np.copyto(out, target)  # which does nothing if they are one
            return out

        return Call("broadcast", flow, array.nbytes, error=error, timeout=timeout)

    broadcast_async = in_background(broadcast)

    @collective
    def all_gather(
        self,
        x: ArrayLike,
        out: Array | None = None,
        *,
        counts: Sequence[int] | None = None,
        timeout: float | None = None,
    ) -> Call[Array]:
        """Every rank gets all ranks' rows (along the first axis), in the order of ranks.

        ``counts`` is how many rows each rank has; default: as many as this one. Rows of evicted ranks are left out
        (``report.evicted``), here and in :meth:`gather` and :meth:`all_to_all`. Cost, for S bytes a rank: S out of each, n S
        in.
        """
        array = as_rows(x)
        rows = rows_from_each(counts, len(array), self.rank, self.size)
        error = wrong_out(out, (sum(rows), *array.shape[1:]), array.dtype)
        flow = partial(gather_rows, name="all_gather", array=array, counts=rows)
        return Call("all_gather", write_out(out, flow, array), array.nbytes, error=error, timeout=timeout)

    all_gather_async = in_background(all_gather)

    @collective
    def all_gather_list(self, x: ArrayLike, out: Sequence[Array], *, timeout: float | None = None) -> Call[Sequence[Array]]:
        """Every rank gets all ranks' rows, as in :meth:`all_gather`, but each in an array of its own: ``out`` has one for each
        rank, and is returned. An evicted rank is a CallError. Cost: as :meth:`all_gather`; no copy of the rows is made."""
        array = as_rows(x)
        counts = rows_from_each([len(each) for each in out], len(array), self.rank, self.size)
        check_arrays(out, counts, array, out=True)
        array = _apart(array, [each for rank, each in enumerate(out) if rank != self.rank])

        def flow(context: Context) -> Flow:
            rooms = list(map(as_bytes, out))
            return _fill(context, out, (yield from _gather(context, "all_gather", array, counts, rooms)), rooms)

        return Call("all_gather", flow, array.nbytes, timeout=timeout)

    all_gather_list_async = in_background(all_gather_list)

    @collective
    def gather(
        self,
        x: ArrayLike,
        root: int = 0,
        out: Array | None = None,
        *,
        counts: Sequence[int] | None = None,
        timeout: float | None = None,
    ) -> Call[Array | None]:
        """The root gets all ranks' rows (along the first axis), in the order of ranks; the others get None.

        ``counts`` as for :meth:`all_gather`. Cost, for S bytes a rank: S out of each but the root, (n - 1) S into the root;
        headers elsewhere.
        """
        array = as_rows(x)
        check_root(root, self.size)
        rows = rows_from_each(counts, len(array), self.rank, self.size)
        error = wrong_out(out, (sum(rows), *array.shape[1:]), array.dtype) if self.rank == root else None

        def flow(context: Context) -> Flow:
            size = row_bytes(array)
            parts = [Part(rank, root, count * size) for rank, count in enumerate(rows)]
            fingerprint = ("gather", f"root {root}", array.dtype, array.shape[1:], tuple(rows))
            mine = [as_bytes(array)]
            if context.rank != root:
                yield from exchange(context, fingerprint, parts, mine, ())
                return None
            gathered = GatheredRows(context, rows, array)
            return gathered.joined((yield from exchange(context, fingerprint, parts, mine, gathered.room)))

        return Call("gather", write_out(out, flow, array), array.nbytes, error=error, timeout=timeout)

    gather_async = in_background(gather)

    @collective
    def scatter(
        self,
        x: ArrayLike,
        root: int = 0,
        out: Array | None = None,
        *,
        counts: Sequence[int] | None = None,
        timeout: float | None = None,
    ) -> Call[Array]:
        """Each rank gets its rows (along the first axis) of the root's ``x``.

        At the root, ``x`` is all rows. Elsewhere its values do not count: it has the shape and type of what this rank gets (with
        ``counts``, only its rows must). ``counts`` is how many rows each rank gets; default: equal numbers. Cost, for S bytes at
        the root: S (n - 1)/n out of it, S/n into each other rank; headers elsewhere.
        """
        array = as_rows(x)
        check_root(root, self.size)
        if self.rank == root:
            rows = rows_to_each(counts, len(array), self.size)
        else:
            rows = [len(array)] * self.size if counts is None else rows_by_rank(counts, self.size)
        shape = (rows[self.rank], *array.shape[1:])
        error = wrong_out(out, shape, array.dtype)

        def flow(context: Context) -> Flow:
            size = row_bytes(array)
            parts = [Part(root, rank, count * size) for rank, count in enumerate(rows)]
            mine = np.split(as_bytes(array), np.cumsum(rows)[:-1] * size) if context.rank == root else []
            fingerprint = ("scatter", f"root {root}", array.dtype, array.shape[1:], tuple(rows))
            gathered = GatheredRows(context, [rows[context.rank]], array)
            got = yield from exchange(context, fingerprint, parts, mine, gathered.room * context.workers)
            return gathered.joined([got[context.rank]])

        return Call("scatter", write_out(out, flow, array), array.nbytes, error=error, timeout=timeout)

    scatter_async = in_background(scatter)

    @collective
    def all_to_all(
        self, x: ArrayLike, out: Array | None = None, *, counts: ArrayLike | None = None, timeout: float | None = None
    ) -> Call[Array]:
        """Each rank gets its rows (along the first axis) from every rank, in the order of ranks.

        ``counts`` is a matrix, the same on every rank: ``counts[i][j]`` rows go from rank i to rank j. Default: each rank's rows
        are divided equally. Cost, for S bytes a rank: S (n - 1)/n out of each, the same in; headers for what goes between others.
        """
        array = as_rows(x)
        matrix = self._matrix(counts, len(array))
        received = [int(count) for count in matrix[:, self.rank]]
        error = wrong_out(out, (sum(received), *array.shape[1:]), array.dtype)

        def flow(context: Context) -> Flow:
            mine = np.split(as_bytes(array), np.cumsum(matrix[context.rank])[:-1] * row_bytes(array))
            gathered = GatheredRows(context, received, array)
            return gathered.joined((yield from _all_to_all(context, matrix, array, mine, gathered.room)))

        return Call("all_to_all", write_out(out, flow, array), array.nbytes, error=error, timeout=timeout)

    all_to_all_async = in_background(all_to_all)

    @collective
    def all_to_all_list(
        self, x: Sequence[Array], out: Sequence[Array], *, counts: ArrayLike | None = None, timeout: float | None = None
    ) -> Call[Sequence[Array]]:
        """Each rank gets rows from every rank, as in :meth:`all_to_all`, but ``x`` has an array for each rank, and so has
        ``out``, which is returned. An evicted rank is a CallError. Cost: as :meth:`all_to_all`; no copy of the rows is made."""
        arrays = [as_rows(each) for each in x]
        matrix = self._matrix(counts, sum(map(len, arrays)))
        check_arrays(arrays, matrix[self.rank].tolist(), arrays[0])
        check_arrays(out, matrix[:, self.rank].tolist(), arrays[0], out=True)
        mine = [as_bytes(_apart(each, out)) for each in arrays]

        def flow(context: Context) -> Flow:
            rooms = list(map(as_bytes, out))
            return _fill(context, out, (yield from _all_to_all(context, matrix, arrays[0], mine, rooms)), rooms)

        return Call("all_to_all", flow, sum(each.nbytes for each in mine), timeout=timeout)

    all_to_all_list_async = in_background(all_to_all_list)

    def _matrix(self, counts: ArrayLike | None, rows: int) -> Array:
        """The numbers of rows that go from rank to rank, of which this one has ``rows``."""
        if counts is None:
            return np.tile(rows_to_each(None, rows, self.size), (self.size, 1))
        matrix = np.asarray(counts)
        if matrix.shape != (self.size, self.size) or matrix.dtype.kind not in "iu" or matrix.min() < 0:
            raise UnsupportedError(f"counts must be a {self.size} x {self.size} matrix of row counts")
        rows_to_each(matrix[self.rank].tolist(), rows, self.size)
        return matrix

    @collective
    def barrier(self, timeout: float | None = None) -> Call[None]:
        """Wait until every rank has called it. Cost: one round trip, one chunk each way."""

        def flow(context: Context) -> Flow:
            yield from negotiate(context, ("barrier",), NO_CODES)
            yield SUBMITTED

        return Call("barrier", flow, timeout=timeout)

    barrier_async = in_background(barrier)
