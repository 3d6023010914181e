"""Sums, minima and maxima need finite numbers."""

from __future__ import annotations

import numpy as np

from netsum.errors import NotFinite
from netsum.fixed_point import FLOATS, Array, type_name


def not_finite(rank: int, array: Array, what: str = "") -> NotFinite | None:
    """The error for the first NaN or infinity in an array; None if there is none. ``what`` says what the array includes besides
    the caller's values."""
    if type_name(array.dtype) not in FLOATS or (finite := np.isfinite(array)).all():
        return None
    bad = ~finite
    index = tuple(int(each) for each in np.unravel_index(int(bad.argmax()), array.shape))
    return NotFinite(rank, index, float(array[index]), what)
