"""scatter: every rank gets its part of the root's array.

Cost, for S bytes at the root: S out of it, S/n into each rank and as much out of it as room; headers else.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netsum.collectives.call import Context
from netsum.collectives.exchange import Part, as_bytes, exchange
from netsum.engine import Flow
from netsum.fixed_point import Array


def scatter(context: Context, array: Array, root: int, counts: Sequence[int]) -> Flow:
    """The flow of a scatter. ``array``: at the root all rows, C-contiguous; elsewhere any array with rows of that shape and type.
    Returns this rank's ``counts[rank]`` rows, new."""
    row = array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    parts = [Part(root, rank, count * row) for rank, count in enumerate(counts)]
    mine: list[Array] = []
    if context.rank == root:
        ends = np.cumsum(counts)[:-1] * row
        mine = np.split(as_bytes(array), ends)
    signature = ("scatter", f"root {root}", array.dtype, array.shape[1:], tuple(counts))
    got = yield from exchange(context, signature, parts, mine)
    return got[context.rank].copy().view(array.dtype).reshape(counts[context.rank], *array.shape[1:])
