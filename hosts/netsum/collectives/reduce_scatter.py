"""reduce_scatter: every rank gets its part of the reduction over the ranks.

Cost, for S bytes of lanes a rank: S out of every rank, S/n into it, a header for each block of the others' parts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netsum.collectives.call import Context
from netsum.collectives.layout import Layout
from netsum.collectives.options import Options
from netsum.collectives.reduction import Memory, reduction
from netsum.engine import Flow
from netsum.fixed_point import Array


def reduce_scatter(context: Context, array: Array, counts: Sequence[int], options: Options, memory: Memory) -> Flow:
    """The flow of a reduce_scatter of a C-contiguous array; returns the ``counts[rank]`` rows (along the first axis) that are
    this rank's, new."""
    row = int(np.prod(array.shape[1:], dtype=np.int64))
    layout = Layout([count * row for count in counts], range(len(counts)))
    parts = yield from reduction(context, "reduce_scatter", array, layout, options, memory)
    return parts[context.rank].reshape(counts[context.rank], *array.shape[1:])
