# SPDX-License-Identifier: MIT
r"""Numbers as unsigned lanes that the switch can combine, and back.

**Sum.** With n workers and lanes of w bits, a host sends u = q + B with B = floor((2^w - 1) / 2n) and \\|q\\| <= B. All lanes
are then non-negative and n of them sum to less than 2^w: the switch adds whole 2048-bit fields and no lane carries into
the next. The host takes ``data_cnt * B`` off. Floats are rounded to multiples of a power-of-two quantum, one for each
block: with 2^b the largest power of two that is at most B, and e the block's exponent (every magnitude below 2^e),
q = rint(x * 2^(b - e)). The error of a sum is at most n/2 quanta, the quantum at most 2^(e+1) / B. The idea is SwitchML's
(NSDI 2021, section 4.2), the bias ours.

**Min, max.** Lanes compare as unsigned integers, so signed integers and floats are mapped to unsigned ones in the same
order. **And, or, xor** take the bits as they are.

Arrays are two-dimensional here, one row for each block; lanes are in this machine's byte order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netsum.numeric.compiled import kernels_for
from netsum.wire.schema import COMBINING, Lane, Op

Array = NDArray[Any]
Counts = NDArray[np.int64]
"""A number of ranks for each row."""
Numbers = range | NDArray[np.int64]
"""Ascending numbers of blocks; a range has no gaps."""


def pick(array: Array, numbers: Numbers) -> Array:
    """The elements for these blocks; a view where possible."""
    return array[numbers.start : numbers.stop] if isinstance(numbers, range) else array[numbers]


FLOATS: Final = frozenset({"float16", "bfloat16", "float32", "float64"})
"""Names of the float types; bfloat16 comes from ml_dtypes."""
INTEGERS: Final = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))

WIRE_LANES: Final = tuple(np.dtype(f">u{lane.bytes}") for lane in Lane)
"""dtype of a lane on the wire."""
HOST_LANES: Final = tuple(np.dtype(f"u{lane.bytes}") for lane in Lane)
"""The same in this machine's byte order."""
SIGNED_LANES: Final = tuple(np.dtype(f"i{lane.bytes}") for lane in Lane)
_UFUNCS: Final = {op: [getattr(np, name) for name in op.ufuncs.split()] for op in COMBINING}

_FLOAT_LANES: Final = {"float16": Lane.L32, "bfloat16": Lane.L32, "float32": Lane.L32, "float64": Lane.L64}
type_name: Final[Callable[[np.dtype[Any]], str]] = cache(attrgetter("name"))
"""A type's name, which numpy puts together each time."""
_LANES_BY_BYTES: Final = {lane.bytes: lane for lane in Lane}


@cache
def bias(lane: Lane, workers: int) -> int:
    """B, the largest magnitude that a lane carries."""
    return ((1 << lane.bits) - 1) // (2 * workers)


@cache
def scale_bits(lane: Lane, workers: int) -> int:
    """b, with 2^b the largest power of two that is at most B."""
    return bias(lane, workers).bit_length() - 1


def float_lane(dtype: np.dtype[Any]) -> Lane:
    """The lane that carries a float type's sum: float16 and float32 in 32 bits, float64 in 64."""
    return _FLOAT_LANES[type_name(dtype)]


def quantum(exponent: int, lane: Lane, workers: int) -> float:
    """The quantum of a block with this exponent."""
    try:
        return math.ldexp(1.0, exponent - scale_bits(lane, workers))
    except OverflowError:
        return math.inf


def widened(values: Array) -> Array:
    """Floats of 16 bits as float32, which holds them exactly; others as they are."""
    return values.astype(np.float32) if values.dtype.itemsize == 2 else values


def own_lane(dtype: np.dtype[Any]) -> Lane:
    """The lane of the type's own width."""
    return _LANES_BY_BYTES[dtype.itemsize]


def _scaled(values: Array, shift: NDArray[np.int64]) -> Array:
    """values * 2^shift, row by row, rounded at most once. Multiplies if the powers are normal numbers, which is faster."""
    powers = _powers(shift, values.itemsize)
    if powers is None:
        return np.asarray(np.ldexp(values.astype(np.float64), shift.astype(np.int32)[:, None]))
    return np.asarray(values * powers)


_ONE: Final[dict[int, Any]] = {4: np.float32(1), 8: np.float64(1)}
_LARGEST: Final = {4: 126, 8: 1022}
"""The largest exponent e, by the bytes of a float, for which 2^e and 2^-e are normal numbers."""


def _powers(shift: NDArray[np.int64], size: int) -> Any:
    """2^shift as floats of this size, as an operand; None if they are not all normal numbers."""
    if _are_equal(shift):
        return _power(int(shift[0]), size)
    powers = _row_powers(shift, size)
    return None if powers is None else powers[:, None]


