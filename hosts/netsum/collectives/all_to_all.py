"""all_to_all: every rank gets from every rank the part that is for it.

Cost, for S bytes a rank: S (n - 1)/n out of each as data and as much as room, the same in; headers for what goes between
others.
"""

from __future__ import annotations

import numpy as np

from netsum.collectives.call import Context
from netsum.collectives.exchange import Part, as_bytes, exchange, rows_of
from netsum.engine import Flow
from netsum.fixed_point import Array


def all_to_all(context: Context, array: Array, counts: Array) -> Flow:
    """The flow of an all_to_all. ``counts[i][j]``: rows that rank i has for rank j. Returns the rows that are for this rank,
    in the order of their ranks, new."""
    rank, workers = context.rank, context.workers
    row = array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    parts = [Part(i, j, int(counts[i][j]) * row) for i in range(workers) for j in range(workers)]
    mine = np.split(as_bytes(array), np.cumsum(counts[rank])[:-1] * row)
    signature = ("all_to_all", array.dtype, array.shape[1:], counts.tolist())
    got = yield from exchange(context, signature, parts, mine)
    column = [got[source * workers + rank] for source in range(workers)]
    return rows_of(column, [int(count) for count in counts[:, rank]], array)
