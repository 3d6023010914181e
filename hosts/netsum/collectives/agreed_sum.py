"""Sums and means of floats at exponents that the ranks agree on before they send the data.

Cost: one round trip more than the data itself. Blocks that are zeros on every rank are not sent.
"""

from __future__ import annotations

import numpy as np

from netsum import fixed_point
from netsum.collectives.call import Context
from netsum.collectives.finite import checked_codes, not_finite
from netsum.collectives.history import Carried, History, Signature
from netsum.collectives.negotiation import Negotiation, negotiate
from netsum.collectives.nonfinite import Marks
from netsum.collectives.options import Options
from netsum.collectives.partition import Layout
from netsum.collectives.pipeline import BlockPipeline
from netsum.collectives.residual import keeping
from netsum.errors import CallError
from netsum.exponents import ZERO_CODE, predicted_exponents
from netsum.fixed_point import Array, FloatLanes
from netsum.wire.schema import Lane, Op
from netsum.work import Flow


def agreed_sum(
    context: Context,
    array: Array,
    layout: Layout,
    options: Options,
    signature: Signature,
    history: History,
    error: CallError | None,
) -> Flow:
    """The flow of a sum or mean; returns the layout's segments. ``error`` is why this rank gives the call up, if it does."""
    lane = options.float_lane(array.dtype)
    sender = BlockPipeline(context, layout, Op.SUM, lane)
    blocks = sender.cut.padded(fixed_point.widened(array))
    if options.on_late == "carry":
        error = error or not_finite(context.rank, array)
    carried = history.carried if options.on_late == "carry" and error is None else None
    left_over = None if carried is None else carried.pop(signature)
    if left_over is not None:
        with np.errstate(over="ignore"):
            blocks = blocks + left_over
        error = not_finite(context.rank, blocks.reshape(array.shape), " including what late calls carried over")
    marks = Marks(blocks) if options.propagates and error is None else None
    blocks = blocks if marks is None else marks.finite
    try:
        groups = sender.cut.all_rows(blocks)
        codes, error = checked_codes(context.rank, array, groups, sender.cut.number, error)
        codes = codes if marks is None else marks.add_to(codes, sender.cut)
        agreed = yield from negotiate(context, signature, codes, error)
        if options.scale == "predicted":
            yield agreed.complete
            # The next call may start once this one has submitted its last block: by then all ranks must hold the prediction.
            history.predictions.learn(signature, predicted_exponents(agreed.values))
        dither = options.dither(context.rank, context.gen)
        plain = FloatLanes(lane, context.workers, array.dtype, agreed.exponents, options.op == "mean", dither)
        lanes = plain if options.residual is None else keeping(plain, sender.cut, options.residual)

        def settle() -> Flow:
            assert marks is not None
            numbers = agreed.not_finite
            agreed.values[numbers] = yield from marks.settle(context, sender.cut, numbers, codes[numbers])

        # A job that degrades sends blocks of zeros too: a rank that has lost the codes must still be able to count its blocks.
        skip, last = not context.degrade, None if marks is None else settle
        result = yield from sender.send(blocks, lanes, agreed, skip_zeros=skip, settle=last)
        if marks is not None:
            marks.put_into(result, sender.cut)
        _note(context, agreed, lane)
        if error is not None:
            raise error  # the others do not know of it, since they finished without this rank
    except BaseException:
        _put_back(carried, signature, left_over)
        raise
    if carried is not None and sender.missed:
        carried.leave(signature, sender.cut.only(blocks, sender.missed))
    return sender.cut.parts(result)


def _note(context: Context, agreed: Negotiation, lane: Lane) -> None:
    """Put the quantum into the report, and the results that were lost: one without a scale is as good as none."""
    scaled = agreed.exponents(np.flatnonzero((agreed.values != ZERO_CODE) & ~agreed.unknown))
    if len(scaled):
        context.report.note_quantum(fixed_point.quantum(int(scaled.max()), lane, context.workers))
    context.report.lost = max(context.report.lost, int(agreed.unknown.sum()))


def _put_back(carried: Carried | None, signature: Signature, left_over: Array | None) -> None:
    """The call failed, so what earlier calls had left over was not contributed. (Values that are not finite never can be.)"""
    if carried is not None and left_over is not None and np.isfinite(left_over).all():
        carried.leave(signature, left_over)
