"""allreduce: every rank gets the sum, mean or maximum over the ranks.

Cost, for S bytes of lanes a rank: S out and S in, whatever the number of ranks, and one round trip more than that for the
agreement (none with predicted scales). float32, float16: 4 bytes an element; float64: 8; integers: as many as the sum needs;
max: the type's own width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from netsum import exponents, fixed_point
from netsum.collectives.call import Blocks, Context, Group, agree
from netsum.collectives.float_sum import Carried, FloatSum, Predictions
from netsum.collectives.options import INTEGERS, Options
from netsum.collectives.stream import Stream, place
from netsum.engine import SUBMITTED, Flow
from netsum.errors import Behind, CallError, Degraded, Desynchronized, DoesNotFit, NotFinite
from netsum.fixed_point import Array
from netsum.wire.schema import Lane, Op


@dataclass
class Memory:
    """What a communicator remembers from call to call."""

    predictions: Predictions = field(default_factory=Predictions)
    carried: Carried = field(default_factory=Carried)


def allreduce(context: Context, array: Array, options: Options, memory: Memory, redone: Any) -> Flow:
    """The flow of an allreduce of a C-contiguous array; returns a new array of the same shape and dtype.

    ``redone(blocks)`` is told how many blocks a wrong prediction cost.
    """
    flat = array.reshape(-1)
    signature = ("allreduce", options.op, options.scale, array.dtype.name, array.shape, options.firm)
    if not flat.size:
        yield from agree(context, signature, np.zeros(0, np.uint16))
        yield SUBMITTED
        return np.empty_like(array)
    if not context.give:
        flat = np.zeros_like(flat)
    error = _not_finite(context.rank, flat, array.shape)
    if options.op == "max":
        result = yield from _max(context, flat, signature, error)
    elif array.dtype.name in INTEGERS:
        result = yield from _integer_sum(context, flat, signature)
    else:
        carried = memory.carried if options.late == "carry" else None
        summing = FloatSum(context, flat, signature, memory.predictions, redone, error, carried=carried)
        summing.mean = options.op == "mean"
        if options.scale == "predicted" and signature in memory.predictions.exponents:
            result = yield from summing.predicted()
        else:
            result = yield from summing.agreed(options.scale == "predicted")
    report = context.report
    if error is not None:
        raise error  # which the others have not heard of: they were done without us
    if report.lost:
        raise Behind(report)
    if options.late == "raise" and report.degraded:
        raise Degraded(report)
    return result.reshape(array.shape)


def _not_finite(rank: int, array: Array, shape: tuple[int, ...]) -> NotFinite | None:
    """The error for the first NaN (or infinity) of a float array, or None."""
    if array.dtype.kind != "f":
        return None
    bad = ~np.isfinite(array)
    if not bad.any():
        return None
    where = int(bad.argmax())
    index = tuple(int(each) for each in np.unravel_index(where, shape))
    return NotFinite(rank, index, float(array[where]))


def _max(context: Context, flat: Array, signature: tuple[object, ...], error: CallError | None) -> Flow:
    agreed = yield from agree(context, signature, np.zeros(0, np.uint16), error)
    blocks = Blocks(context, flat.size, fixed_point.own_lane(flat.dtype))
    result = np.empty_like(flat)

    def encode(start: int, stop: int) -> Array:
        return fixed_point.encode_order(blocks.rows(flat, start, stop))

    def decode(group: Group) -> None:
        values = fixed_point.decode_order(group.results, flat.dtype).reshape(-1)
        place(result, values, group.start * blocks.width)

    def unfit(start: int, stop: int) -> Any:
        return np.ones(stop - start, np.bool_) if agreed.mute else None

    yield from Stream(context, blocks, Op.MAX).run(encode, decode, unfit=unfit)
    return result


def _integer_sum(context: Context, flat: Array, signature: tuple[object, ...]) -> Flow:
    code = exponents.lane_code(exponents.largest_magnitude(flat), context.workers)
    agreed = yield from agree(context, signature, np.array([code], np.uint16))
    if agreed.lost:
        raise Desynchronized(
            "this rank was so late that it cannot know how wide the others' integers were: resync(), or join again"
        )
    lane = exponents.lane_of_code(int(agreed.values[0]))
    if lane is None:
        raise DoesNotFit(
            f"a sum of {context.workers} values does not fit 64 bits where one is larger than "
            f"{fixed_point.bias(Lane.L64, context.workers)} in magnitude, and a rank has one"
        )
    blocks = Blocks(context, flat.size, lane)
    result = np.empty_like(flat)
    limits = np.iinfo(flat.dtype)
    overflow = False

    fits = agreed.unfit(0, 1) is None or not agreed.unfit(0, 1)[0]

    def encode(start: int, stop: int) -> Array:
        rows = blocks.rows(flat, start, stop)
        return fixed_point.encode_integers(rows if fits else np.zeros_like(rows), lane, context.workers)

    def unfit(start: int, stop: int) -> Any:
        return None if fits else np.ones(stop - start, np.bool_)

    def decode(group: Group) -> None:
        nonlocal overflow
        sums = fixed_point.decode_integers(group.results, group.data_cnt, lane, context.workers).reshape(-1)
        count = min(len(sums), len(result) - group.start * blocks.width)
        sums = sums[:count]
        if lane.bytes > flat.dtype.itemsize and (sums.max() > limits.max or sums.min() < limits.min):
            overflow = True
        else:
            place(result, sums.astype(flat.dtype), group.start * blocks.width)

    yield from Stream(context, blocks, Op.SUM).run(encode, decode, unfit=unfit)
    if overflow:
        raise DoesNotFit(f"a sum does not fit {flat.dtype.name} ({limits.min}..{limits.max}); use a wider type")
    return result
