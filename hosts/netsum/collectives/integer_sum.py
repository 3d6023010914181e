"""Sums and means of integers: exact, in the narrowest lanes that hold n times the largest value on any rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from netsum import exponents, fixed_point
from netsum.collectives.call import Context
from netsum.collectives.history import Signature
from netsum.collectives.negotiation import negotiate
from netsum.collectives.partition import Layout
from netsum.collectives.pipeline import BlockPipeline
from netsum.errors import SumOverflowError
from netsum.fixed_point import Array, IntegerLanes
from netsum.wire.schema import Lane, Op
from netsum.work import Flow


def integer_sum(context: Context, array: Array, layout: Layout, signature: Signature, *, mean: bool) -> Flow:
    """The flow of a sum or truncated mean; returns the layout's segments. Raises SumOverflowError."""
    code = exponents.lane_code(exponents.largest_magnitude(array), context.workers)
    agreed = yield from negotiate(context, signature, np.array([code], np.uint16))
    lane = exponents.lane_of_code(int(agreed.values[0]))
    if lane is None:
        raise SumOverflowError(
            f"a rank has a value larger than {fixed_point.bias(Lane.L64, context.workers)} in magnitude, and a sum of "
            f"{context.workers} of those does not fit 64 bits"
        )
    sender = BlockPipeline(context, layout, Op.SUM, lane)
    blocks = sender.cut.padded(array)
    result = yield from sender.send(blocks, IntegerLanes(lane, context.workers, mean), agreed)
    return [_narrowed(part, array.dtype) for part in sender.cut.parts(result)]


def _narrowed(sums: Array, dtype: np.dtype[Any]) -> Array:
    """The sums in the caller's type; SumOverflowError if they do not fit it."""
    limits = np.iinfo(dtype)
    if sums.itemsize > dtype.itemsize and sums.size and (sums.max() > limits.max or sums.min() < limits.min):
        raise SumOverflowError(f"a sum does not fit {dtype.name} ({limits.min}..{limits.max}); use a wider type")
    return sums.astype(dtype, copy=False)
