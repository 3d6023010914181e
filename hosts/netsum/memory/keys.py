"""Keys of tables: which shard has a key's row. Clients and devices must agree, so both take it from here."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_STEPS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def mixed(keys: NDArray[Any]) -> Keys:
    """splitmix64's finalizer: each bit of the result depends on all bits of the key."""
    values = keys.astype(np.uint64)
    for shift, factor in _STEPS:
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    values ^= values >> np.uint64(31)
    return values


def shards_of(keys: NDArray[Any], shards: int) -> Keys:
    """The shard of each key, of a power of two of shards."""
    return mixed(keys) & np.uint64(shards - 1)
