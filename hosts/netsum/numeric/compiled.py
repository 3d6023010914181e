# SPDX-License-Identifier: MIT
"""Conversions of many blocks in machine code where numba is installed (the extra ``fast``): bit for bit what numpy makes in
several passes."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from netsum.wire.schema import Lane

_LARGE: Final = 1 << 15
"""Elements from which on it pays; smaller calls do not even load it."""


@cache
def _kernels() -> Any:
    """The compiled module, or None. Loading it takes a second; compiling it, the first time on a machine, some more."""
    try:
        from netsum.numeric import numba_kernels  # noqa: PLC0415 - an extra, and slow to load
    except ImportError:
        return None
    return numba_kernels


def kernels_for(array: np.ndarray[Any, Any], lane: Lane = Lane.L32) -> Any:
    """The compiled module if it converts arrays such as this one, of 32 bits an element, to or from such lanes; else None."""
    if array.size < _LARGE or lane != Lane.L32 or array.dtype.itemsize != 4 or array.dtype.kind not in "fiu":
        return None
    return _kernels() if array.flags.c_contiguous and array.dtype.isnative else None
