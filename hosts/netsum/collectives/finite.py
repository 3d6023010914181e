"""Sums, minima and maxima need finite numbers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from netsum.errors import CallError, NotFiniteError
from netsum.exponents import Codes, float_codes, magnitudes
from netsum.fixed_point import FLOATS, Array, type_name


def checked_codes(
    rank: int, array: Array, blocks: Iterable[Array], number: int, error: CallError | None
) -> tuple[Codes, CallError | None]:
    """The codes of an array's ``number`` blocks, which come in groups, and why the call is given up, if it is: because of the
    ``error``, or of a value that is not finite. Then the codes are zeros."""
    if error is None:
        largest = magnitudes(blocks)
        if np.isfinite(largest).all():
            return float_codes(largest), None
        error = not_finite(rank, array)
    return np.zeros(number, np.uint16), error


def not_finite(rank: int, array: Array, what: str = "") -> NotFiniteError | None:
    """The error for the first NaN or infinity in an array; None if there is none. ``what`` says what the array includes besides
    the caller's values."""
    if type_name(array.dtype) not in FLOATS or (finite := np.isfinite(array)).all():
        return None
    bad = ~finite
    index = tuple(int(each) for each in np.unravel_index(int(bad.argmax()), array.shape))
    return NotFiniteError(rank, index, float(array[index]), what)
