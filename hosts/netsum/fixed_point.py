"""Numbers as unsigned lanes that the switch can combine, and back.

**Sum.** With n workers and lanes of w bits, a host sends u = q + B with B = floor((2^w - 1) / 2n) and \\|q\\| <= B. All lanes
are then non-negative and n of them sum to less than 2^w: the switch adds whole 2048-bit fields and no lane carries into
the next. The host takes ``data_cnt * B`` off. Floats are rounded to multiples of a power-of-two quantum, one for each
block: with 2^b the largest power of two that is at most B, and e the block's exponent (every magnitude below 2^e),
q = rint(x * 2^(b - e)). The error of a sum is at most n/2 quanta, the quantum at most 2^(e+1) / B. The idea is SwitchML's
(NSDI 2021, section 4.2), the bias ours.

**Min, max.** Lanes compare as unsigned integers, so signed integers and floats are mapped to unsigned ones in the same
order. **And, or, xor** take the bits as they are.

Arrays are two-dimensional here, one row for each block; lanes are big-endian, as on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netsum.wire.schema import Lane

Array = NDArray[Any]
Numbers = range | NDArray[np.int64]
"""Ascending numbers of blocks."""

FLOATS: Final = frozenset({"float16", "bfloat16", "float32", "float64"})
"""Names of the float types; bfloat16 comes from ml_dtypes."""
INTEGERS: Final = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))

WIRE_LANES: Final = {lane: np.dtype(f">u{lane.bytes}") for lane in Lane}
"""dtype of a lane on the wire."""
_UNSIGNED: Final = {lane: np.dtype(f"u{lane.bytes}") for lane in Lane}
_SIGNED: Final = {lane: np.dtype(f"i{lane.bytes}") for lane in Lane}

_FLOAT_LANES: Final = {"float16": Lane.L32, "bfloat16": Lane.L32, "float32": Lane.L32, "float64": Lane.L64}
type_name: Final[Callable[[np.dtype[Any]], str]] = cache(attrgetter("name"))
"""A type's name, which numpy puts together each time."""
_LANES_BY_BYTES: Final = {lane.bytes: lane for lane in Lane}


def bias(lane: Lane, workers: int) -> int:
    """B, the largest magnitude that a lane carries."""
    return ((1 << lane.bits) - 1) // (2 * workers)


def scale_bits(lane: Lane, workers: int) -> int:
    """b, with 2^b the largest power of two that is at most B."""
    return bias(lane, workers).bit_length() - 1


def float_lane(dtype: np.dtype[Any]) -> Lane:
    """The lane that carries a float type's sum: float16 and float32 in 32 bits, float64 in 64."""
    return _FLOAT_LANES[type_name(dtype)]


def coarsest_quantum(exponents: NDArray[np.int64], lane: Lane, workers: int) -> float:
    """The largest quantum of blocks with these exponents; 0.0 if there are none."""
    if not len(exponents):
        return 0.0
    with np.errstate(over="ignore", under="ignore"):
        return float(np.ldexp(1.0, int(exponents.max()) - scale_bits(lane, workers)))


def widened(values: Array) -> Array:
    """Floats of 16 bits as float32, which holds them exactly; others as they are."""
    return values.astype(np.float32) if values.dtype.itemsize == 2 else values


def own_lane(dtype: np.dtype[Any]) -> Lane:
    """The lane of the type's own width."""
    return _LANES_BY_BYTES[dtype.itemsize]


def _scaled(values: Array, shift: NDArray[np.int64]) -> Array:
    """values * 2^shift, row by row, rounded at most once. Multiplies if the powers are normal numbers, which is faster."""
    powers = shift.astype(np.int32)
    limit = 126 if values.dtype == np.float32 else 1022
    if powers.size and (powers.max() > limit or powers.min() < -limit):
        return np.asarray(np.ldexp(values.astype(np.float64), powers[:, None]))
    return np.asarray(values * np.ldexp(values.dtype.type(1), powers)[:, None])


def encode_floats(
    values: Array,
    exponents: NDArray[np.int64],
    lane: Lane,
    workers: int,
    dither: np.random.Generator | None = None,
) -> Array:
    """Biased lanes of a (blocks, lanes) array of float32 or float64, every magnitude of row i below 2^exponents[i].

    With ``dither``, values are rounded up or down at random so that the mean over many roundings is the value (stochastic
    rounding; Gupta et al., ICML 2015); each is then off by less than one quantum instead of half a quantum.
    """
    with np.errstate(under="ignore"):
        scaled = _scaled(values, scale_bits(lane, workers) - exponents)
    if dither is None:
        np.rint(scaled, out=scaled)
    else:
        whole = np.trunc(scaled)
        rest = scaled - whole  # exact, whereas adding a dither would round if the float has few fraction bits left
        scaled = whole + np.copysign(dither.random(scaled.shape, np.float64) < np.abs(rest), rest)
    return _biased(scaled.astype(_SIGNED[lane]), lane, workers)


def encode_integers(values: Array, lane: Lane, workers: int) -> Array:
    """Biased lanes of an integer array whose magnitudes are at most B."""
    return _biased(values.astype(_SIGNED[lane]), lane, workers)


def _biased(signed: Array, lane: Lane, workers: int) -> Array:
    unsigned = signed.view(_UNSIGNED[lane])
    unsigned += _UNSIGNED[lane].type(bias(lane, workers))
    return unsigned.astype(WIRE_LANES[lane])


