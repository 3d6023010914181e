# SPDX-License-Identifier: MIT
"""Values that are not finite: they travel beside the sum as masks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from netsum.collectives.call import Context
from netsum.collectives.negotiation import negotiate_codes
from netsum.collectives.partition import BlockPartition, Layout
from netsum.collectives.pipeline import BlockPipeline
from netsum.core.progress import Flow
from netsum.errors import CallError, NotFiniteError
from netsum.numeric.exponents import NOT_FINITE, Codes, float_codes, magnitudes
from netsum.numeric.fixed_point import FLOATS, Array, type_name
from netsum.wire.schema import Lane, Op

# Sums, minima and maxima need finite numbers.


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


# Sums in which a NaN or an infinity counts as IEEE addition has it (``nonfinite="propagate"``).
#
# A lane carries no such value. So a rank sends 0 in its place, and its code for the block says that there is one. From
# the agreement every rank knows which blocks have one somewhere. These are sent last: the codes of such blocks say
# nothing about the finite values of the other ranks, so the ranks agree on their exponents once more, and on *marks*, a
# byte an element, which the switch combines by OR. From the marks every rank puts the same values into the same
# elements.
#
# Cost: nothing where all values are finite. Otherwise two round trips, and for each such block 2 bytes and a byte an
# element.


_INFINITY: Final = np.uint8(1)
_MINUS_INFINITY: Final = np.uint8(2)
_NAN: Final = np.uint8(4)
_BOTH: Final = _INFINITY | _MINUS_INFINITY


class Marks:
    """The values that are not finite in this rank's flat array, and later in the sum. ``finite`` is the array with zeros in
    their place, ``codes`` are those of its blocks, which also say which blocks have a mark."""

    def __init__(self, blocks: Array, partition: BlockPartition) -> None:
        largest = magnitudes(partition.all_rows(blocks))
        self.finite = blocks
        self._own = np.zeros(len(blocks), np.uint8)
        marked = ~np.isfinite(largest)
        if marked.any():
            bad = ~np.isfinite(blocks)
            self.finite = np.where(bad, np.zeros(1, blocks.dtype), blocks)
            self._own[np.isnan(blocks)] = _NAN
            self._own[bad & (blocks > 0)] = _INFINITY
            self._own[bad & (blocks < 0)] = _MINUS_INFINITY
            largest = magnitudes(partition.all_rows(self.finite))
        self.codes = float_codes(largest)
        self.codes[marked] |= np.uint16(NOT_FINITE)
        self._numbers: NDArray[np.int64] = np.zeros(0, np.int64)
        self._all = np.zeros((0, 0), np.uint8)

    def settle(self, context: Context, partition: BlockPartition, numbers: NDArray[np.int64], own: Codes) -> Flow:
        """The flow that agrees on the blocks ``numbers``, in which some rank has a mark: combines the marks, and returns the
        codes of the finite values. ``own`` are this rank's codes of these blocks."""
        self._numbers = numbers
        codes = yield from negotiate_codes(context, own & np.uint16(NOT_FINITE - 1))
        rows = partition.rows(self._own, numbers).reshape(-1)
        pipeline = BlockPipeline(context, Layout.whole(len(rows)), Op.OR, Lane.L8)
        combined = np.zeros(len(rows), np.uint8)
        for group_numbers in pipeline.groups():
            group = pipeline.submit(pipeline.partition.rows(rows, group_numbers).copy(), group_numbers)
            yield group.complete
            pipeline.finish(group)
            pipeline.verdict.raise_failure(None)
            pipeline.partition.place(combined, group.lanes, group_numbers)
        self._all = combined.reshape(len(numbers), partition.width)
        return codes

    def put_into(self, result: Array, partition: BlockPartition, first: int = 0) -> None:
        """Put NaN and the infinities into the sum, of which ``result`` has the elements from ``first`` on."""
        for number, marks in zip(self._numbers, self._all, strict=True):
            elements = partition.elements(int(number))
            if elements.start < first:
                continue
            block = result[elements.start - first : elements.stop - first]
            marks = marks[: len(block)]  # noqa: PLW2901  the last block may be short, or another rank's
            block[marks == _INFINITY] = np.inf
            block[marks == _MINUS_INFINITY] = -np.inf
            block[(marks >= _NAN) | (marks == _BOTH)] = np.nan


def ordered(array: Array, op: str) -> Array:
    """The array for a minimum or maximum in which a NaN wins: every NaN becomes the last in the order of the lanes' bits."""
    bad = np.isnan(array)
    if not bad.any():
        return array
    bits = array.copy().view(f"u{array.itemsize}")
    sign = 1 << (8 * array.itemsize - 1)
    bits[bad] = 2 * sign - 1 if op == "min" else sign - 1
    return bits.view(array.dtype)
