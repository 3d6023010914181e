"""What allreduce, reduce and reduce_scatter are: a reduction over the ranks, with a layout that says who gets what.

Cost, for S bytes of lanes a rank: S out; in, what the rank gets, and a header for each block that it does not get. One round
trip more than that for the agreement (none with predicted scales). Lanes: float32, float16 and bfloat16 4 bytes an element,
float64 8, integers as many as the sum needs; min, max, and, or, xor the type's own width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from netsum import exponents, fixed_point
from netsum.collectives.blocks import Blocks, Group, Numbers
from netsum.collectives.call import Context, agree
from netsum.collectives.finite import not_finite
from netsum.collectives.float_sum import Carried, FloatSum, Predictions
from netsum.collectives.layout import Layout
from netsum.collectives.options import ARITHMETIC, ORDER, Options
from netsum.collectives.stream import Stream, place
from netsum.engine import SUBMITTED, Flow
from netsum.errors import Behind, CallError, Degraded, DoesNotFit
from netsum.fixed_point import INTEGERS, Array
from netsum.wire.schema import COMBINING, EVERYONE, Lane, Op

OPS: Final = {op.name.lower(): op for op in COMBINING if op is not Op.SUM}
"""Operations that the switch runs on the values' own lanes."""


@dataclass
class Memory:
    """What a communicator remembers from call to call. ``redone(blocks)`` is told how many blocks a wrong prediction cost."""

    redone: Callable[[int], None]
    predictions: Predictions = field(default_factory=Predictions)
    carried: Carried = field(default_factory=Carried)


def reduction(context: Context, name: str, array: Array, layout: Layout, options: Options, memory: Memory) -> Flow:
    """The flow of a reduction of a C-contiguous array; returns the layout's segments, new and flat. Those that this rank does not
    get hold nothing."""
    flat = array.reshape(-1)
    signature: tuple[object, ...] = (name, array.dtype.name, array.shape, options.agreed)
    if len(layout.counts) > 1 or layout.owners[0] != EVERYONE:
        signature += (layout.counts, layout.owners)
    if not flat.size:
        yield from agree(context, signature, np.zeros(0, np.uint16))
        if context.error is not None:
            raise context.error
        yield SUBMITTED
        return [np.empty(0, array.dtype) for _ in layout.counts]
    if not context.give:
        flat = np.zeros_like(flat)
    error = context.error or not_finite(context.rank, flat, array.shape)
    if options.op not in ARITHMETIC:
        result = yield from _own_lanes(context, flat, layout, options.op, signature, error)
    elif array.dtype.name in INTEGERS:
        result = yield from _integer_sum(context, flat, layout, signature)
    else:
        carried = memory.carried if options.late == "carry" else None
        predictions = memory.predictions
        summing = FloatSum(
            context,
            flat,
            signature,
            predictions,
            memory.redone,
            error,
            shape=array.shape,
            layout=layout,
            options=options,
            carried=carried,
        )
        error = summing.error
        if options.scale == "predicted" and signature in predictions.exponents:
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
    return result


def _own_lanes(
    context: Context, flat: Array, layout: Layout, op: str, signature: tuple[object, ...], error: CallError | None
) -> Flow:
    agreed = yield from agree(context, signature, np.zeros(0, np.uint16), error)
    blocks = Blocks(context, layout, fixed_point.own_lane(flat.dtype))
    given = blocks.cut.padded(flat)
    result = np.empty(len(given), flat.dtype)
    to_lanes, from_lanes = (
        (fixed_point.encode_order, fixed_point.decode_order)
        if op in ORDER
        else (fixed_point.encode_bits, fixed_point.decode_bits)
    )

    def encode(numbers: Numbers) -> Array:
        return to_lanes(blocks.rows(given, numbers))

    def decode(group: Group) -> None:
        place(result, from_lanes(group.results, flat.dtype), group.numbers, group.mine)

    def unfit(numbers: Numbers) -> Any:
        return np.ones(len(numbers), np.bool_) if agreed.mute else None

    yield from Stream(context, blocks, OPS[op]).run(encode, decode, unfit=unfit)
    return blocks.cut.parts(result)


def _integer_sum(context: Context, flat: Array, layout: Layout, signature: tuple[object, ...]) -> Flow:
    code = exponents.lane_code(exponents.largest_magnitude(flat), context.workers)
    agreed = yield from agree(context, signature, np.array([code], np.uint16))
    lane = exponents.lane_of_code(int(agreed.values[0]))
    if lane is None:
        raise DoesNotFit(
            f"a sum of {context.workers} values does not fit 64 bits where one is larger than "
            f"{fixed_point.bias(Lane.L64, context.workers)} in magnitude, and a rank has one"
        )
    blocks = Blocks(context, layout, lane)
    given = blocks.cut.padded(flat)
    result = np.zeros(len(given), flat.dtype)
    limits = np.iinfo(flat.dtype)
    overflow = False
    unfitting = agreed.unfit(range(1))
    fits = unfitting is None or not unfitting[0]

    def encode(numbers: Numbers) -> Array:
        rows = blocks.rows(given, numbers)
        return fixed_point.encode_integers(rows if fits else np.zeros_like(rows), lane, context.workers)

    def unfit(numbers: Numbers) -> Any:
        return None if fits else np.ones(len(numbers), np.bool_)

    def decode(group: Group) -> None:
        nonlocal overflow
        sums = fixed_point.decode_integers(group.results, group.data_cnt, lane, context.workers)
        sums[blocks.cut.beyond(group.numbers)] = 0
        if group.mine is not None:
            sums[~group.mine] = 0
        if lane.bytes > flat.dtype.itemsize and (sums.max() > limits.max or sums.min() < limits.min):
            overflow = True
        else:
            place(result, sums.astype(flat.dtype), group.numbers, group.mine)

    yield from Stream(context, blocks, Op.SUM).run(encode, decode, unfit=unfit)
    if overflow:
        raise DoesNotFit(f"a sum does not fit {flat.dtype.name} ({limits.min}..{limits.max}); use a wider type")
    return blocks.cut.parts(result)
