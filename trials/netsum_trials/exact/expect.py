"""Is what the ranks of a cell got what they should have got? numpy, and for sums of floats verify's reference, tell."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any

import numpy as np
from netsum_testbed.verify import reference
from netsum_testbed.verify.check import exactly, within_bound
from netsum_testbed.verify.data import Array

from netsum_trials.exact.call import result_size
from netsum_trials.exact.cells import REDUCTIONS, Cell
from netsum_trials.exact.data import contribution


def complaints(
    cell: Cell,
    block_bytes: int,
    results: Sequence[Any],
    ended: Collection[int] | None = None,
    without: Collection[int] = (),
) -> list[str]:
    """What is wrong with a cell's results, one per rank; empty when nothing is. ``ended``: the ranks whose call did, if not all:
    of the others there is nothing to say. ``without``: ranks that were evicted before, whose rows nobody gets."""
    found: list[str] = []
    ended = range(cell.workers) if ended is None else ended
    for rank, result in enumerate(results):
        if rank not in ended:
            continue
        size = result_size(cell, rank)
        if size is not None:
            size -= sum(_given(cell, source, rank) for source in without)
        if (size is None) != (result is None):
            found.append(f"rank {rank} has {'a' if size is None else 'no'} result")
        elif result is not None and (result.shape, result.dtype) != ((size,), np.dtype(cell.kind.dtype)):
            found.append(f"rank {rank}'s result is {result.dtype}{list(result.shape)}")
    if found or cell.kind.collective == "barrier" or all(result is None for result in results):
        return found
    inputs = [contribution(cell, rank) for rank in range(cell.workers)]
    if cell.kind.collective not in REDUCTIONS:
        return _compare(results, [_brought(cell, inputs, rank, without) for rank in range(cell.workers)])
    parts = _segments(cell, inputs)
    if cell.rounding == "stochastic":  # an allreduce: one part, no telling which way each was rounded
        first = next(each for each in results if each is not None)
        apart = _compare(results, [first] * cell.workers)
        return apart or _float_sum(cell, block_bytes, parts[0], first)[1]
    wanted: list[Array] = []
    for index, part in enumerate(parts):
        if cell.is_sum:
            if len(parts) > 1 and results[index] is None:
                wanted.append(part[0])  # of nobody's
                continue
            got = results[index] if len(parts) > 1 else next(each for each in results if each is not None)
            expected, far = _float_sum(cell, block_bytes, part, got)
            found += far
        else:
            expected = reduced(cell.kind.op, part)
        wanted.append(expected)
    return found + _compare(results, wanted if len(parts) > 1 else wanted * cell.workers)


def _compare(results: Sequence[Any], wanted: Sequence[Any]) -> list[str]:
    return [
        f"rank {rank}: {line}"
        for rank, (result, expected) in enumerate(zip(results, wanted, strict=True))
        if result is not None
        for line in exactly(result, expected)
    ]


def _segments(cell: Cell, inputs: list[Array]) -> list[list[Array]]:
    """The inputs cut where the results are cut: by result, by rank."""
    if cell.kind.collective != "reduce_scatter":
        return [inputs]
    ends = np.cumsum(cell.counts[0])[:-1]
    return [list(each) for each in zip(*(np.split(array, ends) for array in inputs), strict=True)]


def _given(cell: Cell, source: int, rank: int) -> int:
    """Rows that a rank gets from another one in an exchange in which all give some."""
    match cell.kind.collective:
        case "all_gather" | "gather":
            return cell.counts[source][0]
        case "all_to_all":
            return cell.counts[source][rank]
        case _:
            return 0


def _brought(cell: Cell, inputs: list[Array], rank: int, without: Collection[int] = ()) -> Any:
    """What an exchange brings to a rank."""
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
    """An exact reduction: a sum of integers, a product, the smallest, the largest, or bit by bit. +0 is larger than -0."""
    match op:
        case "sum":
            return reference.exact_integer_sum(inputs)
        case "product":
            return _product(inputs)
        case "and" | "or" | "xor":
            return np.asarray(reduce(getattr(np, f"bitwise_{op}"), inputs))
        case _:
            return np.asarray(reduce(lambda one, other: np.where(_before(op, other, one), other, one), inputs))


def _product(inputs: list[Array]) -> Array:
    """Of integers that fit, or of floats as float64s in the order of ranks."""
    with np.errstate(over="ignore", under="ignore"):
        if inputs[0].dtype.kind in "iu":
            return np.asarray(reduce(np.multiply, inputs))
        return np.asarray(reduce(np.multiply, [each.astype(np.float64) for each in inputs]).astype(inputs[0].dtype))


def _before(op: str, one: Array, other: Array) -> Array:
    """Where ``one`` is the minimum (maximum) of two; of zeros, by their sign."""
    beyond = np.less if op == "min" else np.greater
    if one.dtype.kind in "iub":
        return np.asarray(beyond(one, other))
    a, b = one.astype(np.float64), other.astype(np.float64)
    return np.asarray(beyond(a, b) | ((a == b) & beyond(-1.0 * np.signbit(a), -1.0 * np.signbit(b))))


def _float_sum(cell: Cell, block_bytes: int, inputs: list[Array], got: Array) -> tuple[Array, list[str]]:
    """The sum (mean) by the documented quantisation, and what is further than the bound from the true one."""
    dtype, mean = cell.kind.dtype, cell.kind.op == "mean"
    block = reference.block_elements(dtype, block_bytes, cell.bits)
    exponents = reference.largest_exponents(inputs, block)
    sums = reference.quantised_sum(inputs, exponents, block, cell.bits)
    expected = reference.to_float(sums, dtype, cell.workers if mean else 1)
    bound = reference.error_bound(sums, cell.workers, dtype, mean=mean, bits=cell.bits)
    if cell.rounding == "stochastic":
        bound = 2 * bound
    return expected, within_bound(inputs, got, bound, mean=mean)
