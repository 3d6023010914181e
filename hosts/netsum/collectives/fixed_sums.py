# SPDX-License-Identifier: MIT
"""Sums of fixed-point and integer values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from netsum.collectives import whole_call
from netsum.collectives.call import Context
from netsum.collectives.history import Carried, Fingerprint, History
from netsum.collectives.negotiation import NO_CODES, Negotiation, begin_unopened, negotiate
from netsum.collectives.nonfinite import Marks, checked_codes, not_finite
from netsum.collectives.options import ReductionOptions
from netsum.collectives.partition import Layout
from netsum.collectives.pipeline import BlockPipeline, send_at_once
from netsum.collectives.residual import keeping
from netsum.core.progress import SUBMITTED, Flow
from netsum.errors import CallError, SumOverflowError, UnsupportedError
from netsum.numeric import exponents, fixed_point
from netsum.numeric.exponents import ZERO_CODE, predicted_exponents
from netsum.numeric.fixed_point import Array, Counts, FloatLanes, IntegerLanes, Numbers, OwnLanes
from netsum.numeric.superaccumulator import ExactLanes
from netsum.wire.schema import EVERYONE, Lane, Op, Status

# Sums and means of floats at exponents that the ranks agree on before they send the data.
#
# Cost: one round trip more than the data itself. Blocks that are zeros on every rank are not sent.


def agreed_sum(
    context: Context,
    array: Array,
    layout: Layout,
    options: ReductionOptions,
    fingerprint: Fingerprint,
    history: History,
    error: CallError | None,
) -> Flow:
    """The flow of a sum or mean; returns the layout's segments. ``error`` is why this rank gives the call up, if it does."""
    lane = options.float_lane(array.dtype)
    pipeline = BlockPipeline(context, layout, Op.SUM, lane)
    blocks = fixed_point.widened(array).reshape(-1)
    if options.on_late == "carry":
        error = error or not_finite(context.rank, array)
    carried = history.carried if options.on_late == "carry" and error is None else None
    left_over = None if carried is None else carried.pop(fingerprint)
    if left_over is not None:
        with np.errstate(over="ignore"):
            blocks = blocks + left_over
        error = not_finite(context.rank, blocks.reshape(array.shape), " including what late calls carried over")
    marks = Marks(blocks, pipeline.partition) if options.propagates and error is None else None
    try:
        if marks is None:
            codes, error = checked_codes(
                context.rank, array, pipeline.partition.all_rows(blocks), pipeline.partition.number, error
            )
        else:
            blocks, codes = marks.finite, marks.codes
        agreed = yield from negotiate(context, fingerprint, codes, error)
        if options.scale == "predicted":
            yield agreed.complete
            # The next call may start once this one has submitted its last block: by then all ranks must hold the prediction.
            history.predictions.learn(fingerprint, predicted_exponents(agreed.values))
        dither = options.dither(context.rank, context.gen)
        plain = FloatLanes(lane, context.workers, array.dtype, agreed.exponents, options.op == "mean", dither)
        lanes = plain if options.residual is None else keeping(plain, pipeline.partition, options.residual)

        def settle() -> Flow:
            assert marks is not None
            numbers = agreed.not_finite
            agreed.values[numbers] = yield from marks.settle(context, pipeline.partition, numbers, codes[numbers])

        # A job that degrades sends blocks of zeros too: a rank that has lost the codes must still be able to count its blocks.
        skip, last = not context.degrade, None if marks is None else settle
        if dither is None:
            result = yield from whole_call.send(context, pipeline, blocks, lanes, agreed, skip_zeros=skip, settle=last)
        else:  # whose random numbers are those of the blocks that are sent
            result = yield from pipeline.send(blocks, lanes, agreed, skip_zeros=skip, settle=last)
        if marks is not None:
            marks.put_into(result, pipeline.partition, pipeline.first)
        _note(context, agreed, lane)
        if error is not None:
            raise error  # the others do not know of it, since they finished without this rank
    except BaseException:
        _put_back(carried, fingerprint, left_over)
        raise
    if carried is not None and pipeline.missed:
        carried.leave(fingerprint, pipeline.partition.only(blocks, pipeline.missed))
    return pipeline.parts(result)


def _note(context: Context, agreed: Negotiation, lane: Lane) -> None:
    """Put the quantum into the report, and the results that were lost: one without a scale is as good as none."""
    scaled = agreed.exponents(np.flatnonzero((agreed.values != ZERO_CODE) & ~agreed.unknown))
    if len(scaled):
        context.report.note_quantum(fixed_point.quantum(int(scaled.max()), lane, context.workers))
    context.report.lost = max(context.report.lost, int(agreed.unknown.sum()))


def _put_back(carried: Carried | None, fingerprint: Fingerprint, left_over: Array | None) -> None:
    """The call failed, so what earlier calls had left over was not contributed. (Values that are not finite never can be.)"""
    if carried is not None and left_over is not None and np.isfinite(left_over).all():
        carried.leave(fingerprint, left_over)


