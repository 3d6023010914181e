# SPDX-License-Identifier: MIT
"""The input of a cell's ranks, which follows from the seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from netsum.communicator import Communicator
from netsum.report import Report
from numpy.typing import NDArray

from netsum_testbed.verify.cells import FLOATS, REDUCTIONS, ROOTED, Cell

Array = NDArray[Any]


def contribution(cell: Cell, rank: int) -> Array:
    """The input of ``rank``. Sums fit the type."""
    rng = np.random.default_rng([*cell.seed, rank])
    return lay_out(cell, _values(rng, cell, cell.rows(rank), rank))


def lay_out(cell: Cell, flat: Array) -> Array:
    """Values in the cell's shape; not contiguous in memory if the cell is ``strided``."""
    shape = flat.shape if cell.shape is None else cell.shape
    if not cell.strided:
        return flat.reshape(shape)
    if len(shape) > 1:  # a view with the axes reversed
        array = np.empty(shape[::-1], flat.dtype).transpose()
        array[...] = flat.reshape(shape)
        return array
    wide = np.zeros(3 * flat.size, flat.dtype)
    wide[1::3] = flat
    return wide[1::3].reshape(shape)


def _values(rng: np.random.Generator, cell: Cell, count: int, rank: int) -> Array:
    dtype = np.dtype(cell.kind.dtype)
    if dtype == np.bool_:
        return rng.random(count) < 0.5
    if cell.kind.collective not in REDUCTIONS:  # any bits, including NaNs with payloads
        return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).copy()
    if cell.kind.dtype in FLOATS:
        return _floats(rng, cell, count, rank).astype(dtype)
    return _integers(rng, cell, count, rank)


def _sparse(rng: np.random.Generator, values: Array, rank: int) -> Array:
    """Zero in most places, and all zero on some ranks."""
    return np.asarray(values * (rng.random(len(values)) < 0.001) * values.dtype.type(rank % 2))


def _floats(rng: np.random.Generator, cell: Cell, count: int, rank: int) -> Array:
    values = rng.standard_normal(count)
    match cell.fill:
        case "wide":  # exponents that differ much from element to element and from rank to rank
            span = 6 if cell.kind.dtype == "float16" else 30
            return np.asarray(values * np.exp2(rng.integers(-span, span // 2, count)) * 2.0 ** (rank % 3))
        case "tiny":  # around the smallest normal number, including denormals
            return values * float(np.finfo(cell.kind.dtype).smallest_normal)
        case "zeros":  # of both signs
            return np.copysign(0.0, values)
        case "whole":
            return np.rint(values * 100.0)
        case "sparse":
            return _sparse(rng, values, rank)
        case "huge":  # the sum of all ranks is just below the largest number
            return rng.uniform(-1.0, 1.0, count) * (float(np.finfo(cell.kind.dtype).max) / (2 * cell.workers))
    return values


def _integers(rng: np.random.Generator, cell: Cell, count: int, rank: int) -> Array:
    info = np.iinfo(cell.kind.dtype)
    low, high = int(info.min), int(info.max)
    if cell.kind.op == "sum":
        low, high = -(-low // cell.workers), high // cell.workers
    if cell.kind.op in ("sum", "integer_mean"):
        largest = (2**64 - 1) // (2 * cell.workers)  # lanes are symmetric, and none is wider than 64 bits
        low, high = max(low, -largest), min(high, largest)
    if cell.kind.op == "product":
        high = int(high ** (1 / cell.workers)) - (cell.workers == 1)
        low = max(low, -high)
    if cell.fill == "small":
        low, high = max(low, -10), min(high, 10)
    values = rng.integers(low, high, count, np.dtype(cell.kind.dtype), endpoint=True)
    if cell.kind.op == "and":
        return values  # of zeros it would be zero
    if cell.fill == "zeros":
        return np.zeros_like(values)
    return _sparse(rng, values, rank) if cell.fill == "sparse" else values


# Makes one rank's part of a cell.


CALL_TIMEOUT: Final = 600.0
"""Seconds until a call gives up: no fault of this run takes that long."""


def start(
    comm: Communicator, cell: Cell, timeout: float = CALL_TIMEOUT, *, given: Array | None = None, **more: Any
) -> Callable[[], tuple[Any, Report]]:
    """Begin one rank's part of a cell; the function returned waits for its result, and returns it with the call's report.

    ``given``: the rank's array, if it is not the cell's own; ``more``: further arguments of the call.
    """
    rank, (name, op, _) = comm.rank, cell.kind
    if given is None and name != "barrier":
        given = contribution(cell, rank)
    options: dict[str, Any] = more if given is None else _options(cell, rank, given) | more
    if op:
        options["op"] = op
    before = None if given is None else given.tobytes()
    make = getattr(comm, f"{name}_async" if cell.joined else name)
    made = make(*([] if given is None else [given]), timeout=timeout, **options)
    report = made.report if cell.joined else comm.report

    def result() -> tuple[Any, Report]:
        got = made.wait() if cell.joined else made
        if got is not None and options.get("out") is not None and got is not options["out"]:
            raise AssertionError("a call with out= returned another array")
        if given is not None and options.get("out") is not given and given.tobytes() != before:
            raise AssertionError("the input was changed")
        return (None if got is None else np.asarray(got)), report

    return result


def _options(cell: Cell, rank: int, given: Array) -> dict[str, Any]:
    name = cell.kind.collective
    options: dict[str, Any] = {}
    if name in ROOTED:
        options["root"] = cell.root
    if not cell.even:
        options["counts"] = _counts(cell)
    if cell.bits is not None:
        options["bits"] = cell.bits
    if cell.rounding != "nearest":
        options["rounding"] = cell.rounding
    if cell.scale != "agreed":
        options["scale"] = cell.scale
    if cell.in_place:
        # The input itself if the result has its shape, else a new array.
        shape = result_shape(cell, rank)
        options["out"] = given if shape == given.shape else np.empty(shape or 0, given.dtype)
    return options


def _counts(cell: Cell) -> Any:
    match cell.kind.collective:
        case "all_to_all":
            return cell.counts
        case "all_gather" | "gather":
            return [count for (count,) in cell.counts]
        case _:
            return cell.counts[0]


def result_shape(cell: Cell, rank: int) -> tuple[int, ...] | None:
    """The shape of a rank's result; None: no array."""
    match cell.kind.collective:
        case "barrier":
            return None
        case "reduce" | "gather" if rank != cell.root:
            return None
        case "reduce_scatter" | "scatter":
            return (cell.counts[0][rank],)
        case "all_to_all":
            return (sum(row[rank] for row in cell.counts),)
        case _:
            return cell.form
