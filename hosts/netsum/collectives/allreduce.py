"""allreduce: every rank gets the reduction over the ranks.

Cost, for S bytes of lanes a rank: S out and S in, whatever the number of ranks; see :mod:`netsum.collectives.reduction`.
"""

from __future__ import annotations

from netsum.collectives.call import Context
from netsum.collectives.layout import Layout
from netsum.collectives.options import Options
from netsum.collectives.reduction import Memory, reduction
from netsum.engine import Flow
from netsum.fixed_point import Array


def allreduce(context: Context, array: Array, options: Options, memory: Memory) -> Flow:
    """The flow of an allreduce of a C-contiguous array; returns a new array of the same shape and dtype."""
    (result,) = yield from reduction(context, "allreduce", array, Layout.whole(array.size), options, memory)
    return result.reshape(array.shape)
