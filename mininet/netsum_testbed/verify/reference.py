# SPDX-License-Identifier: MIT
"""The expected result of a call, computed without netsum: integers as integers, floats by the documented quantization.

This is the quantization of docs/hosts.md, written a second time so that a mistake in either shows: an array is cut into
blocks of the job's block size. With agreed scales, in a block whose largest magnitude over all ranks is below 2^e (and
not below 2^(e - 1)), every element is rounded to a whole multiple of 2^(e - b), ties to even, where 2^b is the largest power of
two that is at most B = floor((2^w - 1) / 2n). The multiples are added as integers, and the sum is converted back.

With predicted scales, e comes from earlier calls of the same kind (operation, dtype and shape): the first one agrees.
After a call that agreed on e for a block, the next takes e + 1 (-1073, the lowest there is, for a block of zeros). After
a call that predicted, it takes f + 1, where f is the exponent of the largest sum. Blocks that do not fit on some rank are agreed
on, and so are those whose sums are all below 2^(b - 2 - floor(b / 8)) quanta (unless the prediction is the lowest). Of those, the
ones that do not fit, or whose e is more than floor(b / 8) + 2 + ceil(log2 n) below the prediction, are done again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from netsum_testbed.verify.data import Array

LANE_BITS: Final = {"float16": 32, "bfloat16": 32, "float32": 32, "float64": 64}
"""Width of the lane that carries a float's multiples, unless the call says another (``bits``)."""

Integers = NDArray[np.int64]

NO_EXPONENT: Final = int(np.iinfo(np.int64).min)
"""Of a block of zeros."""
LOWEST: Final = -1073
"""Of the smallest float64."""


def bias(bits: int, workers: int) -> int:
    """B: the largest magnitude in a lane, such that the biased lanes of all workers sum to less than 2^bits."""
    return ((1 << bits) - 1) // (2 * workers)


@dataclass(frozen=True)
class Floats:
    """A float sum as integers: element i is ``multiples[i] * 2 ** exponents[i // block]``; ``zero``: blocks of zeros."""

    multiples: Integers
    exponents: Integers
    zero: NDArray[np.bool_]
    block: int

    def per_element(self) -> Integers:
        """The exponent of each element's quantum."""
        return np.repeat(self.exponents, self.block)[: self.multiples.size]


def block_elements(dtype: str, block_bytes: int, bits: int | None = None) -> int:
    """Elements of a float array in one block."""
    return block_bytes * 8 // (bits or LANE_BITS[dtype])


def largest_exponents(inputs: list[Array], block: int) -> Integers:
    """Per block the smallest e with every magnitude below 2^e; the smallest int64 for a block of zeros."""
    count = inputs[0].size
    blocks = -(-count // block)
    largest = np.zeros(blocks * block)
    for array in inputs:
        np.maximum(largest[:count], np.abs(array.reshape(-1).astype(np.float64)), out=largest[:count])
    tops = largest.reshape(blocks, block).max(axis=1) if blocks else np.zeros(0)
    exponents = np.frexp(tops)[1].astype(np.int64)
    return np.where(tops == 0.0, NO_EXPONENT, exponents)


class Predictions:
    """The predictions of the ranks of one job, by kind of call. It must see every call with predicted scales, in
    order."""

    def __init__(self) -> None:
        self._exponents: dict[tuple[object, ...], Integers] = {}

    def sums(self, kind: tuple[object, ...], inputs: list[Array], block: int) -> Floats:
        """Return the sums of a call, and learn from them."""
        own = largest_exponents(inputs, block)
        zero = own == NO_EXPONENT
        predicted = self._exponents.get(kind)
        if predicted is None:
            self._exponents[kind] = np.where(zero, LOWEST, own + 1)
            return quantized_sum(inputs, own, block)
        workers = len(inputs)
        limit = bias(LANE_BITS[str(inputs[0].dtype)], workers).bit_length() - 1
        spare = limit // 8 + 2
        fits = zero | (own <= predicted)
        first = quantized_sum(inputs, np.where(fits, predicted, own), block)
        largest = largest_multiples(first)
        small = (largest < 2 ** (limit - spare)) & (predicted > LOWEST)
        agreed = ~fits | small
        coarse = small & ~zero & (predicted - own > spare + math.ceil(math.log2(workers)))
        sums = quantized_sum(inputs, np.where(~fits | coarse, own, predicted), block)
        of_sums = np.where(largest == 0, LOWEST, np.frexp(largest)[1] + first.exponents + 1)
        self._exponents[kind] = np.where(agreed, np.where(zero, LOWEST, own + 1), of_sums)
        return sums


def largest_multiples(sums: Floats) -> NDArray[np.float64]:
    """The largest magnitude of each block's integer sums."""
    padded = np.zeros(len(sums.exponents) * sums.block)
    padded[: sums.multiples.size] = np.abs(sums.multiples.astype(np.float64))
    return np.asarray(padded.reshape(len(sums.exponents), sums.block).max(axis=1))


def quantized_sum(inputs: list[Array], exponents: Integers, block: int, bits: int | None = None) -> Floats:
    """The integer sum at the given block exponents; blocks of zeros (see :func:`largest_exponents`) sum to 0."""
    dtype = str(inputs[0].dtype)
    limit = bias(bits or LANE_BITS[dtype], len(inputs)).bit_length() - 1
    zero = exponents == NO_EXPONENT
    quanta = np.where(zero, 0, exponents - limit)
    sums = Floats(np.zeros(inputs[0].size, np.int64), quanta, zero, block)
    shift = -sums.per_element()
    for array in inputs:
        # Scaling by a power of two is exact here: a float64 has room for every float32's and float16's exponent, and
        # what a float64 loses below its smallest denormal is far below half a quantum.
        scaled = np.ldexp(array.reshape(-1).astype(np.float64), shift.astype(np.int32))
        sums.multiples[:] += np.rint(scaled).astype(np.int64)
    return sums


def to_float(sums: Floats, dtype: str, divisor: int = 1) -> Array:
    """The sum (divided: the mean) in the caller's dtype."""
    values = sums.multiples.astype(np.float64) / divisor
    with np.errstate(over="ignore"):
        result: Array = np.ldexp(values, sums.per_element().astype(np.int32)).astype(dtype)
    return result


def exact_integer_sum(inputs: list[Array]) -> Array:
    """The integer sum; the cases keep it within the dtype."""
    wide = np.uint64 if inputs[0].dtype.kind == "u" else np.int64
    total = np.zeros(inputs[0].shape, wide)
    for array in inputs:
        total += array.astype(wide)
    result: Array = total.astype(inputs[0].dtype)
    return result


def error_bound(sums: Floats, workers: int, dtype: str, *, mean: bool, bits: int | None = None) -> NDArray[np.longdouble]:
    """Largest allowed distance from the true sum (mean), per element, before rounding to the dtype: n/2 quanta, a
    quantum being at most 2^(e+1) / B for a block at exponent e. 0 for a block of zeros, which has no quantum."""
    limit = bias(bits or LANE_BITS[dtype], workers)
    tops = np.ldexp(np.longdouble(1), (sums.exponents + limit.bit_length()).astype(np.int32))  # 2^(e+1)
    quanta = np.repeat(np.where(sums.zero, 0, tops / limit), sums.block)[: sums.multiples.size]
    return quanta * (np.longdouble(0.5) if mean else np.longdouble(workers) / 2)
