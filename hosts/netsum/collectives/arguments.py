# SPDX-License-Identifier: MIT
"""The arguments that all collectives share: arrays, ``out``, roots, and numbers of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from netsum.collectives.call import Context
from netsum.core.progress import Flow
from netsum.errors import CallError, UnsupportedError
from netsum.numeric.fixed_point import Array


def as_array(x: Any) -> Array:
    """``x`` as a C-contiguous array in this machine's byte order; ``x`` itself if it is one."""
    if isinstance(x, np.ma.MaskedArray):
        raise UnsupportedError("x is a masked array, and masks cannot be sent: give x.filled(value), or x.data")
    array = np.asarray(x)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(array.shape)


def as_rows(x: Any) -> Array:
    """Like :func:`as_array`, but for an exchange: at least one dimension, and values that are plain bytes."""
    array = np.atleast_1d(as_array(x))
    check_plain(array)
    return array


def check_plain(array: Array) -> None:
    if array.dtype.hasobject:
        raise UnsupportedError(f"dtype {array.dtype} holds objects, which cannot be sent")


def check_state(state: Sequence[Any], progress: Any) -> None:
    """Raise UnsupportedError if ranks cannot take over such state, or are nowhere near this progress."""
    for array in state:
        if not isinstance(array, np.ndarray) or array.dtype.hasobject or not array.flags.writeable:
            raise UnsupportedError("state must be arrays of numbers that can be written to, since another rank's may replace it")
    if not isinstance(progress, int | np.integer) or not 0 <= progress < 1 << 63:
        raise UnsupportedError(f"progress is {progress!r}, not a number of steps from 0 to 2^63 - 1")


def check_root(root: int, size: int) -> None:
    if not 0 <= root < size:
        raise UnsupportedError(f"root {root} is not one of the {size} ranks")


def rows_by_rank(counts: Sequence[int], size: int) -> list[int]:
    """``counts`` as a list; UnsupportedError if it is not a number of rows for each rank."""
    numbers = [int(count) for count in counts]
    if len(numbers) != size or min(numbers) < 0:
        raise UnsupportedError(f"counts must be {size} numbers of rows, one for each rank; they are {numbers}")
    return numbers


def rows_to_each(counts: Sequence[int] | None, rows: int, size: int) -> list[int]:
    """The number of ``rows`` rows that go to each rank: ``counts``, or equal numbers."""
    if counts is None:
        if rows % size:
            raise UnsupportedError(f"{rows} rows cannot be divided into {size} equal parts; give counts")
        return [rows // size] * size
    numbers = rows_by_rank(counts, size)
    if sum(numbers) != rows:
        raise UnsupportedError(f"counts add up to {sum(numbers)} rows, the array has {rows}")
    return numbers


def rows_from_each(counts: Sequence[int] | None, rows: int, rank: int, size: int) -> list[int]:
    """The number of rows of each rank: ``counts``, or as many as this one, which has ``rows``."""
    if counts is None:
        return [rows] * size
    numbers = rows_by_rank(counts, size)
    if numbers[rank] != rows:
        raise UnsupportedError(f"counts give this rank {numbers[rank]} rows, its array has {rows}")
    return numbers


def wrong_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> UnsupportedError | None:
    """The error in ``out`` for a result of this shape and dtype; None if nothing is."""
    if out is None:
        return None
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
        return UnsupportedError(f"out must be a plain numpy array, not {type(out).__name__}")
    if out.shape != shape or (out.dtype != dtype and out.dtype.newbyteorder("=") != dtype):
        return UnsupportedError(f"out is {out.dtype} {out.shape}, the result {dtype} {shape}")
    if not out.flags.writeable:
        return UnsupportedError("out is read-only")
    return None


def check_arrays(arrays: Sequence[Array], counts: Sequence[int], like: Array, *, out: bool = False) -> None:
    """Raise UnsupportedError if these are not arrays with these numbers of rows like those of ``like``; the ones of ``out`` must
    also be contiguous and writeable."""
    if len(arrays) != len(counts):
        raise UnsupportedError(f"there must be {len(counts)} arrays, one for each rank; there are {len(arrays)}")
    for rank, (each, count) in enumerate(zip(arrays, counts, strict=True)):
        shape = (count, *like.shape[1:])
        if (each.shape, each.dtype) != (shape, like.dtype):
            raise UnsupportedError(f"the array for rank {rank} is {each.dtype} {each.shape}, not {like.dtype} {shape}")
        if out and not (each.flags.c_contiguous and each.flags.writeable):
            raise UnsupportedError(f"the array for the rows of rank {rank} is not C-contiguous, or read-only")


def write_out(out: Array | None, flow: Callable[[Context], Flow], x: Array | None = None) -> Callable[[Context], Flow]:
    """The flow, with its result written into ``out`` if there is one: at the end, or given ``x``, the values that go into it, as
    it arrives, unless the two share memory."""
    if out is None:
        return flow

    def into_out(context: Context) -> Flow:
        if x is not None and context.error is None and out.flags.c_contiguous and not np.may_share_memory(out, x):
            context.out = out
        context.copied = True
        result = yield from flow(context)
        if result is None:
            return None
        if context.filled:
            return out
        if out.shape != result.shape:  # numpy would broadcast it over the missing rows
            gone = ", ".join(map(str, context.report.evicted))
            raise CallError(f"out is {out.shape}, the result {result.shape}: it lacks the rows of rank {gone}, which was evicted")
        out[...] = result
        return out

    return into_out
