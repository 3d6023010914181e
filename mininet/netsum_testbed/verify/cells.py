# SPDX-License-Identifier: MIT
"""A cell: one call of all ranks, as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from netsum.wire.schema import COMBINING

FLOATS: Final = ("float16", "bfloat16", "float32", "float64")
INTEGERS: Final = tuple(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u"))
DTYPES: Final = (*FLOATS, *INTEGERS, "bool")
_CLASSES: Final = {"floats": FLOATS, "integers": INTEGERS, "bool": ("bool",)}
_OPERATIONS: Final = {op.name.lower(): tuple(dtype for name in op.types.split() for dtype in _CLASSES[name]) for op in COMBINING}
TYPES: Final = {"sum": _OPERATIONS["sum"], "mean": FLOATS, "integer_mean": INTEGERS, **_OPERATIONS}
"""Types by operation; products take the types of sums."""

REDUCTIONS: Final = ("allreduce", "reduce", "reduce_scatter")
ROWS: Final = ("all_gather", "gather", "scatter", "all_to_all")
"""Exchanges of a number of rows for each rank."""
COLLECTIVES: Final = (*REDUCTIONS, "broadcast", *ROWS, "barrier")
ROOTED: Final = ("reduce", "broadcast", "gather", "scatter")

SIZES: Final = (0, 1, 63, 64, 65, 1023, 1025, 1_000_000)
LARGE: Final = 100_000
"""Cells above this take most of a run's time: only some of those drawn stay so large."""
WORKERS: Final = tuple(range(1, 10))
FLOAT_FILLS: Final = ("normal", "wide", "tiny", "zeros", "whole", "sparse", "huge")
INTEGER_FILLS: Final = ("small", "full", "zeros", "sparse")


class CallKind(NamedTuple):
    """The kind of a call; ``op`` and ``dtype`` are empty where there is none."""

    collective: str
    op: str = ""
    dtype: str = ""

    @property
    def is_sum(self) -> bool:
        """A sum or mean of floats: exact up to the quantization."""
        return self.op in ("sum", "mean") and self.dtype in FLOATS


KINDS: Final = (
    *(CallKind("allreduce", "product", dtype) for dtype in TYPES["sum"]),
    *(CallKind(name, op, dtype) for name in REDUCTIONS for op, types in TYPES.items() for dtype in types),
    *(CallKind(name, "", dtype) for name in ("broadcast", *ROWS) for dtype in DTYPES),
    CallKind("barrier"),
)


@dataclass(frozen=True)
class Cell:
    """One call. ``seed``: the run's, the job's number and the cell's. ``size``: elements of the array that all ranks have; of
    the ranks' rows together; of each rank's (all_to_all). ``shape``: of an allreduce's array, if it is not flat.

    ``counts``: rows from rank i (all_gather, gather: ``counts[i][0]``) or to rank j (reduce_scatter, scatter: ``counts[0][j]``)
    or from i to j; ``even``: the caller does not give them. ``bits``, ``rounding``, ``scale``: of an allreduce of floats.
    ``joined``: begun without waiting for the result, together with the cells next to it that say so. ``delays[rank]``: seconds
    that the rank starts late.
    """

    seed: tuple[int, int, int]
    index: int
    kind: CallKind
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
    shape: tuple[int, ...] | None = None
    scale: str = "agreed"
    delays: tuple[float, ...] = ()

    @property
    def form(self) -> tuple[int, ...]:
        """The shape of the array of all ranks."""
        return (self.size,) if self.shape is None else self.shape

    @property
    def packets(self) -> int:
        """The approximate number of contributions that all ranks send."""
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
        """The cell in one line of words."""
        name, op, dtype = self.kind
        how = [f"root {self.root}"] if name in ROOTED else []
        how += [] if self.even else [f"counts {self.counts}"]
        how += [] if self.fill == "normal" else [f"{self.fill} values"]
        how += [] if self.bits is None else [f"bits={self.bits}"]
        how += [] if self.scale == "agreed" else [f"scale={self.scale}"]
        how += [] if self.rounding == "nearest" else [self.rounding]
        flags = ("in place", self.in_place), ("strided", self.strided), ("async", self.joined)
        how += [word for word, said in flags if said]
        array = f"of {dtype}{list(self.form)}" if dtype else ""
        return " ".join(word for word in (name, op, array, ", ".join(how)) if word)


def groups_of(cells: Sequence[Cell], start: int = 0) -> Iterator[range]:
    """Indices of the cells from ``start`` on that run together: neighbors that are ``joined``, or one alone."""
    while start < len(cells):
        stop = start + 1
        while cells[start].joined and stop < len(cells) and cells[stop].joined:
            stop += 1
        yield range(start, stop)
        start = stop
