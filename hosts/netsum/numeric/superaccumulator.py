# SPDX-License-Identifier: MIT
"""Floats as integers wide enough for the whole range of their type, so that the switch's sum of them is the true sum.

A float32 is m * 2^-149 with an integer m below 2^277, a float16 m * 2^-24 with m below 2^40, a bfloat16 m * 2^-133 with m below
2^261. A host cuts m into digits of D bits
and sends each, with m's sign, in a lane of 64 bits of its own, as in any sum of integers (:mod:`netsum.numeric.fixed_point`); D
is such that no lane carries into the next. Sums of digits, times their powers, are the true sum, which is rounded once. That is
Kulisch's superaccumulator, in words that overlap as Neal's do ("Fast exact summation using small and large superaccumulators",
arXiv 1505.05571), with the additions in the network.

NaN and infinities have no digits. They are counted: each number has two counters of 9 bits, one of positive and one of negative
infinities, and a NaN counts in both, since IEEE 754 makes one of infinities that cancel out. Three numbers share a lane for them.

A chunk holds ``per_chunk`` numbers: first the digits of each, the lowest first, then the counters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netsum.numeric.fixed_point import Array, Counts, Numbers, bias, decode_integers, encode_integers, type_name
from netsum.wire.schema import CHUNK_BYTES, Lane

LANE: Final = Lane.L64
_LANES: Final = CHUNK_BYTES // LANE.bytes
MOST_RANKS: Final = 255
"""Ranks whose exact sum can be had: a counter has room for no more."""
_COUNTER: Final = 9  # bits
_SHARING: Final = 3  # numbers that share a lane for their counters
_MOST: Final = 60  # bits of a digit, so that a sum of digits and what it carries fit 63
_DOUBLE: Final = 53  # bits of a float64's significand
_FEW: Final = 256  # digits
_HALF: Final = 30  # bits of a digit in a division: a remainder before it still fits 63


@dataclass(frozen=True)
class _Format:
    """A float type: its unsigned view, the bits of its significand without the leading one, the exponent field that means
    infinity or NaN, and the exponent of its least number."""

    bits: np.dtype[Any]
    fraction: int
    special: int
    least: int


_FORMATS: Final = {
    "bfloat16": _Format(np.dtype(np.uint16), 7, 255, -133),
    "float16": _Format(np.dtype(np.uint16), 10, 31, -24),
    "float32": _Format(np.dtype(np.uint32), 23, 255, -149),
}
TYPES: Final = frozenset(_FORMATS)
"""Names of the types that have digits; a float64 would need more than a chunk has room for."""


@dataclass(frozen=True)
class ExactLanes:
    """Correctly rounded sums, or means, of ``workers`` ranks' floats."""

    workers: int
    dtype: np.dtype[Any]
    mean: bool = False

    @property
    def lane(self) -> Lane:
        return LANE

    @cached_property
    def _format(self) -> _Format:
        return _FORMATS[type_name(self.dtype)]

    @cached_property
    def digit_bits(self) -> int:
        return min((bias(LANE, self.workers) + 1).bit_length() - 1, _MOST)

    @cached_property
    def digits(self) -> int:
        """Lanes that a number's digits take."""
        return -(-(self._format.special - 1 + self._format.fraction) // self.digit_bits)

    @cached_property
    def per_chunk(self) -> int:
        return _SHARING * _LANES // (_SHARING * self.digits + 1)

    def encode(self, rows: Array, _numbers: Numbers, _out: Array | None = None) -> Array:
        """Lanes of these blocks, ``(blocks, lanes)``."""
        signed = np.zeros((rows.size // self.per_chunk, _LANES), np.int64)
        digits, counters = self._split(signed)
        values = rows.reshape(-1, self.per_chunk)
        there = np.asarray(values.any(axis=1))  # the rest is zeros
        digits[there] = self._to_digits(values[there])
        counters[there] = self._to_counters(values[there])
        return encode_integers(signed.reshape(len(rows), -1), LANE, self.workers)

    def decode(self, lanes: Array, _numbers: Numbers, data_cnt: Counts, worker_cnt: Counts, _out: Array | None = None) -> Array:
        signed = decode_integers(lanes, data_cnt, LANE, self.workers).reshape(-1, _LANES)
        there = np.asarray(lanes.reshape(-1, _LANES).any(axis=1))  # the rest was not sent
        digits, counters = self._split(signed[there])
        divisor = np.repeat(np.maximum(worker_cnt, 1), len(signed) // len(lanes))[there, None] if self.mean else None
        sums = np.zeros((len(signed), self.per_chunk), self.dtype)
        from_digits = self._from_few_digits if digits.size <= _FEW else self._from_digits
        found = from_digits(digits, divisor)
        self._add_infinities(found, counters)
        sums[there] = found
        return sums.reshape(len(lanes), -1)

    def _split(self, chunks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Views of chunks: digits ``(chunks, per_chunk, digits)``, and counters ``(chunks, lanes)``."""
        first = self.per_chunk * self.digits
        counters = -(-self.per_chunk // _SHARING)
        return chunks[:, :first].reshape(len(chunks), self.per_chunk, self.digits), chunks[:, first : first + counters]

    def _to_digits(self, values: Array) -> NDArray[np.int64]:
        """A new axis of digits, zeros for what is not finite."""
        form, width = self._format, np.uint64(self.digit_bits)
        bits = values.view(form.bits).astype(np.uint64)
        field = (bits >> np.uint64(form.fraction)) & np.uint64(form.special)
        significand = bits & np.uint64((1 << form.fraction) - 1)
        significand |= np.minimum(field, 1).astype(np.uint64) << np.uint64(form.fraction)
        significand[field == form.special] = 0
        place = np.maximum(field, 1) - np.uint64(1)  # of the significand's lowest bit
        index, shift = place // width, place % width
        found = np.zeros((*values.shape, self.digits + 1), np.int64)
        low = (significand << shift) & ((np.uint64(1) << width) - np.uint64(1))
        high = significand >> (width - shift)
        for part, at in ((low, index), (high, index + np.uint64(1))):
            # A special number's place is beyond the last digit, and its significand is zero.
            where = np.minimum(at, self.digits).astype(np.int64)[..., None]
            np.put_along_axis(found, where, part.astype(np.int64)[..., None], axis=-1)
        return np.where(np.signbit(values)[..., None], -found, found)[..., : self.digits]

    def _to_counters(self, values: Array) -> NDArray[np.int64]:
        """Lanes with the counters of ``(chunks, per_chunk)`` numbers."""
        nan = np.isnan(values)
        counts = ((values == np.inf) | nan).astype(np.int64) | (((values == -np.inf) | nan).astype(np.int64) << _COUNTER)
        lanes = -(-self.per_chunk // _SHARING)
        padded = np.zeros((len(values), lanes * _SHARING), np.int64)
        padded[:, : self.per_chunk] = counts
        shifts = 2 * _COUNTER * np.arange(_SHARING)
        return np.asarray((padded.reshape(len(values), lanes, _SHARING) << shifts).sum(axis=-1))

    def _add_infinities(self, sums: Array, counters: NDArray[np.int64]) -> None:
        if not counters.any():
            return
        shifts = 2 * _COUNTER * np.arange(_SHARING)
        counts = (counters[..., None] >> shifts).reshape(len(sums), -1)[:, : self.per_chunk]
        one = (1 << _COUNTER) - 1
        positive, negative = (counts & one) > 0, ((counts >> _COUNTER) & one) > 0
        sums[positive] = np.inf
        sums[negative] = -np.inf
        sums[positive & negative] = np.nan

    def _from_few_digits(self, digits: NDArray[np.int64], divisor: NDArray[np.int64] | None) -> Array:
        """The same as :meth:`_from_digits`, number by number with Python's own integers, which is faster for few."""
        shape, width, least = digits.shape[:-1], self.digit_bits, self._format.least
        below = 2 * _HALF if divisor is not None else 0  # bits of a quotient
        divisors = [1] * math.prod(shape) if divisor is None else np.broadcast_to(divisor, shape).reshape(-1).tolist()
        found = []
        for parts, by in zip(digits.reshape(-1, self.digits).tolist(), divisors, strict=True):
            total = 0
            for part in reversed(parts):
                total = (total << width) + part
            magnitude, rest = divmod(abs(total) << below, by)
            over = max(magnitude.bit_length() - _DOUBLE, 0)
            odd = magnitude >> over | (rest > 0 or magnitude & ((1 << over) - 1) > 0)  # as in _rounded
            found.append(math.copysign(math.ldexp(odd, over + least - below), 1 if total >= 0 else -1))
        return _nearest(np.array(found, np.float64).reshape(shape), self.dtype)

    def _from_digits(self, digits: NDArray[np.int64], divisor: NDArray[np.int64] | None) -> Array:
        """The numbers nearest to the sums of digits, or to those over the divisor; ties go to the even one."""
        carried = _carry(digits, self.digit_bits)
        negative = carried[..., -1] < 0
        carried = _carry(np.where(negative[..., None], -digits, digits), self.digit_bits)
        least, width = self._format.least, self.digit_bits
        if divisor is not None:
            carried, inexact = _divide(carried, width, divisor)
            least, width = least - 2 * _HALF, _HALF
        else:
            inexact = np.zeros(negative.shape, np.bool_)
        magnitude = _rounded(carried, width, least, inexact, self.dtype)
        return np.where(negative, -magnitude, magnitude)


def _carry(digits: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """The same numbers with digits within ``width`` bits and one digit more, which has the sign."""
    found = np.empty((*digits.shape[:-1], digits.shape[-1] + 1), np.int64)
    over = np.zeros(digits.shape[:-1], np.int64)
    for index in range(digits.shape[-1]):
        total = digits[..., index] + over
        over = total >> width
        found[..., index] = total & ((1 << width) - 1)
    found[..., -1] = over
    return found


def _divide(digits: NDArray[np.int64], width: int, divisor: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Quotients of non-negative numbers in digits of ``_HALF`` bits, two of them below the point, and which are not exact."""
    halves = np.zeros((*digits.shape[:-1], 2 + -(-digits.shape[-1] * width // _HALF)), np.int64)
    for index in range(digits.shape[-1]):
        first, shift = divmod(index * width, _HALF)
        value = digits[..., index]
        at = 2 + first
        while at < halves.shape[-1]:
            room = _HALF - shift
            halves[..., at] |= (value & ((1 << room) - 1)) << shift
            value, shift, at = value >> room, 0, at + 1
    rest = np.zeros(digits.shape[:-1], np.int64)
    for index in reversed(range(halves.shape[-1])):
        halves[..., index], rest = np.divmod((rest << _HALF) | halves[..., index], divisor)
    return halves, rest > 0


def _rounded(digits: NDArray[np.int64], width: int, least: int, inexact: NDArray[np.bool_], dtype: np.dtype[Any]) -> Array:
    """The numbers of the type nearest to non-negative numbers of these digits, times 2^least; ``inexact`` ones are a little more.

    The leading bits go to a float64 whose last bit says whether anything follows ("round to odd"; Boldo and Melquiond, 2008),
    so that rounding that to the type rounds the number itself.
    """
    count = digits.shape[-1]
    shape = digits.shape[:-1]
    window = np.zeros(shape, np.uint64)
    filled = np.zeros(shape, np.int64)  # bits of the window from its leading one on
    exponent = np.full(shape, least, np.int64)
    sticky = inexact.copy()
    for index in reversed(range(count)):
        digit = digits[..., index].astype(np.uint64)
        take = np.where(filled > 0, np.clip(_DOUBLE - filled, 0, width), np.minimum(_bit_length(digit), _DOUBLE))
        have = np.where(filled > 0, width, _bit_length(digit))
        drop = (have - take).astype(np.uint64)
        here = take > 0
        window = np.where(here, (window << take.astype(np.uint64)) | (digit >> drop), window)
        sticky |= (digit & ((np.uint64(1) << drop) - np.uint64(1))) > 0
        exponent = np.where(here, least + index * width + drop.astype(np.int64), exponent)
        filled = np.where(here, filled + take, filled)
    window |= sticky.astype(np.uint64)
    return _nearest(np.ldexp(window.astype(np.float64), exponent.astype(np.int32)), dtype)


def _nearest(odd: NDArray[np.float64], dtype: np.dtype[Any]) -> Array:
    """The numbers of the type nearest to those that :func:`_rounded` says, which are rounded to odd."""
    with np.errstate(over="ignore", under="ignore"):
        if type_name(dtype) != "bfloat16":
            return odd.astype(dtype)
        # ml_dtypes rounds to float32 and then once more, so what it gets must be rounded to odd as a float32.
        single = odd.astype(np.float32)
        bits = single.view(np.uint32)
        bits -= np.abs(single) > np.abs(odd)
        bits |= single != odd
        return single.astype(dtype)


def _bit_length(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    high = numbers >> np.uint64(32)
    low = numbers & np.uint64(0xFFFFFFFF)
    return np.where(high > 0, 32 + np.frexp(high.astype(np.float64))[1], np.frexp(low.astype(np.float64))[1]).astype(np.int64)
