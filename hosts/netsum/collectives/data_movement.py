"""The exchanges that a communicator offers: broadcast, all_gather, gather, scatter, all_to_all, and barrier.

All of them move bytes from one rank to another, or to everyone. The source contributes its bytes, the others contribute nothing;
the switch's COPY passes them on as soon as they come. A block is finished when every rank has answered, so no slot is reused
before the receivers hold it: this is as reliable as a reduction, and uses the same window. The blocks never age out, since
nothing could replace the source's bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from netsum.collectives.arguments import (
    as_array,
    as_rows,
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
from netsum.collectives.pipeline import BlockPipeline
from netsum.core.progress import SUBMITTED, Flow
from netsum.errors import AbortedError, ResultLostError, UnsupportedError
from netsum.numeric.fixed_point import Array
from netsum.wire.schema import EVERYONE, Lane, Op


class Part(NamedTuple):
    """``size`` bytes from ``source`` for ``dest`` (a rank, or EVERYONE)."""

    source: int
    dest: int
    size: int


def exchange(context: Context, fingerprint: tuple[object, ...], parts: Sequence[Part], mine: Sequence[Array]) -> Flow:
    """The flow of an exchange; returns each part's bytes, or None for a part that this rank neither has nor gets. Parts from or
    for ranks that were evicted earlier are left out on every rank; AbortedError if no part is left.

    ``mine`` are the parts whose source is this rank, in order, as flat arrays of uint8. A rank's parts for itself are not sent.
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
    groups = []
    pipelines = [
        None if gone or _stays(context, part) else BlockPipeline(context, Layout.whole(part.size, part.dest), Op.COPY, Lane.L8)
        for part, gone in zip(parts, left_out, strict=True)
    ]
    left = sum(pipeline.partition.number for pipeline in pipelines if pipeline is not None)
    for part, pipeline in zip(parts, pipelines, strict=True):
        given = next(own) if part.source == rank else None
        if pipeline is None:
            results.append(given)
            continue
        wanted = part.dest in (EVERYONE, rank)
        result = given if given is not None else np.empty(part.size, np.uint8) if wanted else None
        results.append(result)
        for numbers in pipeline.groups():
            left -= len(numbers)
            if given is not None:
                group = pipeline.submit(pipeline.partition.rows(given, numbers), numbers, source=rank, more=left > 0)
            else:
                group = pipeline.submit_empty(numbers, source=part.source, more=left > 0)
            groups.append((group, pipeline, part.source, result if given is None else None))
            yield pipeline.window_has_room()
    yield SUBMITTED
    bereft: set[int] = set()
    for group, pipeline, source, result in groups:
        yield group.complete
        pipeline.finish(group)
        pipeline.verdict.raise_failure(None)
        if not group.data_cnt.all():
            bereft.add(source)
        elif result is not None:
            pipeline.partition.place(result, group.lanes, group.numbers)
    if context.report.lost:
        # Even if a rank was evicted: what the lost results held is not known.
        raise ResultLostError(context.report)
    if bereft:
        # The block finished without a payload: the switch does not wait for a member that was evicted.
        raise AbortedError(f"rank {min(bereft)} was evicted before it had sent its part")
    return results


def join_rows(parts: Sequence[Array | None], counts: Sequence[int], like: Array) -> Array:
    """A new array of all ranks' parts one after the other, ``counts`` rows each, without those that were left out."""
    there = [rank for rank, part in enumerate(parts) if part is not None]
    rows = [part for part in parts if part is not None]
    return np.concatenate(rows).view(like.dtype).reshape(sum(counts[rank] for rank in there), *like.shape[1:])


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
    size = row_bytes(array)
    parts = [Part(rank, EVERYONE, count * size) for rank, count in enumerate(counts)]
    fingerprint = (name, array.dtype, array.shape[1:] if shape is None else shape, tuple(counts))
    got = yield from exchange(context, fingerprint, parts, [as_bytes(array)])
    return join_rows(got, counts, array)


