"""gather: the root gets all ranks' arrays, one behind the other.

Cost, for S bytes a rank: S out of each, (n - 1) S into the root and as much out of it as room; headers else.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netsum.collectives.call import Context
from netsum.collectives.exchange import Part, as_bytes, exchange, rows_of
from netsum.engine import Flow
from netsum.fixed_point import Array


def gather(context: Context, array: Array, root: int, counts: Sequence[int]) -> Flow:
    """The flow of a gather of C-contiguous arrays, ``counts`` rows each; returns all rows at the root, else None."""
    row = array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    parts = [Part(rank, root, count * row) for rank, count in enumerate(counts)]
    signature = ("gather", f"root {root}", array.dtype, array.shape[1:], tuple(counts))
    got = yield from exchange(context, signature, parts, [as_bytes(array)])
    if context.rank != root:
        return None
    return rows_of(got, counts, array)