def decode_integers(lanes: Array, data_cnt: NDArray[np.int64], lane: Lane, workers: int) -> Array:
    """The exact sums of ``data_cnt[i]`` contributions to row i, as signed integers of the lane's width. They fit, because
    n * B <= (2^w - 1) / 2."""
    unsigned = lanes.astype(_UNSIGNED[lane])
    offset = (data_cnt.astype(np.uint64) * np.uint64(bias(lane, workers))).astype(_UNSIGNED[lane])
    unsigned -= offset[:, None]
    return unsigned.view(_SIGNED[lane])


def decode_floats(
    lanes: Array,
    exponents: NDArray[np.int64],
    data_cnt: NDArray[np.int64],
    lane: Lane,
    workers: int,
    dtype: np.dtype[Any],
    divisor: NDArray[np.int64] | None = None,
) -> Array:
    """The sums as ``dtype``, or the means if a ``divisor`` is given for each row. Rounded once from the exact sum, twice for
    float64 lanes and means."""
    integers, shift = decode_integers(lanes, data_cnt, lane, workers), exponents - scale_bits(lane, workers)
    with np.errstate(over="ignore", under="ignore"):
        if divisor is None and dtype == np.float32 and lane <= Lane.L32 and np.abs(shift).max(initial=0) <= 126:
            return _scaled(integers.astype(np.float32), shift)  # a product of normal numbers, and so not rounded again
        sums = integers.astype(np.float64)
        if divisor is not None:
            sums /= divisor[:, None]
        return _scaled(sums, shift).astype(dtype)


def _own_bits(values: Array) -> Array:
    """The values' own bits, unsigned. A bool is 0 or 1, although any other byte is True in memory as well."""
    unsigned = np.ascontiguousarray(values).view(_UNSIGNED[own_lane(values.dtype)])
    return np.minimum(unsigned, 1) if values.dtype.kind == "b" else unsigned


def encode_bits(values: Array) -> Array:
    return _own_bits(values).astype(WIRE_LANES[own_lane(values.dtype)])


def decode_bits(lanes: Array, dtype: np.dtype[Any]) -> Array:
    return lanes.astype(_UNSIGNED[own_lane(dtype)]).view(dtype)


def encode_order(values: Array) -> Array:
    """Unsigned lanes in the order of the values: signed integers are shifted, negative floats have their bits flipped (Herf,
    "Radix tricks", 2001). Not for NaN."""
    lane = own_lane(values.dtype)
    unsigned = _UNSIGNED[lane]
    top = unsigned.type(1 << (lane.bits - 1))
    bits = _own_bits(values)
    if type_name(values.dtype) in FLOATS:
        bits = np.where(bits & top, ~bits, bits | top)
    elif values.dtype.kind == "i":
        bits = bits ^ top
    return bits.astype(WIRE_LANES[lane])


def decode_order(lanes: Array, dtype: np.dtype[Any]) -> Array:
    lane = own_lane(dtype)
    unsigned = _UNSIGNED[lane]
    top = unsigned.type(1 << (lane.bits - 1))
    bits = lanes.astype(unsigned)
    if type_name(dtype) in FLOATS:
        bits = np.where(bits & top, bits ^ top, ~bits)
    elif dtype.kind == "i":
        bits = bits ^ top
    return bits.view(dtype)


@dataclass(frozen=True)
class FloatLanes:
    """Sums or means of floats. ``exponents(numbers)`` are the exponents of blocks, ``dtype`` is the type of the results."""

    lane: Lane
    workers: int
    dtype: np.dtype[Any]
    exponents: Callable[[Numbers], NDArray[np.int64]]
    mean: bool = False
    dither: np.random.Generator | None = None

    def encode(self, rows: Array, numbers: Numbers) -> Array:
        return encode_floats(rows, self.exponents(numbers), self.lane, self.workers, self.dither)

    def decode(self, lanes: Array, numbers: Numbers, data_cnt: NDArray[np.int64], src_cnt: NDArray[np.int64]) -> Array:
        divisor = np.maximum(src_cnt, 1) if self.mean else None
        return decode_floats(lanes, self.exponents(numbers), data_cnt, self.lane, self.workers, self.dtype, divisor)


@dataclass(frozen=True)
class IntegerLanes:
    """Sums of integers, decoded as signed integers of the lane's width."""

    lane: Lane
    workers: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return _SIGNED[self.lane]

    def encode(self, rows: Array, _numbers: Numbers) -> Array:
        return encode_integers(rows, self.lane, self.workers)

    def decode(self, lanes: Array, _numbers: Numbers, data_cnt: NDArray[np.int64], _src: NDArray[np.int64]) -> Array:
        return decode_integers(lanes, data_cnt, self.lane, self.workers)


@dataclass(frozen=True)
class OwnLanes:
    """Values in lanes of their own width: in their ``order`` for a minimum or a maximum, otherwise their bits as they are."""

    dtype: np.dtype[Any]
    order: bool

    @property
    def lane(self) -> Lane:
        return own_lane(self.dtype)

    def encode(self, rows: Array, _numbers: Numbers) -> Array:
        return encode_order(rows) if self.order else encode_bits(rows)

    def decode(self, lanes: Array, _numbers: Numbers, _data: NDArray[np.int64], _src: NDArray[np.int64]) -> Array:
        return decode_order(lanes, self.dtype) if self.order else decode_bits(lanes, self.dtype)
