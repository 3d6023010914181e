"""broadcast: every rank gets the root's array, bit for bit.

The root contributes its bytes, the others empty contributions with room for them; the switch's COPY sends them to everyone.
Its blocks never age out, since nothing could stand for the root's.

Cost, for S bytes: S out of and S into every rank (the others' are the room that the result takes on BMv2), one round trip
more for the agreement.
"""

from __future__ import annotations

import numpy as np

from netsum.collectives.call import Blocks, Context, agree, room
from netsum.collectives.stream import Stream, all_in, place
from netsum.engine import SUBMITTED, Flow
from netsum.fixed_point import Array
from netsum.wire.schema import Lane, Op

_NO_CODES = np.zeros(0, np.uint16)


def broadcast(context: Context, array: Array, root: int) -> Flow:
    """The flow of a broadcast of a C-contiguous array; returns a new array of the same shape and dtype."""
    raw = array.reshape(-1).view(np.uint8)
    yield from agree(context, ("broadcast", root, array.dtype.str, array.shape), _NO_CODES)
    result = np.empty(raw.size, np.uint8)
    blocks = Blocks(context, raw.size, Lane.L8)
    stream = Stream(context, blocks, Op.COPY)
    groups = []
    for start, stop in blocks.groups() if raw.size else ():
        if context.rank == root:
            groups.append(blocks.submit(Op.COPY, blocks.rows(raw, start, stop), range(start, stop)))
        else:
            groups.append(blocks.await_results(Op.COPY, range(start, stop)))
        yield room(context)
    yield SUBMITTED
    for group in groups:
        yield all_in(group)
        stream.take(group)
        place(result, group.results.reshape(-1), group.start * blocks.width)
    stream.raise_failure()
    return result.view(array.dtype).reshape(array.shape)
