"""Minimum, maximum, and, or, xor: the switch combines the values' own bits, lane by lane. Exact."""

from __future__ import annotations

from typing import Final

from netsum.collectives.call import Context
from netsum.collectives.history import Signature
from netsum.collectives.negotiation import NO_CODES, negotiate
from netsum.collectives.nonfinite import ordered
from netsum.collectives.options import ORDER, Options
from netsum.collectives.partition import Layout
from netsum.collectives.pipeline import BlockPipeline
from netsum.errors import CallError
from netsum.fixed_point import Array, OwnLanes
from netsum.wire.schema import COMBINING, Op
from netsum.work import Flow

OPS: Final = {op.name.lower(): op for op in COMBINING if op is not Op.SUM}


def lanewise(
    context: Context, array: Array, layout: Layout, options: Options, signature: Signature, error: CallError | None
) -> Flow:
    """The flow; returns the layout's segments. ``error`` is why this rank gives the call up, if it does."""
    agreed = yield from negotiate(context, signature, NO_CODES, error)
    lanes = OwnLanes(array.dtype, options.op in ORDER)
    sender = BlockPipeline(context, layout, OPS[options.op], lanes.lane)
    blocks = sender.cut.padded(ordered(array, options.op) if options.propagates else array)
    result = yield from sender.send(blocks, lanes, agreed)
    return sender.cut.parts(result)
