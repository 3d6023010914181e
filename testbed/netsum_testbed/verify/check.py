"""Is what the ranks got what they should have got?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from netsum.wire.schema import CHUNK_BYTES
from numpy.typing import NDArray

from netsum_testbed.verify import reference
from netsum_testbed.verify.cases import FLOATS, Call, Round
from netsum_testbed.verify.data import Array, contribution


class Checker:
    """Checks the calls of one round; give it every call, in order: predicted scales follow from earlier calls."""

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._predictions = reference.Predictions()

    def complaints(self, call: Call, results: Sequence[Array]) -> list[str]:
        """What is wrong with a call's results, one per rank; empty when nothing is."""
        round_ = self._round
        inputs = [contribution(round_, call, rank) for rank in range(round_.workers)]
        sum_of_floats = call.dtype in FLOATS and call.op != "max"
        sums = self._float_sums(call, inputs) if sum_of_floats else None
        first = results[0]
        if first.shape != call.shape or str(first.dtype) != call.dtype:
            return [f"the result is {first.dtype}{list(first.shape)}"]
        apart = [rank for rank, result in enumerate(results) if not same_bits(result, first)]
        if apart:
            return [f"ranks {apart} have another result than rank 0: {difference(results[apart[0]], first)}"]
        if call.op == "max":
            return exactly(first, reference.exact_max(inputs))
        if sums is None:
            return exactly(first, reference.exact_integer_sum(inputs))
        divisor = round_.workers if call.op == "mean" else 1
        expected = reference.to_float(sums, call.dtype, divisor).reshape(call.shape)
        bound = reference.error_bound(sums, len(inputs), call.dtype, mean=call.op == "mean")
        return within_bound(inputs, first, bound, mean=call.op == "mean") + exactly(first, expected)

    def _float_sums(self, call: Call, inputs: list[Array]) -> reference.Floats:
        block = reference.block_elements(call.dtype, self._round.chunks * CHUNK_BYTES)
        if call.scale == "agreed" or not call.elements:
            return reference.quantised_sum(inputs, reference.largest_exponents(inputs, block), block)
        return self._predictions.sums((call.op, call.dtype, call.shape), inputs, block)


def within_bound(inputs: list[Array], result: Array, bound: NDArray[np.longdouble], *, mean: bool) -> list[str]:
    """Distance from the true sum (mean), taken in 80-bit floats; their own rounding and the result's are allowed for."""
    wide = [array.reshape(-1).astype(np.float64).astype(np.longdouble) for array in inputs]
    divisor = len(inputs) if mean else 1
    true = sum(wide, start=np.zeros(result.size, np.longdouble)) / divisor
    magnitude = sum((np.abs(array) for array in wide), start=np.zeros(result.size, np.longdouble))
    flat = result.reshape(-1)
    with np.errstate(invalid="ignore"):  # a wrong result may be anything, NaN too: it is not within any bound
        # A sum is rounded once to its dtype, half an ulp (a denormal float64 twice, three quarters). A mean's sum is
        # rounded, divided and rounded again: at most an ulp and a half of the mean.
        rounding = np.spacing(np.abs(flat)).astype(np.float64).astype(np.longdouble) * (1.5 if mean else 0.75)
        allowed = bound + rounding + magnitude * len(inputs) * 2.0**-63
        far = np.flatnonzero(~(np.abs(flat.astype(np.float64).astype(np.longdouble) - true) <= allowed))
    if not far.size:
        return []
    worst = int(far[0])
    return [
        f"{far.size} elements are further from the true sum than the bound; "
        f"element {worst}: {flat[worst]!r}, true {true[worst]!r}, allowed +-{allowed[worst]!r}"
    ]


def exactly(result: Array, expected: Array) -> list[str]:
    """Nothing, or where the result is not the expected one."""
    if same_bits(result, expected):
        return []
    return [f"not the reference: {difference(result, expected)}"]


def same_bits(one: Array, other: Array) -> bool:
    """Equal in type, shape and every bit."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def difference(result: Array, expected: Array) -> str:
    """Where two arrays first differ, by bits."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return f"{result.dtype}{list(result.shape)} instead of {expected.dtype}{list(expected.shape)}"
    size = result.dtype.itemsize
    pairs = [np.frombuffer(array.tobytes(), np.uint8).reshape(-1, size) for array in (result, expected)]
    where = np.flatnonzero((pairs[0] != pairs[1]).any(axis=1))
    index = int(where[0])
    return (
        f"{where.size} of {result.size} elements differ; "
        f"element {index}: {result.reshape(-1)[index]!r} instead of {expected.reshape(-1)[index]!r}"
    )