# Sums and means of floats that are added as they are, one rank after the other, in the order of the chain.
#
# Only members whose packets go by chain can do it (docs/memory.md). Each block's sum is made once and then
# passed on, so all ranks have the same bits; but another order or number of ranks rounds otherwise. The ranks need not
# agree on a scale first.


ADVICE: Final = "`netsum job create --algorithm chain` makes a job whose members can"


@dataclass(frozen=True)
class SumLanes(OwnLanes):
    """Floats as they are, and their sums, or means of them."""

    mean: bool = False

    def decode(self, lanes: Array, numbers: Numbers, data_cnt: Counts, worker_cnt: Counts, _out: Array | None = None) -> Array:
        sums = super().decode(lanes, numbers, data_cnt, worker_cnt)
        return sums / np.maximum(worker_cnt, 1)[:, None].astype(sums.dtype) if self.mean else sums


def chained_sum(
    context: Context,
    array: Array,
    layout: Layout,
    options: ReductionOptions,
    fingerprint: Fingerprint,
    error: CallError | None,
) -> Flow:
    """The flow; returns the layout's segments. ``error`` is why this rank gives the call up, if it does."""
    if not context.session.by_chain:
        error = error or UnsupportedError(f"scale='float' adds floats one rank after the other, which only chains do: {ADVICE}")
    if not options.propagates:
        error = error or not_finite(context.rank, array)
    agreed = yield from negotiate(context, fingerprint, NO_CODES, error)
    lanes = SumLanes(array.dtype, order=False, mean=options.op == "mean")
    pipeline = BlockPipeline(context, layout, Op.SUM, lanes.lane, floats=True)
    result = yield from pipeline.send(array.reshape(-1), lanes, agreed)
    return pipeline.parts(result)


# Sums and means of integers: exact, in the narrowest lanes that hold n times the largest value on any rank.


def integer_sum(context: Context, array: Array, layout: Layout, fingerprint: Fingerprint, *, mean: bool) -> Flow:
    """The flow of a sum or truncated mean; returns the layout's segments. Raises SumOverflowError."""
    code = exponents.lane_code(exponents.largest_magnitude(array), context.workers)
    agreed = yield from negotiate(context, fingerprint, np.array([code], np.uint16))
    lane = exponents.lane_of_code(int(agreed.values[0]))
    if lane is None:
        raise SumOverflowError(
            f"a rank has a value larger than {fixed_point.bias(Lane.L64, context.workers)} in magnitude, and a sum of "
            f"{context.workers} of those does not fit 64 bits"
        )
    pipeline = BlockPipeline(context, layout, Op.SUM, lane)
    blocks = array.reshape(-1)
    result = yield from whole_call.send(context, pipeline, blocks, IntegerLanes(lane, context.workers, mean), agreed)
    return [_narrowed(part, array.dtype) for part in pipeline.parts(result)]


def _narrowed(sums: Array, dtype: np.dtype[Any]) -> Array:
    """The sums in the caller's type; SumOverflowError if they do not fit it."""
    limits = np.iinfo(dtype)
    if sums.itemsize > dtype.itemsize and sums.size and (sums.max() > limits.max or sums.min() < limits.min):
        raise SumOverflowError(f"a sum does not fit {dtype.name} ({limits.min}..{limits.max}); use a wider type")
    return sums.astype(dtype, copy=False)


# Sums and means of floats that are correctly rounded: the same for every number and order of ranks, whatever the values
# are.
#
# Nothing is agreed on, so the data of an allreduce goes out at once where the job waits for every rank; all others have the
# opening first. Cost: 43 bytes an element of float32 (52 with more than 128 ranks) or bfloat16, 11 of float16, in one round trip.


def exact_sum(
    context: Context, array: Array, layout: Layout, fingerprint: Fingerprint, error: CallError | None, *, mean: bool
) -> Flow:
    """The flow; returns the layout's segments. ``error`` is why this rank gives the call up, if it does."""
    lanes = ExactLanes(context.workers, array.dtype, mean)
    pipeline = BlockPipeline(context, layout, Op.SUM, lanes.lane, lanes.per_chunk)
    blocks = array.reshape(-1)
    if context.degrade or layout.owners != (EVERYONE,):  # ranks that differ about the owners might wait for different results
        agreed = yield from negotiate(context, fingerprint, NO_CODES, error)
        result = yield from pipeline.send(blocks, lanes, agreed)
        return pipeline.parts(result)

    def encode(numbers: range) -> tuple[Array, Sequence[Status] | None]:
        return lanes.encode(pipeline.partition.rows(blocks, numbers), numbers), None

    begin_unopened(context, fingerprint, pipeline.partition.number)
    groups = yield from send_at_once(context, pipeline, encode, error)
    yield SUBMITTED
    for group in groups:
        pipeline.finish(group)
    pipeline.verdict.raise_failure(None)
    result = pipeline.result_for(array.dtype)
    for group in groups:
        pipeline.decode(group, lanes, result)
    return pipeline.parts(result)
