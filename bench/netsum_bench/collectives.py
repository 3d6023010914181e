# SPDX-License-Identifier: MIT
"""The collectives that are timed: what each rank gives and must get, and how nccl-tests counts their bytes.

``size`` counts as in nccl-tests: the whole array for allreduce, broadcast, reduce and sendrecv, and the parts of all ranks
together for the others. Inputs are small whole numbers, so that every result is known exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
from netsum.communicator import Communicator
from netsum.numeric.fixed_point import Array

REDUCTIONS: Final[Mapping[str, str]] = {"sum": "sum", "min": "min", "max": "max", "avg": "mean"}
"""nccl-tests' names of operations, and ours."""
_COMBINED: Final = {"sum": np.add, "min": np.minimum, "max": np.maximum, "avg": np.add}
_PERIOD: Final = 97
_NOTHING: Final = 101
"""Stands in an array before the result is written to it."""


@dataclass(frozen=True)
class Place:
    """Roles in a call: this ``rank`` of ``ranks``, the operation's root, and the reduction (nccl-tests' name)."""

    rank: int
    ranks: int
    root: int = 0
    redop: str = "sum"


@dataclass(frozen=True)
class Operation:
    """A collective. ``factor``: busbw / algbw, by the number of ranks; ``parts``: the size is that of all ranks' parts."""

    factor: Callable[[int], float]
    reduces: bool = False
    rooted: bool = False
    parts: bool = False


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _one(_ranks: int) -> float:
    return 1.0


OPERATIONS: Final[Mapping[str, Operation]] = {
    "allreduce": Operation(lambda ranks: 2 * _others(ranks), reduces=True),
    "all_gather": Operation(_others, parts=True),
    "reduce_scatter": Operation(_others, reduces=True, parts=True),
    "broadcast": Operation(_one, rooted=True),
    "reduce": Operation(_one, reduces=True, rooted=True),
    "alltoall": Operation(_others, parts=True),
    "gather": Operation(_others, rooted=True, parts=True),
    "scatter": Operation(_others, rooted=True, parts=True),
    "sendrecv": Operation(_one),
}
"""By the name of the command, with the factors of nccl-tests (doc/PERFORMANCE.md and src/*.cu there)."""


def _within(both: Array, size: int, rank: int) -> Array:
    return both if size == len(both) else both[rank * size : (rank + 1) * size]


def _given_and_got(name: str, place: Place, count: int, dtype: np.dtype[Any]) -> tuple[Array, Array | None]:
    """What a rank gives, and what it must get: None if it gets nothing."""
    rank, ranks, root = place.rank, place.ranks, place.root
    whole = count * ranks

    def values(of: int, number: int = count) -> Array:
        return ((np.arange(number) + of) % _PERIOD).astype(dtype)

    def reduced(number: int = count) -> Array:
        total = reduce(_COMBINED[place.redop], ((np.arange(number) + of) % _PERIOD for of in range(ranks)))
        return (total / ranks if place.redop == "avg" else total).astype(dtype)

    match name:
        case "allreduce":
            return values(rank), reduced()
        case "reduce":
            return values(rank), reduced() if rank == root else None
        case "reduce_scatter":
            return values(rank, whole), _within(reduced(whole), count, rank)
        case "broadcast":
            return values(rank), values(root)
        case "all_gather":
            return values(rank), np.concatenate([values(of) for of in range(ranks)])
        case "gather":
            return values(rank), np.concatenate([values(of) for of in range(ranks)]) if rank == root else None
        case "scatter":
            mine = _within(values(root, whole), count, rank)
            return values(root, whole) if rank == root else np.zeros_like(mine), mine
        case "alltoall":
            return values(rank, whole), np.concatenate([_within(values(of, whole), count, rank) for of in range(ranks)])
        case "sendrecv":
            return values(rank), values((rank - 1) % ranks)
    raise ValueError(f"{name!r} is no collective")


class Arrays:
    """Arrays of a call: what a rank gives (``source``) and where it gets the result (``out``, None if it gets none), in place or
    not."""

    def __init__(self, name: str, place: Place, count: int, dtype: str, *, in_place: bool) -> None:
        """``count``: elements of a rank's part, or of the array."""
        self._given, self._expected = given, expected = _given_and_got(name, place, count, np.dtype(dtype))
        self.source = given.copy()
        self.out = None if expected is None else np.empty_like(expected)
        self._in_place = in_place and self.out is not None
        if self._in_place and expected is not None:
            # As nccl-tests does: the smaller one lies in the larger one, where this rank's part is.
            both = np.empty(max(len(given), len(expected)), given.dtype)
            self.source, self.out = (_within(both, len(each), place.rank) for each in (given, expected))

    def prepare(self) -> None:
        """Reset the arrays before each call, so that no earlier result passes for a new one."""
        if self.out is not None:
            self.out[...] = _NOTHING
        if self._in_place:
            self.source[...] = self._given

    def wrong(self) -> int:
        """Elements of the result that are not what they should be."""
        return 0 if self.out is None else int(np.count_nonzero(self.out != self._expected))


def make_call(name: str, place: Place, arrays: Arrays, options: Mapping[str, Any]) -> Callable[[Communicator], object]:
    """One call of an operation; ``options`` are further arguments of an allreduce."""
    x, out, root, op = arrays.source, arrays.out, place.root, REDUCTIONS[place.redop]
    # Each rank sends to the next: the communicator has no send of its own, and this is what goes over the wires for one.
    to_next = np.roll(np.eye(place.ranks, dtype=np.int64), 1, axis=1) * len(x)
    calls: Mapping[str, Callable[[Communicator], object]] = {
        "allreduce": lambda comm: comm.allreduce(x, op, out, **options),
        "all_gather": lambda comm: comm.all_gather(x, out),
        "reduce_scatter": lambda comm: comm.reduce_scatter(x, op, out),
        "broadcast": lambda comm: comm.broadcast(x, root, out),
        "reduce": lambda comm: comm.reduce(x, root, op, out),
        "alltoall": lambda comm: comm.all_to_all(x, out),
        "gather": lambda comm: comm.gather(x, root, out),
        "scatter": lambda comm: comm.scatter(x, root, out),
        "sendrecv": lambda comm: comm.all_to_all(x, out, counts=to_next),
    }
    return calls[name]
