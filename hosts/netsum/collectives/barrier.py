"""barrier: returns when every rank has called it.

Cost: one round trip, one chunk each way.
"""

from __future__ import annotations

import numpy as np

from netsum.collectives.call import Context, agree
from netsum.engine import SUBMITTED, Flow


def barrier(context: Context) -> Flow:
    """The flow of a barrier."""
    yield from agree(context, ("barrier",), np.zeros(0, np.uint16))
    yield SUBMITTED
