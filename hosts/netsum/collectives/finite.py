"""Sums, minima and maxima need finite numbers."""

from __future__ import annotations

import numpy as np

from netsum.errors import NotFinite
from netsum.fixed_point import FLOATS, Array


def not_finite(rank: int, array: Array, what: str = "") -> NotFinite | None:
    """The error for the first NaN or infinity in an array; None if there is none. ``what`` says what the array includes besides
    the caller's values."""
    if array.dtype.name not in FLOATS:
        return None
    bad = ~np.isfinite(array)
    if not bad.any():
        return None
    index = tuple(int(each) for each in np.unravel_index(int(bad.argmax()), array.shape))
    return NotFinite(rank, index, float(array[index]), what)
