# SPDX-License-Identifier: MIT
"""Members that got their descriptors as files first find out whether they all belong to the same run.

The files of an earlier run name the same epoch and the same blocks, whose results may still be in the switch's slots, and a file
cannot tell that it was copied. So each member puts a random number into a lane of its own, and sends nothing more until it has
seen that number in the result. A block takes one contribution from each rank, and a finished block never changes. So of all
processes that ever use a rank's file, one finds its number there, and all others learn that their file was used before.

Cost, only before the first call: two round trips, 8 bytes a rank each way.
"""

from __future__ import annotations

import secrets

import numpy as np

from netsum.collectives.call import Context
from netsum.collectives.history import History
from netsum.collectives.options import ReductionOptions
from netsum.collectives.partition import Layout
from netsum.collectives.reductions import reduce_array
from netsum.core.progress import Flow, nested
from netsum.errors import CallError, DesynchronizedError


def same_run(context: Context) -> Flow:
    """The flow. Raises DesynchronizedError in a process whose file another process has used."""
    marks = np.zeros(context.workers, np.uint64)
    marks[context.rank] = mark = np.uint64(1 + secrets.randbits(63))
    layout, options = Layout.whole(context.workers), ReductionOptions("or", on_late="wait")
    flow = reduce_array(context, "opening", marks, layout, options, History(lambda _: None))
    try:
        (table,) = yield from nested(flow)  # the next call waits until this one is over
    except (CallError, DesynchronizedError) as error:
        raise DesynchronizedError(_used(f"its first block is no longer open: {error}")) from error
    if table[context.rank] != mark:
        raise DesynchronizedError(_used("another process has taken part with it"))


def _used(why: str) -> str:
    return f"this descriptor has been used before ({why}); make new ones with `netsum job join-file`, for all ranks"
