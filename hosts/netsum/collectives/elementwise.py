# SPDX-License-Identifier: MIT
"""Operations that no switch computes: the ranks gather the values and each computes the result."""

from __future__ import annotations

import contextlib
import math
from fractions import Fraction
from typing import Final

import numpy as np

from netsum.collectives import whole_call
from netsum.collectives.call import Context
from netsum.collectives.data_movement import gather_rows
from netsum.collectives.history import Fingerprint
from netsum.collectives.negotiation import NO_CODES, negotiate
from netsum.collectives.nonfinite import ordered
from netsum.collectives.options import ORDER, ReductionOptions
from netsum.collectives.partition import Layout
from netsum.collectives.pipeline import BlockPipeline
from netsum.core.progress import Flow
from netsum.errors import AbortedError, CallError, NotFiniteError, SumOverflowError
from netsum.numeric.fixed_point import INTEGERS, Array, OwnLanes
from netsum.wire.schema import COMBINING, Op

# Minimum, maximum, and, or, xor: the switch combines the values' own bits, lane by lane. Exact.


OPS: Final = {op.name.lower(): op for op in COMBINING if op is not Op.SUM}


def lanewise(
    context: Context,
    array: Array,
    layout: Layout,
    options: ReductionOptions,
    fingerprint: Fingerprint,
    error: CallError | None,
) -> Flow:
    """The flow; returns the layout's segments. ``error`` is why this rank gives the call up, if it does."""
    agreed = yield from negotiate(context, fingerprint, NO_CODES, error)
    lanes = OwnLanes(array.dtype, options.op in ORDER)
    pipeline = BlockPipeline(context, layout, OPS[options.op], lanes.lane)
    blocks = (ordered(array, options.op) if options.propagates else array).reshape(-1)
    result = yield from whole_call.send(context, pipeline, blocks, lanes, agreed)
    return pipeline.parts(result)


# The product over the ranks, computed on the hosts: no P4 switch multiplies lanes of 2048 bits, and factors have no
# common scale.
#
# Every rank gathers all arrays and multiplies them in the order of ranks, so all get the same bits. It waits for every
# rank, even in a job that degrades. Cost: that of an all_gather, n times an allreduce's.


def product(context: Context, array: Array, *, propagates: bool = False) -> Flow:
    """The flow of a product of C-contiguous arrays; returns a new array of the same shape and dtype. ``propagates``: a factor
    need not be finite."""
    name = "product propagate" if propagates else "product"
    factors = yield from gather_rows(context, name, array.reshape(1, -1), [1] * context.workers, array.shape)
    if array.dtype.name in INTEGERS:
        return _multiply_integers(factors).reshape(array.shape)
    ranks = [rank for rank in range(context.workers) if rank not in context.report.evicted]
    if not propagates:
        _check_finite(context.rank, ranks, factors, array.shape)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        result = np.multiply.reduce(factors.astype(np.float64), axis=0)
        return result.astype(array.dtype).reshape(array.shape)


# Exact sums of float64, whose digits no chunk has room for: also by a gather.


def gathered_sum(context: Context, name: str, array: Array, layout: Layout, *, mean: bool) -> Flow:
    """The flow of the correctly rounded sum or mean of a C-contiguous array of float64; returns the layout's segments. Cost: that
    of an all_gather, and some microseconds of Python for each element."""
    name = (
        f"{name} exact {'mean' if mean else 'sum'} for {','.join(map(str, layout.owners))} of {','.join(map(str, layout.counts))}"
    )
    rows = yield from gather_rows(context, name, array.reshape(1, -1), [1] * context.workers, array.shape)
    divisor = len(rows) if mean else 1
    result = np.array([_true_sum(values, divisor) for values in rows.T.tolist()])
    return np.split(result, np.cumsum(layout.counts)[:-1])


def _true_sum(values: list[float], divisor: int) -> float:
    if special := [value for value in values if not math.isfinite(value)]:
        return sum(special)
    with contextlib.suppress(OverflowError):  # of what comes before the end
        if divisor == 1:
            return math.fsum(values) + 0.0  # no negative zero
    total = sum(map(Fraction, values), Fraction()) / divisor
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _check_finite(rank: int, ranks: list[int], factors: Array, shape: tuple[int, ...]) -> None:
    """Raise on every rank if some rank's factors are not finite. ``ranks`` are those of the rows."""
    bad, own = ~np.isfinite(factors), ranks.index(rank)
    if bad[own].any():
        where = int(bad[own].argmax())
        index = tuple(int(each) for each in np.unravel_index(where, shape))
        raise NotFiniteError(rank, index, float(factors[own, where]))
    if bad.any():
        whose = ranks[int(bad.any(axis=1).argmax())]
        raise AbortedError(f"rank {whose} aborted the call: its input has a NaN or an infinity")


def _multiply_integers(factors: Array) -> Array:
    """Exact products: if 64 bits may not suffice, they are computed with Python's integers."""
    limits = np.iinfo(factors.dtype)
    with np.errstate(divide="ignore"):
        bits = np.log2(np.abs(factors.astype(np.float64))).sum(axis=0)
    wide = np.uint64 if factors.dtype.kind == "u" else np.int64
    result = np.multiply.reduce(factors.astype(wide), axis=0)
    large = np.flatnonzero(bits >= 8 * factors.dtype.itemsize - 2)
    if large.size:
        exact = np.multiply.reduce(factors[:, large].astype(object), axis=0)
        if max(exact) > limits.max or min(exact) < limits.min:
            raise SumOverflowError(f"a product does not fit {factors.dtype} ({limits.min}..{limits.max}); use a wider type")
        result[large] = exact.astype(wide)
    return np.asarray(result.astype(factors.dtype))
