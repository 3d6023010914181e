"""Sums and means of floats that are added as they are, one rank after the other, in the order of the chain.

Only members whose packets go by chain can do it (docs/memory-chains.md). Each block's sum is made once and then passed on, so all
ranks have the same bits; but another order or number of ranks rounds otherwise. The ranks need not agree on a scale first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from netsum.collectives.call import Context
from netsum.collectives.finite import not_finite
from netsum.collectives.history import Signature
from netsum.collectives.negotiation import NO_CODES, negotiate
from netsum.collectives.options import Options
from netsum.collectives.partition import Layout
from netsum.collectives.pipeline import BlockPipeline
from netsum.errors import CallError, UnsupportedError
from netsum.fixed_point import Array, Counts, Numbers, OwnLanes
from netsum.wire.schema import Op
from netsum.work import Flow

ADVICE: Final = "`netsum job create --algorithm chain` makes a job whose members can"


@dataclass(frozen=True)
class SumLanes(OwnLanes):
    """Floats as they are, and their sums, or means of them."""

    mean: bool = False

    def decode(
        self, lanes: Array, numbers: Numbers, data_cnt: Counts, src_cnt: Counts, _out: Array | None = None
    ) -> Array:
        sums = super().decode(lanes, numbers, data_cnt, src_cnt)
        return sums / np.maximum(src_cnt, 1)[:, None].astype(sums.dtype) if self.mean else sums


def chained_sum(
    context: Context, array: Array, layout: Layout, options: Options, signature: Signature, error: CallError | None
) -> Flow:
    """The flow; returns the layout's segments. ``error`` is why this rank gives the call up, if it does."""
    if not context.window.by_chain:
        error = error or UnsupportedError(
            f"scale='float' adds floats one rank after the other, which only chains do: {ADVICE}"
        )
    if not options.propagates:
        error = error or not_finite(context.rank, array)
    agreed = yield from negotiate(context, signature, NO_CODES, error)
    lanes = SumLanes(array.dtype, order=False, mean=options.op == "mean")
    sender = BlockPipeline(context, layout, Op.SUM, lanes.lane, floats=True)
    result = yield from sender.send(sender.cut.padded(array), lanes, agreed)
    return sender.cut.parts(result)
