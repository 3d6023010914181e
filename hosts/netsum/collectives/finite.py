"""A sum, a minimum or a maximum needs finite numbers."""

from __future__ import annotations

import numpy as np

from netsum.errors import NotFinite
from netsum.fixed_point import FLOATS, Array


def not_finite(rank: int, flat: Array, shape: tuple[int, ...], what: str = "") -> NotFinite | None:
    """The error for the first NaN (or infinity) of a flat array of this shape, or None. ``what`` it is that it has, if it is not
    the caller's array."""
    if flat.dtype.name not in FLOATS:
        return None
    bad = ~np.isfinite(flat)
    if not bad.any():
        return None
    where = int(bad.argmax())
    index = tuple(int(each) for each in np.unravel_index(where, shape))
    return NotFinite(rank, index, float(flat[where]), what)
