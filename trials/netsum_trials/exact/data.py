"""What the ranks of a cell give: from the seed, the same each time."""

from __future__ import annotations

import numpy as np
from netsum_testbed.verify.data import Array

from netsum_trials.exact.cells import FLOATS, REDUCTIONS, Cell


def contribution(cell: Cell, rank: int) -> Array:
    """What ``rank`` gives: flat, not contiguous if the cell is ``strided``. Sums fit the type."""
    rng = np.random.default_rng([*cell.seed, rank])
    values = _values(rng, cell, cell.rows(rank), rank)
    if not cell.strided:
        return values
    wide = np.zeros(3 * len(values), values.dtype)
    wide[1::3] = values
    return wide[1::3]


def _values(rng: np.random.Generator, cell: Cell, count: int, rank: int) -> Array:
    dtype = np.dtype(cell.kind.dtype)
    if dtype == np.bool_:
        return rng.random(count) < 0.5
    if cell.kind.collective not in REDUCTIONS:  # any bits: NaN with payloads too
        return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).copy()
    if cell.kind.dtype in FLOATS:
        return _floats(rng, cell, count, rank).astype(dtype)
    return _integers(rng, cell, count, rank)


def _filled(rng: np.random.Generator, cell: Cell, values: Array, rank: int) -> Array:
    """Values with nothing in most places, and nothing at all from some ranks, if the cell is like that."""
    if cell.fill == "zeros":
        return np.asarray(values * values.dtype.type(0))
    if cell.fill == "sparse":
        return np.asarray(values * (rng.random(len(values)) < 0.001) * values.dtype.type(rank % 2))
    return values


def _floats(rng: np.random.Generator, cell: Cell, count: int, rank: int) -> Array:
    values = rng.standard_normal(count)
    if cell.fill == "wide":  # exponents that differ much from element to element and from rank to rank
        span = 5 if cell.kind.dtype == "float16" else 30
        values = values * np.exp2(rng.integers(-span, span, count)) * 2.0 ** (rank % 3)
    return _filled(rng, cell, values, rank)


def _integers(rng: np.random.Generator, cell: Cell, count: int, rank: int) -> Array:
    info = np.iinfo(cell.kind.dtype)
    low, high = int(info.min), int(info.max)
    if cell.kind.op == "sum":
        low, high = -(-low // cell.workers), high // cell.workers
        largest = (2**64 - 1) // (2 * cell.workers)  # lanes are symmetric, and none is wider than 64 bits
        low, high = max(low, -largest), min(high, largest)
    if cell.kind.op == "product":
        high = int(high ** (1 / cell.workers)) - (cell.workers == 1)
        low = max(low, -high)
    values = rng.integers(low, high, count, np.dtype(cell.kind.dtype), endpoint=True)
    return values if cell.kind.op == "and" else _filled(rng, cell, values, rank)
