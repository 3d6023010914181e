"""Deals cells like cards; everything about one follows from a seed, the job's number and the cell's."""

from __future__ import annotations

import ml_dtypes  # noqa: F401 - numpy knows bfloat16 by name from here on
import numpy as np
from netsum_testbed.verify.cells import KINDS, LARGE, ROOTED, ROWS, SIZES, Cell, Kind

LOSSES = (0.0, 0.01)
FILLS = ("normal", "wide", "zeros", "sparse")


def make_cells(
    seed: int, job: int, number: int, *, workers: int, sizes: tuple[int, ...] = SIZES, most_packets: int
) -> tuple[Cell, ...]:
    """The cells of one job. Each kind comes once before any comes again. Sizes are drawn, and drawn again if the cell would take
    more than ``most_packets`` packets."""
    return tuple(_make_cell(seed, job, index, number, workers, sizes, most_packets) for index in range(number))


def _make_cell(
    seed: int, job: int, index: int, number: int, workers: int, sizes: tuple[int, ...], most_packets: int
) -> Cell:
    deal, card = divmod(job * number + index, len(KINDS))
    kind = KINDS[int(np.random.default_rng([seed, deal]).permutation(len(KINDS))[card])]
    rng = np.random.default_rng([seed, job, index])
    while True:
        cell = make_cell(rng, (seed, job, index), kind, workers, int(rng.choice(sizes)))
        if cell.packets <= most_packets and (cell.size < LARGE or rng.random() < 0.3):
            return cell


def make_cell(rng: np.random.Generator, seed: tuple[int, int, int], kind: Kind, workers: int, size: int) -> Cell:
    """A cell of that kind and size, with everything else drawn."""
    size = size if kind.dtype else 0
    even, counts = _counts(rng, kind.collective, workers, size)
    compressible = kind.collective == "allreduce" and kind.is_sum
    return Cell(
        seed=seed,
        index=seed[2],
        kind=kind,
        workers=workers,
        size=size,
        counts=counts,
        even=even,
        root=int(rng.integers(workers)) if kind.collective in ROOTED else 0,
        fill=str(rng.choice(FILLS)),
        bits=(8, 16)[int(rng.integers(2))] if compressible and rng.random() < 0.3 else None,
        rounding="stochastic" if compressible and rng.random() < 0.15 else "nearest",
        in_place=bool(rng.random() < 0.3),
        strided=bool(rng.random() < 0.2),
        joined=bool(rng.random() < 0.3),
    )


def _counts(rng: np.random.Generator, name: str, workers: int, size: int) -> tuple[bool, tuple[tuple[int, ...], ...]]:
    """Whether all ranks have equally many rows, and how many each has: see :class:`Cell`."""
    even = bool(size % workers == 0 and rng.random() < 0.5)
    if name not in (*ROWS, "reduce_scatter"):
        return True, ()

    def parts() -> tuple[int, ...]:
        if even:
            return (size // workers,) * workers
        # So uneven that some ranks get nothing.
        return tuple(map(int, rng.multinomial(size, rng.dirichlet(np.full(workers, 0.5)))))

    if name == "all_to_all":
        return even, tuple(parts() for _ in range(workers))
    return even, tuple((part,) for part in parts()) if name in ("all_gather", "gather") else (parts(),)
