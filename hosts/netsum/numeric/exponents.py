# SPDX-License-Identifier: MIT
"""Magnitudes of values, as the codes on which the ranks agree before a call's data.

Floats: one code for each block, the exponent e with all magnitudes below 2^e. It also says whether the block has a NaN or an
infinity, in calls that pass them on (:mod:`netsum.collectives.nonfinite`). Integers: one code for the call, the narrowest lane
that would do if all ranks had values as large.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netsum.numeric.compiled import kernels_for
from netsum.numeric.fixed_point import bias, scale_bits
from netsum.wire.schema import Lane

CODE_LANE: Final = Lane.L16

ZERO_CODE: Final = 0
"""Code of a block of zeros."""
NOT_FINITE: Final = 1 << 12
"""Added to a block's code if the block has a NaN or an infinity; the code is that of its finite values."""
LOWEST: Final = -1073
"""Exponent of float64's smallest number. For a block below it, nothing can be predicted."""
_FLOAT_OFFSET: Final = 1100  # float64's exponents are -1073..1024: codes 27..2124

Codes = NDArray[np.uint16]


def magnitudes(groups: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """The largest magnitude of each block of numbers, which come in groups, ``(blocks, lanes)`` each; it is not finite if one of
    the block's numbers is not."""
    found = [_largest(rows) for rows in groups]
    return np.concatenate(found) if len(found) > 1 else found[0]


def _largest(rows: NDArray[Any]) -> NDArray[Any]:
    kernels = kernels_for(rows)
    if kernels is None or rows.dtype.kind == "u":
        # As the methods max and min, but with less around them.
        return np.asarray(np.maximum(np.maximum.reduce(rows, axis=1), -np.minimum.reduce(rows, axis=1)))
    found = np.empty(len(rows), rows.dtype)
    if rows.dtype.kind == "f":
        kernels.largest_float(rows.view(np.uint32), found.view(np.uint32))
    else:
        kernels.largest_integer(rows, found)
    return found


def float_codes(largest: NDArray[Any]) -> Codes:
    """Codes of blocks of floats with these largest magnitudes, which are finite."""
    codes: Codes = (np.frexp(largest)[1] + _FLOAT_OFFSET).astype(np.uint16)
    codes[largest == 0] = ZERO_CODE
    return codes


def float_exponents(codes: Codes) -> NDArray[np.int64]:
    """The exponents of these codes; 0 for a block of zeros, whose exponent does not matter."""
    return np.where(codes == ZERO_CODE, 0, codes.astype(np.int64) - _FLOAT_OFFSET)


def within(codes: Codes, exponents: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True if blocks with these codes fit the exponents, as a block of zeros always does, and one that is not finite never."""
    return np.asarray(codes <= exponents + _FLOAT_OFFSET)


def predicted_exponents(codes: Codes) -> NDArray[np.int64]:
    """Exponents for the next call, after these were agreed on. A block of zeros says nothing about the next one, which will be
    repeated at a scale that fits."""
    codes = codes & np.uint16(NOT_FINITE - 1)
    return np.where(codes == ZERO_CODE, LOWEST, float_exponents(codes) + 1)


def coarseness(lane: Lane, workers: int) -> int:
    """The number of bits by which a predicted exponent may exceed the one that the ranks would have agreed on: two that the
    prediction adds, the bits by which a sum may be larger than its parts, and an eighth of the lane's bits, so that values may
    shrink a little without another round."""
    return 2 + (workers - 1).bit_length() + scale_bits(lane, workers) // 8


def smallest_sum(lane: Lane, workers: int, *, dithered: bool = False) -> int:
    """If a block's largest sum is at least this many quanta, its values are within :func:`coarseness` of its exponent: some rank
    has 1/n of the sum, and less than a quantum of that is rounding."""
    lost = coarseness(lane, workers) - (workers - 1).bit_length()
    return max(1 << max(scale_bits(lane, workers) - lost, 0), workers + 1 if dithered else 1)


def lane_code(largest: int, workers: int) -> int:
    """Code of the narrowest lane in which ``workers`` values of at most this magnitude can be summed."""
    return next((int(lane) for lane in Lane if largest <= bias(lane, workers)), len(Lane))


def lane_of_code(code: int) -> Lane | None:
    """The lane of a code; None if no lane is wide enough."""
    return Lane(code) if code < len(Lane) else None


def largest_magnitude(values: NDArray[Any]) -> int:
    """The largest magnitude in an integer array, exact even for the most negative value; 0 if it is empty."""
    if not values.size:
        return 0
    return max(int(values.max()), -int(values.min()))
