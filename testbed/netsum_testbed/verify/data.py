"""The arrays that the ranks of a call contribute: from the seed, the same each time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsum_testbed.verify.cases import FLOATS, Call, Round

Array = NDArray[Any]


def contribution(round_: Round, call: Call, rank: int) -> Array:
    """What ``rank`` contributes: an array of the call's dtype and shape, not contiguous if the call is ``strided``."""
    rng = np.random.default_rng([round_.seed, round_.index, call.index, rank])
    make = _floats if call.dtype in FLOATS else _integers
    return lay_out(call, make(rng, call, round_.workers, rank).astype(call.dtype))


def lay_out(call: Call, flat: Array) -> Array:
    """Values in the call's shape; not contiguous in memory if the call is ``strided``."""
    if not call.strided:
        return flat.reshape(call.shape)
    wide = np.zeros(2 * call.elements, dtype=call.dtype)
    view = wide[::2]
    view[:] = flat
    return view.reshape(call.shape) if len(call.shape) < 2 else _transposed(flat, call.shape)


def _transposed(flat: Array, shape: tuple[int, ...]) -> Array:
    """A view with the axes reversed: same elements, another order in memory."""
    array = np.empty(shape[::-1], dtype=flat.dtype).transpose()
    array[...] = flat.reshape(shape)
    return array


def _floats(rng: np.random.Generator, call: Call, workers: int, rank: int) -> Array:
    count, info = call.elements, np.finfo(call.dtype)
    values = rng.standard_normal(count)
    match call.fill:
        case "wide":  # exponents that differ much from element to element and from rank to rank
            span = 6 if call.dtype == "float16" else 30
            values = values * np.exp2(rng.integers(-span, span // 2, count)) * 2.0 ** (rank % 3)
        case "tiny":  # around the smallest normal number: denormals too
            values = values * float(info.smallest_normal)
        case "zeros":
            values = np.copysign(0.0, values)
        case "whole":
            values = np.rint(values * 100.0)
        case "sparse":  # whole blocks of zeros, and nothing at all from some ranks
            values = values * (rng.random(count) < 0.01) * (rank % 2)
        case "huge":  # the sum of all ranks is just below the largest number
            values = rng.uniform(-1.0, 1.0, count) * (float(info.max) / (2 * workers))
    return values


def _integers(rng: np.random.Generator, call: Call, workers: int, rank: int) -> Array:
    count, info = call.elements, np.iinfo(call.dtype)
    # A sum must fit the caller's dtype; a maximum may be anything.
    low, high = int(info.min), int(info.max)
    if call.op == "sum":
        low, high = -(-low // workers), high // workers
        if call.dtype == "int64":  # no wider lane to go to, and lanes are symmetric
            low = -high
    match call.fill:
        case "small":
            low, high = max(low, -10), min(high, 10)
        case "zeros":
            low = high = 0
        case "sparse":
            dense = rng.integers(low, high, count, endpoint=True, dtype=np.int64)
            return np.where(rng.random(count) < 0.01, dense, 0) * (rank % 2)
        case _:
            pass
    return rng.integers(low, high, count, endpoint=True, dtype=np.int64)
