# SPDX-License-Identifier: MIT
"""Checks the results of a cell against numpy and, for sums of floats, against the reference."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any

import numpy as np
from netsum.text import counted
from numpy.typing import NDArray

from netsum_testbed.verify import reference
from netsum_testbed.verify.cells import REDUCTIONS, Cell
from netsum_testbed.verify.data import Array, contribution, result_shape


class Checker:
    """Checks the cells of one job; give it every cell, in order: predicted scales follow from earlier calls."""

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._predictions = reference.Predictions()

    def complaints(
        self,
        cell: Cell,
        results: Sequence[Any],
        ended: Collection[int] | None = None,
        without: Collection[int] = (),
    ) -> list[str]:
        """The error in a cell's results, one per rank. ``ended``: the ranks whose call ended, if not all; the others are
        not checked. ``without``: ranks evicted before the call, whose rows no rank gets."""
        ended = range(cell.workers) if ended is None else ended
        wanted, far = self._wanted(cell, results, without)
        found = [line for rank in ended for line in _misshapen(cell, rank, results[rank], without)]
        if found or cell.kind.collective == "barrier":
            return found
        pairs = zip(results, wanted, strict=True)
        wrong = [
            (rank, line)
            for rank, (result, expected) in enumerate(pairs)
            if result is not None
            for line in exactly(result, expected)
        ]
        lines = dict.fromkeys(line for _, line in wrong)
        return far + [f"ranks {[rank for rank, each in wrong if each == line]}: {line}" for line in lines]

    def _wanted(self, cell: Cell, results: Sequence[Any], without: Collection[int]) -> tuple[list[Any], list[str]]:
        """The expected result of each rank, and complaints about results too far from the true sum."""
        if cell.kind.collective == "barrier":
            return [None] * cell.workers, []
        inputs = [contribution(cell, rank) for rank in range(cell.workers)]
        if cell.kind.collective not in REDUCTIONS:
            return [_brought(cell, inputs, rank, without) for rank in range(cell.workers)], []
        parts = segments(cell, inputs)
        if not cell.kind.is_sum:
            wanted = [reduced(cell.kind.op, part) for part in parts]
            return (wanted if len(parts) > 1 else wanted * cell.workers), []
        first = next((each for each in results if each is not None), None)
        expectations: list[Any] = []
        found: list[str] = []
        for index, part in enumerate(parts):
            expected, far = self._float_sum(cell, part, results[index] if len(parts) > 1 else first)
            # With stochastic rounding the direction is unknown; all ranks must still hold the same.
            expectations.append(first if cell.rounding == "stochastic" else expected)
            found += far
        return (expectations if len(parts) > 1 else expectations * cell.workers), found

    def _float_sum(self, cell: Cell, inputs: list[Array], got: Any) -> tuple[Array, list[str]]:
        """The sum (mean) by the documented quantization, and complaints if it is further than the bound from the true one."""
        dtype, mean = cell.kind.dtype, cell.kind.op == "mean"
        block = reference.block_elements(dtype, self._block_bytes, cell.bits)
        if cell.scale == "predicted" and cell.size:
            sums = self._predictions.sums((cell.kind.op, dtype, cell.form), inputs, block)
        else:
            sums = reference.quantized_sum(inputs, reference.largest_exponents(inputs, block), block, cell.bits)
        expected = reference.to_float(sums, dtype, cell.workers if mean else 1).reshape(inputs[0].shape)
        if got is None or got.shape != expected.shape:
            return expected, []
        bound = reference.error_bound(sums, cell.workers, dtype, mean=mean, bits=cell.bits)
        return expected, within_bound(inputs, got, 2 * bound if cell.rounding == "stochastic" else bound, mean=mean)


def _misshapen(cell: Cell, rank: int, result: Any, without: Collection[int]) -> list[str]:
    shape = result_shape(cell, rank)
    if shape is not None and without:
        shape = (shape[0] - sum(_given(cell, source, rank) for source in without),)
    if (shape is None) != (result is None):
        return [f"rank {rank} has {'a' if shape is None else 'no'} result"]
    if result is not None and (result.shape, result.dtype) != (shape, np.dtype(cell.kind.dtype)):
        return [f"rank {rank}'s result is {result.dtype}{list(result.shape)}"]
    return []


def segments(cell: Cell, inputs: list[Array]) -> list[list[Array]]:
    """The inputs, cut like the results: by result, by rank."""
    if cell.kind.collective != "reduce_scatter":
        return [inputs]
    ends = np.cumsum(cell.counts[0])[:-1]
    return [list(each) for each in zip(*(np.split(array, ends) for array in inputs), strict=True)]


def _given(cell: Cell, source: int, rank: int) -> int:
    """The rows that a rank gets from another in an exchange in which all give some."""
    match cell.kind.collective:
        case "all_gather" | "gather":
            return cell.counts[source][0]
        case "all_to_all":
            return cell.counts[source][rank]
        case _:
            return 0


def _brought(cell: Cell, inputs: list[Array], rank: int, without: Collection[int] = ()) -> Any:
    """The data that an exchange brings to a rank."""
    match cell.kind.collective:
        case "broadcast":
            return inputs[cell.root]
        case "scatter":
            return np.split(inputs[cell.root], np.cumsum(cell.counts[0])[:-1])[rank]
        case "all_to_all":
            cut = [np.split(array, np.cumsum(row)[:-1]) for array, row in zip(inputs, cell.counts, strict=True)]
            return np.concatenate([parts[rank] for source, parts in enumerate(cut) if source not in without])
        case _:
            return np.concatenate([array for source, array in enumerate(inputs) if source not in without])


def reduced(op: str, inputs: list[Array]) -> Array:
    """An exact reduction: a sum or truncated mean of integers, a product, minimum, maximum, or bitwise. +0 is larger than -0."""
    match op:
        case "sum":
            return reference.exact_integer_sum(inputs)
        case "integer_mean":
            return _truncated_mean(inputs)
        case "product":
            return _product(inputs)
        case "and" | "or" | "xor":
            return np.asarray(reduce(getattr(np, f"bitwise_{op}"), inputs))
        case _:
            return np.asarray(reduce(lambda one, other: np.where(_before(op, other, one), other, one), inputs))


def _truncated_mean(inputs: list[Array]) -> Array:
    sums = np.sum([each.astype(np.int64) for each in inputs], axis=0)
    means = np.sign(sums) * (np.abs(sums) // len(inputs))
    return np.asarray(means.astype(inputs[0].dtype))


def _product(inputs: list[Array]) -> Array:
    """The product, of integers that fit or of floats as float64s in rank order."""
    with np.errstate(over="ignore", under="ignore"):
        if inputs[0].dtype.kind in "iu":
            return np.asarray(reduce(np.multiply, inputs))
        return np.asarray(reduce(np.multiply, [each.astype(np.float64) for each in inputs]).astype(inputs[0].dtype))


def _before(op: str, one: Array, other: Array) -> Array:
    """The elements at which ``one`` is the minimum (maximum) of two; of zeros, by their sign."""
    beyond = np.less if op == "min" else np.greater
    if one.dtype.kind in "iub":
        return np.asarray(beyond(one, other))
    a, b = one.astype(np.float64), other.astype(np.float64)
    return np.asarray(beyond(a, b) | ((a == b) & beyond(-1.0 * np.signbit(a), -1.0 * np.signbit(b))))


def within_bound(inputs: list[Array], result: Array, bound: NDArray[np.longdouble], *, mean: bool) -> list[str]:
    """Check the distance from the true sum (mean), taken in 80-bit floats; their rounding and the result's are allowed for."""
    wide = [array.reshape(-1).astype(np.float64).astype(np.longdouble) for array in inputs]
    divisor = len(inputs) if mean else 1
    true = sum(wide, start=np.zeros(result.size, np.longdouble)) / divisor
    magnitude = sum((np.abs(array) for array in wide), start=np.zeros(result.size, np.longdouble))
    flat = result.reshape(-1)
    with np.errstate(invalid="ignore"):  # a wrong result may be anything, even NaN, which is within no bound
        # A sum is rounded once to its dtype, half an ulp (a denormal float64 twice, three quarters). A mean's sum is
        # rounded, divided and rounded again: at most an ulp and a half of the mean.
        rounding = np.spacing(np.abs(flat)).astype(np.float64).astype(np.longdouble) * (1.5 if mean else 0.75)
        allowed = bound + rounding + magnitude * len(inputs) * 2.0**-63
        far = np.flatnonzero(~(np.abs(flat.astype(np.float64).astype(np.longdouble) - true) <= allowed))
    if not far.size:
        return []
    worst = int(far[0])
    return [
        f"{counted(far.size, 'element')} further from the true sum than the bound; "
        f"element {worst}: {flat[worst]!r}, true {true[worst]!r}, allowed +-{allowed[worst]!r}"
    ]


def exactly(result: Array, expected: Array) -> list[str]:
    if same_bits(result, expected):
        return []
    return [f"not the reference: {difference(result, expected)}"]


def same_bits(one: Array, other: Array) -> bool:
    """Equal in type, shape and every bit."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def difference(result: Array, expected: Array) -> str:
    """The first element at which two arrays differ, by bits."""
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
