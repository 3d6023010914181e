"""all_gather: every rank gets all ranks' arrays, one behind the other.

Cost, for S bytes a rank: S out of each as data, (n - 1) S as room for the others' (BMv2's packets do not grow), n S in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netsum.collectives.call import Context
from netsum.collectives.exchange import Part, as_bytes, exchange, rows_of
from netsum.engine import Flow
from netsum.fixed_point import Array
from netsum.wire.schema import EVERYONE


def all_gather(context: Context, array: Array, counts: Sequence[int], name: str = "all_gather") -> Flow:
    """The flow of an all_gather of C-contiguous arrays, ``counts`` rows each; returns all rows, in the order of ranks. ``name``:
    of the call that it is for."""
    row = array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    parts = [Part(rank, EVERYONE, count * row) for rank, count in enumerate(counts)]
    signature = (name, array.dtype, array.shape[1:], tuple(counts))
    got = yield from exchange(context, signature, parts, [as_bytes(array)])
    return rows_of(got, counts, array)
