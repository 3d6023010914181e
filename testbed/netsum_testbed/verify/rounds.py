"""Random allreduce calls: everything about one follows from a seed, the round's number and the call's.

A *round* is one job: its workers, window and block size, and the calls that its members make one after the other (a
call with predicted scales depends on the calls before it, so a round is the unit that can be replayed).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from netsum_testbed.verify.cells import FLOAT_FILLS, INTEGER_FILLS, Cell, Kind

MAX_ELEMENTS: Final = 1 << 20
MAX_WORKERS: Final = 8

# A seed keeps its rounds, so types that came later are only in the matrix.
FLOATS: Final = ("float16", "float32", "float64")
DTYPES: Final = (*FLOATS, "int8", "int16", "int32", "int64")

_EDGES: Final = (0, 1, 2, 3, 63, 64, 65, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2049, 4095, 4097, 1 << 20)
# Most calls are small, so that a run has many of them; a few have the maximum size.
_SIZE_CLASSES: Final = ((0.55, 12), (0.30, 15), (0.10, 18), (0.05, 20))
_LARGE: Final = 1 << 16


@dataclass(frozen=True)
class Round:
    """One job and its calls. ``window`` in blocks, ``chunks`` of 256 bytes a block."""

    seed: int
    index: int
    workers: int
    window: int
    chunks: int
    calls: tuple[Cell, ...]


def make_round(
    seed: int,
    index: int,
    *,
    calls: int,
    workers: tuple[int, ...] = tuple(range(1, MAX_WORKERS + 1)),
    max_elements: int = MAX_ELEMENTS,
) -> Round:
    """Round ``index`` of the run with that seed: it has ``calls`` calls, and its number of workers is drawn from ``workers``."""
    rng = np.random.default_rng([seed, index])
    count = int(rng.choice(workers))
    chunks = int(rng.choice([1, 2, 4, 5, 8, 16, 16, 16, 16]))
    window = int(rng.choice([1, 2, 7, 16, 32, 64, 64, 64, 128]))
    # Small blocks and windows need many round trips, so they get small arrays.
    limit = min(max_elements, MAX_ELEMENTS * chunks * min(window, 16) // 256)
    made = tuple(_make_call((seed, index, number), count, limit) for number in range(calls))
    return Round(seed, index, count, window, chunks, made)


def _make_call(seed: tuple[int, int, int], workers: int, limit: int) -> Cell:
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice(DTYPES))
    floating = dtype in FLOATS
    op = str(rng.choice(["sum", "mean", "max"] if floating else ["sum", "sum", "max"]))
    elements = _draw_elements(rng, limit)
    if elements > _LARGE and not _worth_it(rng, elements):
        elements = _LARGE
    late = rng.random(workers) < 0.15
    return Cell(
        seed=seed,
        index=seed[2],
        kind=Kind("allreduce", op, dtype),
        workers=workers,
        size=elements,
        shape=_draw_shape(rng, elements),
        fill=str(rng.choice(FLOAT_FILLS if floating else INTEGER_FILLS)),
        scale="predicted" if floating and op != "max" and rng.random() < 0.4 else "agreed",
        in_place=bool(rng.random() < 0.3),
        strided=bool(rng.random() < 0.15),
        joined=bool(rng.random() < 0.2),
        delays=tuple(float(delay) for delay in np.where(late, rng.uniform(0, 0.01, workers), 0.0)),
    )


def _worth_it(rng: np.random.Generator, elements: int) -> bool:
    """Large arrays take most of a run's time, so only some of them stay large."""
    return bool(rng.random() < 4 * _LARGE / elements)


def _draw_elements(rng: np.random.Generator, limit: int) -> int:
    if rng.random() < 0.25:
        return min(int(rng.choice(_EDGES)), limit)
    weights = [weight for weight, _ in _SIZE_CLASSES]
    bits = _SIZE_CLASSES[int(rng.choice(len(weights), p=weights))][1]
    return min(int(2 ** rng.uniform(0, bits)), limit)


def _draw_shape(rng: np.random.Generator, elements: int) -> tuple[int, ...]:
    """A shape with that many elements and zero to three dimensions."""
    if elements == 1 and rng.random() < 0.5:
        return ()
    if elements == 0:
        return ((0,), (3, 0), (0, 5, 2))[int(rng.integers(3))]
    shape = [elements]
    for _ in range(int(rng.integers(3))):
        divisors = [d for d in (2, 3, 5, 7, 8) if shape[-1] % d == 0 and shape[-1] > d]
        if divisors:
            shape[-1:] = [int(rng.choice(divisors)), shape[-1]]
            shape[-1] //= shape[-2]
    return tuple(shape)
