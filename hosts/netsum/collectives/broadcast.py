"""broadcast: every rank gets the root's array, bit for bit.

Cost, for S bytes: S out of the root, once; S into every rank, and as much out of it as room for that (BMv2's packets do not
grow). One round trip more for the agreement.
"""

from __future__ import annotations

from netsum.collectives.call import Context
from netsum.collectives.exchange import Part, as_bytes, exchange
from netsum.engine import Flow
from netsum.fixed_point import Array
from netsum.wire.schema import EVERYONE


def broadcast(context: Context, array: Array, root: int) -> Flow:
    """The flow of a broadcast of a C-contiguous array; returns an array of the same shape and dtype."""
    parts = [Part(root, EVERYONE, array.nbytes)]
    mine = [as_bytes(array)] if context.rank == root else []
    signature = ("broadcast", f"root {root}", array.dtype, array.shape)
    (result,) = yield from exchange(context, signature, parts, mine)
    return array.copy() if context.rank == root else result.view(array.dtype).reshape(array.shape)
