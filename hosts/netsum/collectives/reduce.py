"""reduce: one rank, the root, gets the reduction over the ranks.

Cost, for S bytes of lanes a rank: S out of every rank, S into the root, a header for each block into the others.
"""

from __future__ import annotations

from netsum.collectives.call import Context
from netsum.collectives.layout import Layout
from netsum.collectives.options import Options
from netsum.collectives.reduction import Memory, reduction
from netsum.engine import Flow
from netsum.fixed_point import Array


def reduce(context: Context, array: Array, root: int, options: Options, memory: Memory) -> Flow:
    """The flow of a reduce of a C-contiguous array; returns a new array of the same shape and dtype at the root, else None."""
    layout = Layout.whole(array.size, root)
    (result,) = yield from reduction(context, "reduce", array, layout, options, memory)
    return result.reshape(array.shape) if context.rank == root else None