def _row_powers(shift: NDArray[np.int64], size: int) -> Array | None:
    """The same, one for each row."""
    if np.maximum.reduce(np.abs(shift), initial=0) > _LARGEST[size]:
        return None
    return np.asarray(np.ldexp(_ONE[size], shift.astype(np.int32)))


@cache
def _power(shift: int, size: int) -> Any:
    return np.ldexp(_ONE[size], shift) if abs(shift) <= _LARGEST[size] else None


def _are_equal(numbers: Array) -> bool:
    """True if there are numbers and all are equal: one for all rows of an array takes numpy a third of the time."""
    return len(numbers) > 0 and bool((numbers == numbers[0]).all())


def encode_floats(
    values: Array,
    exponents: NDArray[np.int64],
    lane: Lane,
    workers: int,
    dither: np.random.Generator | None = None,
    out: Array | None = None,
) -> Array:
    """Biased lanes of a (blocks, lanes) array of float32 or float64, every magnitude of row i below 2^exponents[i]; in ``out`` if
    given.

    With ``dither``, values are rounded up or down at random so that the mean over many roundings is the value (stochastic
    rounding; Gupta et al., ICML 2015); each is then off by less than one quantum instead of half a quantum.
    """
    shift = scale_bits(lane, workers) - exponents
    kernels = kernels_for(values, lane) if dither is None and values.dtype == np.float32 else None
    if kernels is not None and (powers := _row_powers(shift, 4)) is not None:
        lanes = np.empty(values.shape, HOST_LANES[lane]) if out is None else out
        kernels.encode(values, powers, bias(lane, workers), lanes)
        return lanes
    with np.errstate(under="ignore"):
        scaled = _scaled(values, shift)
    if dither is None:
        np.rint(scaled, out=scaled)
    else:
        whole = np.trunc(scaled)
        rest = scaled - whole  # exact, whereas adding a dither would round if the float has few fraction bits left
        scaled = whole + np.copysign(dither.random(scaled.shape, np.float64) < np.abs(rest), rest)
    if out is None:
        out = np.empty(values.shape, HOST_LANES[lane])
    np.copyto(out.view(SIGNED_LANES[lane]), scaled, casting="unsafe")
    return _biased(out, lane, workers)


def encode_integers(values: Array, lane: Lane, workers: int) -> Array:
    """Biased lanes of an integer array whose magnitudes are at most B."""
    return _biased(values.astype(SIGNED_LANES[lane]).view(HOST_LANES[lane]), lane, workers)


def _biased(unsigned: Array, lane: Lane, workers: int) -> Array:
    unsigned += HOST_LANES[lane].type(bias(lane, workers))
    return unsigned


def combine_lanes(op: Op, held: Array, lanes: Array) -> None:
    """Combine unsigned lanes with those that are ``held``, in place; sums are modulo 2^w."""
    combine, *after = _UFUNCS[op]
    combine(held, lanes, out=held)
    for ufunc in after:
        ufunc(held, out=held)


def decode_integers(lanes: Array, data_cnt: NDArray[np.int64], lane: Lane, workers: int, out: Array | None = None) -> Array:
    """The exact sums of ``data_cnt[i]`` contributions to row i, as signed integers of the lane's width, in ``out`` if given (it
    may be ``lanes``). They fit, because n * B <= (2^w - 1) / 2."""
    unsigned = HOST_LANES[lane]
    offset: Any
    if _are_equal(data_cnt):
        offset = unsigned.type(int(data_cnt[0]) * bias(lane, workers) & ((1 << lane.bits) - 1))
    else:
        offset = (data_cnt.astype(np.uint64) * np.uint64(bias(lane, workers))).astype(unsigned)[:, None]
    rest: Array = np.subtract(lanes, offset, out=out)
    return rest.view(SIGNED_LANES[lane])


def floats(
    integers: Array,
    exponents: NDArray[np.int64],
    lane: Lane,
    workers: int,
    dtype: np.dtype[Any],
    divisor: NDArray[np.int64] | None = None,
    out: Array | None = None,
) -> Array:
    """The values that sums in quanta stand for, as ``dtype``; the means if a ``divisor`` is given for each row. Rounded once
    from the exact sum, twice for float64 lanes and means. What can be calculated in place is, in ``out`` if given."""
    shift = exponents - scale_bits(lane, workers)
    if divisor is not None and _are_equal(divisor) and (by := int(divisor[0])).bit_count() == 1:
        shift, divisor = shift - (by.bit_length() - 1), None  # a power of two, by which division is exact
    single = divisor is None and dtype == np.float32 and lane <= Lane.L32
    sums: Array
    kernels = kernels_for(integers, lane) if single and (out is None or out.flags.c_contiguous) else None
    if kernels is not None and (each := _row_powers(shift, 4)) is not None:
        sums = np.empty(integers.shape, dtype) if out is None else out
        kernels.decode(integers, each, sums)
        return sums
    with np.errstate(over="ignore", under="ignore"):
        if single and (powers := _powers(shift, dtype.itemsize)) is not None:
            sums = np.empty(integers.shape, dtype) if out is None else out
            np.copyto(sums, integers, casting="unsafe")
            sums *= powers  # products of normal numbers, and so not rounded again
            return sums
        doubles = integers.astype(np.float64)
        if divisor is not None:
            doubles /= divisor[:, None]
        return _scaled(doubles, shift).astype(dtype)