class Exchanges(Caller):
    """Methods of :class:`netsum.Communicator`, which raise :mod:`netsum.errors`. They carry bytes of any plain type, and wait for
    every rank even in a job that degrades. The arguments and errors of :meth:`broadcast` and :meth:`all_gather` apply to all."""

    @collective
    def broadcast(self, x: ArrayLike, root: int = 0, out: Array | None = None, *, timeout: float | None = None) -> Call[Array]:
        """Every rank gets the root's ``x``, bit for bit.

        Args:
            x: array of any plain type, of the same shape and type on every rank; only the root's values count.
            root: a rank.
            out: array for the result, of x's shape and type; may be ``x`` itself. Default: a new one.
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

        def flow(context: Context) -> Flow:
            parts = [Part(root, EVERYONE, array.nbytes)]
            mine = [as_bytes(array)] if context.rank == root else []
            fingerprint = ("broadcast", f"root {root}", array.dtype, array.shape)
            (result,) = yield from exchange(context, fingerprint, parts, mine)
            return array.copy() if context.rank == root else result.view(array.dtype).reshape(array.shape)

        return Call("broadcast", write_out(out, flow), array.nbytes, error=error, timeout=timeout)

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
        return Call("all_gather", write_out(out, flow), array.nbytes, error=error, timeout=timeout)

    all_gather_async = in_background(all_gather)

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
            got = yield from exchange(context, fingerprint, parts, [as_bytes(array)])
            return join_rows(got, rows, array) if context.rank == root else None

        return Call("gather", write_out(out, flow), array.nbytes, error=error, timeout=timeout)

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
            got = yield from exchange(context, fingerprint, parts, mine)
            return got[context.rank].copy().view(array.dtype).reshape(shape)

        return Call("scatter", write_out(out, flow), array.nbytes, error=error, timeout=timeout)

    scatter_async = in_background(scatter)

    @collective
    def all_to_all(
        self, x: ArrayLike, out: Array | None = None, *, counts: ArrayLike | None = None, timeout: float | None = None
    ) -> Call[Array]:
        """Each rank gets its rows (along the first axis) from every rank, in the order of ranks.

        ``counts`` is a matrix, the same on every rank: ``counts[i][j]`` rows go from rank i to rank j. Default: each rank's rows
        are divided equally. Cost, for S bytes a rank: S (n - 1)/n out of each, the same in; headers for what goes between others.
        """
        array, size = as_rows(x), self.size
        if counts is None:
            matrix: Array = np.tile(rows_to_each(None, len(array), size), (size, 1))
        else:
            matrix = np.asarray(counts)
            if matrix.shape != (size, size) or matrix.dtype.kind not in "iu" or matrix.min() < 0:
                raise UnsupportedError(f"counts must be a {size} x {size} matrix of row counts")
            rows_to_each(matrix[self.rank].tolist(), len(array), size)
        error = wrong_out(out, (int(matrix[:, self.rank].sum()), *array.shape[1:]), array.dtype)

        def flow(context: Context) -> Flow:
            ranks, bytes_a_row = range(context.workers), row_bytes(array)
            parts = [Part(i, j, int(matrix[i][j]) * bytes_a_row) for i in ranks for j in ranks]
            mine = np.split(as_bytes(array), np.cumsum(matrix[context.rank])[:-1] * bytes_a_row)
            fingerprint = ("all_to_all", array.dtype, array.shape[1:], matrix.tolist())
            got = yield from exchange(context, fingerprint, parts, mine)
            column = [got[source * context.workers + context.rank] for source in ranks]
            return join_rows(column, [int(count) for count in matrix[:, context.rank]], array)

        return Call("all_to_all", write_out(out, flow), array.nbytes, error=error, timeout=timeout)

    all_to_all_async = in_background(all_to_all)

    @collective
    def barrier(self, timeout: float | None = None) -> Call[None]:
        """Wait until every rank has called it. Cost: one round trip, one chunk each way."""

        def flow(context: Context) -> Flow:
            yield from negotiate(context, ("barrier",), NO_CODES)
            yield SUBMITTED

        return Call("barrier", flow, timeout=timeout)

    barrier_async = in_background(barrier)
