"""Cells of the matrix as data: everything about one follows from a seed, the job's number and the cell's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import ml_dtypes  # noqa: F401 - numpy knows bfloat16 by name from here on
import numpy as np

FLOATS: Final = ("float16", "bfloat16", "float32", "float64")
INTEGERS: Final = tuple(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u"))
DTYPES: Final = (*FLOATS, *INTEGERS, "bool")
TYPES: Final[dict[str, tuple[str, ...]]] = {
    "sum": (*FLOATS, *INTEGERS),
    "mean": FLOATS,
    "min": DTYPES,
    "max": DTYPES,
    "and": (*INTEGERS, "bool"),
    "or": (*INTEGERS, "bool"),
    "xor": (*INTEGERS, "bool"),
}
"""Types by operation."""

REDUCTIONS: Final = ("allreduce", "reduce", "reduce_scatter")
ROWS: Final = ("all_gather", "gather", "scatter", "all_to_all")
"""Exchanges of some rows for each rank."""
COLLECTIVES: Final = (*REDUCTIONS, "broadcast", *ROWS, "barrier")
ROOTED: Final = ("reduce", "broadcast", "gather", "scatter")

SIZES: Final = (0, 1, 63, 64, 65, 1023, 1025, 1_000_000)
LARGE: Final = 100_000
"""Cells above this take most of a run's time: only some of those drawn stay so large."""
WORKERS: Final = tuple(range(1, 10))
LOSSES: Final = (0.0, 0.01)
FILLS: Final = ("normal", "wide", "zeros", "sparse")


class Kind(NamedTuple):
    """What a call is; ``op`` and ``dtype`` are empty where there is none."""

    collective: str
    op: str = ""
    dtype: str = ""


KINDS: Final = (
    *(Kind("allreduce", "product", dtype) for dtype in TYPES["sum"]),
    *(Kind(name, op, dtype) for name in REDUCTIONS for op, types in TYPES.items() for dtype in types),
    *(Kind(name, "", dtype) for name in ("broadcast", *ROWS) for dtype in DTYPES),
    Kind("barrier"),
)


@dataclass(frozen=True)
class Cell:
    """One call. ``size``: elements of the array that all ranks have; of the ranks' rows together; of each rank's (all_to_all).

    ``counts``: rows from rank i (all_gather, gather: ``counts[i][0]``) or to rank j (reduce_scatter, scatter: ``counts[0][j]``)
    or from i to j; ``even``: the caller does not say them. ``bits``, ``rounding``: of an allreduce of floats. ``joined``: begun
    without waiting for the result, together with the cells next to it that say so.
    """

    seed: tuple[int, int, int]
    index: int
    kind: Kind
    workers: int
    size: int
    counts: tuple[tuple[int, ...], ...] = ()
    even: bool = True
    root: int = 0
    fill: str = "normal"
    bits: int | None = None
    rounding: str = "nearest"
    in_place: bool = False
    strided: bool = False
    joined: bool = False

    @property
    def is_sum(self) -> bool:
        """A sum or mean of floats: exact up to the quantisation."""
        return self.kind.op in ("sum", "mean") and self.kind.dtype in FLOATS

    @property
    def packets(self) -> int:
        """Contributions that all ranks send together, about."""
        width = np.dtype(self.kind.dtype).itemsize if self.kind.dtype else 1
        times = self.workers if self.kind.collective == "all_to_all" or self.kind.op == "product" else 1
        return self.workers * (1 + times * (self.size * width // 4096 + len(self.counts)))

    def rows(self, rank: int) -> int:
        """Rows that a rank gives."""
        match self.kind.collective:
            case "all_gather" | "gather":
                return self.counts[rank][0]
            case "scatter":
                return self.size if rank == self.root else self.counts[0][rank]
            case _:
                return self.size

    def describe(self) -> str:
        """The cell in a line, as a person would say it."""
        name, op, dtype = self.kind
        how = [f"root {self.root}"] if name in ROOTED else []
        how += [] if self.even else [f"counts {self.counts}"]
        how += [] if self.bits is None else [f"bits={self.bits}"]
        how += [] if self.rounding == "nearest" else [self.rounding]
        how += [word for word, said in self._said() if said]
        return " ".join(
            word for word in (name, op, f"of {dtype}[{self.size}]" if dtype else "", ", ".join(how)) if word
        )

    def _said(self) -> tuple[tuple[str, bool], ...]:
        return ("in place", self.in_place), ("strided", self.strided), ("async", self.joined)


def make_cells(
    seed: int, job: int, number: int, *, workers: int, sizes: tuple[int, ...] = SIZES, most_packets: int
) -> tuple[Cell, ...]:
    """The cells of one job: kinds are dealt like cards, so that each comes once before one comes again; sizes are drawn,
    those of more than ``most_packets`` again."""
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
    """A cell of that kind and size; the rest is drawn."""
    size = size if kind.dtype else 0
    even, counts = _counts(rng, kind.collective, workers, size)
    compressible = kind.collective == "allreduce" and kind.op in ("sum", "mean") and kind.dtype in FLOATS
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
    """Whether all ranks' rows are equally many, and how many they are: see :class:`Cell`."""
    even = bool(size % workers == 0 and rng.random() < 0.5)
    if name not in (*ROWS, "reduce_scatter"):
        return True, ()

    def parts() -> tuple[int, ...]:
        if even:
            return (size // workers,) * workers
        # Uneven on purpose: some ranks get nothing.
        return tuple(map(int, rng.multinomial(size, rng.dirichlet(np.full(workers, 0.5)))))

    if name == "all_to_all":
        return even, tuple(parts() for _ in range(workers))
    return even, tuple((part,) for part in parts()) if name in ("all_gather", "gather") else (parts(),)