def encode_bits(values: Array) -> Array:
    """The values' own bits, unsigned. A bool is 0 or 1, although any other byte is True in memory as well."""
    unsigned = np.ascontiguousarray(values).view(HOST_LANES[own_lane(values.dtype)])
    return np.minimum(unsigned, 1) if values.dtype.kind == "b" else unsigned


def decode_bits(lanes: Array, dtype: np.dtype[Any]) -> Array:
    return lanes.astype(HOST_LANES[own_lane(dtype)]).view(dtype)


def encode_order(values: Array) -> Array:
    """Unsigned lanes in the order of the values: signed integers are shifted, negative floats have their bits flipped (Herf,
    "Radix tricks", 2001). Not for NaN."""
    lane = own_lane(values.dtype)
    top = HOST_LANES[lane].type(1 << (lane.bits - 1))
    bits = encode_bits(values)
    if type_name(values.dtype) in FLOATS:
        bits = np.where(bits & top, ~bits, bits | top)
    elif values.dtype.kind == "i":
        bits = bits ^ top
    return bits


def decode_order(lanes: Array, dtype: np.dtype[Any]) -> Array:
    lane = own_lane(dtype)
    unsigned = HOST_LANES[lane]
    top = unsigned.type(1 << (lane.bits - 1))
    bits = lanes.astype(unsigned)
    if type_name(dtype) in FLOATS:
        bits = np.where(bits & top, bits ^ top, ~bits)
    elif dtype.kind == "i":
        bits = bits ^ top
    return bits.view(dtype)


@dataclass
class FloatLanes:
    """Sums or means of floats. ``exponents(numbers)`` are the exponents of blocks, ``dtype`` is the type of the results."""

    lane: Lane
    workers: int
    dtype: np.dtype[Any]
    exponents: Callable[[Numbers], NDArray[np.int64]]
    mean: bool = False
    dither: np.random.Generator | None = None

    def encode(self, rows: Array, numbers: Numbers, out: Array | None = None) -> Array:
        return encode_floats(rows, self.exponents(numbers), self.lane, self.workers, self.dither, out)

    def decode(self, lanes: Array, numbers: Numbers, data_cnt: Counts, worker_cnt: Counts, out: Array | None = None) -> Array:
        return self.values(decode_integers(lanes, data_cnt, self.lane, self.workers, lanes), numbers, worker_cnt, out)

    def values(self, integers: Array, numbers: Numbers, worker_cnt: Counts, out: Array | None = None) -> Array:
        """The values that sums in quanta stand for, in ``out`` if possible."""
        divisor = np.maximum(worker_cnt, 1) if self.mean else None
        return floats(integers, self.exponents(numbers), self.lane, self.workers, self.dtype, divisor, out)


@dataclass(frozen=True)
class IntegerLanes:
    """Sums or means of integers, decoded as signed integers of the lane's width. Means are truncated toward zero."""

    lane: Lane
    workers: int
    mean: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        return SIGNED_LANES[self.lane]

    def encode(self, rows: Array, _numbers: Numbers, _out: Array | None = None) -> Array:
        return encode_integers(rows, self.lane, self.workers)

    def decode(self, lanes: Array, _numbers: Numbers, data_cnt: Counts, worker_cnt: Counts, _out: Array | None = None) -> Array:
        sums = decode_integers(lanes, data_cnt, self.lane, self.workers, lanes)
        return _truncated(sums, np.maximum(worker_cnt, 1)) if self.mean else sums


def _truncated(sums: Array, divisor: Counts) -> Array:
    """Each row divided by its divisor, toward zero (numpy's division of integers goes down)."""
    by = divisor.astype(sums.dtype)[:, None]
    quotients: Array = (sums - np.fmod(sums, by)) // by
    return quotients


@dataclass(frozen=True)
class OwnLanes:
    """Values in lanes of their own width: in their ``order`` for a minimum or a maximum, otherwise their bits as they are."""

    dtype: np.dtype[Any]
    order: bool

    @property
    def lane(self) -> Lane:
        return own_lane(self.dtype)

    def encode(self, rows: Array, _numbers: Numbers, _out: Array | None = None) -> Array:
        return encode_order(rows) if self.order else encode_bits(rows)

    def decode(self, lanes: Array, _numbers: Numbers, _data: Counts, _src: Counts, _out: Array | None = None) -> Array:
        return decode_order(lanes, self.dtype) if self.order else decode_bits(lanes, self.dtype)
