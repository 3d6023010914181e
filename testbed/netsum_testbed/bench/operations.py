"""The collectives that are timed: what each rank gives and must get, and how nccl-tests counts their bytes.

``size`` counts as in nccl-tests: the whole array for allreduce, broadcast, reduce and sendrecv, and the parts of all ranks
together for the others. Inputs are small whole numbers, so that every result is known exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from netsum.communicator import Communicator
from netsum.fixed_point import Array

REDUCTIONS: Final[Mapping[str, str]] = {"sum": "sum", "min": "min", "max": "max", "avg": "mean"}
"""nccl-tests' names of operations, and ours."""
_COMBINED: Final = {"sum": np.add, "min": np.minimum, "max": np.maximum, "avg": np.add}
_PERIOD: Final = 97
_NOTHING: Final = 101
"""Stands in an array before the result is written to it."""
GivenAndGot = tuple[Array, Array | None]


@dataclass(frozen=True)
class Place:
    """Who takes part: this rank of so many, the operation's root, and the reduction (nccl-tests' name)."""

    rank: int
    ranks: int
    root: int = 0
    redop: str = "sum"


@dataclass(frozen=True)
class Operation:
    """A collective. ``arrays``: what a rank gives, and what it must get. ``parts``: the size is that of all ranks' parts.
    ``factor``: busbw / algbw, by the number of ranks."""

    arrays: Callable[[Place, int, np.dtype[Any]], GivenAndGot]
    factor: Callable[[int], float]
    reduces: bool = False
    rooted: bool = False
    parts: bool = False

    def count(self, elements: int, ranks: int) -> int:
        """The elements of a rank's part, or of the array."""
        return elements // ranks if self.parts else elements

    def elements(self, count: int, ranks: int) -> int:
        """The inverse of :meth:`count`."""
        return count * ranks if self.parts else count


def _within(both: Array, size: int, rank: int) -> Array:
    return both if size == len(both) else both[rank * size : (rank + 1) * size]


def _values(rank: int, count: int, dtype: np.dtype[Any]) -> Array:
    return ((np.arange(count) + rank) % _PERIOD).astype(dtype)


def _reduced(place: Place, count: int, dtype: np.dtype[Any]) -> Array:
    combine = _COMBINED[place.redop]
    total = _values(0, count, np.dtype(np.int64))
    for rank in range(1, place.ranks):
        combine(total, _values(rank, count, total.dtype), out=total)
    return (total / place.ranks if place.redop == "avg" else total).astype(dtype)


def _allreduce(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    return _values(place.rank, count, dtype), _reduced(place, count, dtype)


def _reduce(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    given, reduced = _allreduce(place, count, dtype)
    return given, reduced if place.rank == place.root else None


def _reduce_scatter(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    whole = count * place.ranks
    return _values(place.rank, whole, dtype), _within(_reduced(place, whole, dtype), count, place.rank)


def _broadcast(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    return _values(place.rank, count, dtype), _values(place.root, count, dtype)


def _all_gather(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    everybody = [_values(rank, count, dtype) for rank in range(place.ranks)]
    return everybody[place.rank], np.concatenate(everybody)


def _gather(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    given, gathered = _all_gather(place, count, dtype)
    return given, gathered if place.rank == place.root else None


def _scatter(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    rows = _values(place.root, count * place.ranks, dtype)
    mine = _within(rows, count, place.rank)
    return rows if place.rank == place.root else np.zeros_like(mine), mine


def _alltoall(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    everybody = [_values(rank, count * place.ranks, dtype) for rank in range(place.ranks)]
    return everybody[place.rank], np.concatenate([_within(rows, count, place.rank) for rows in everybody])


def _sendrecv(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    before = (place.rank - 1) % place.ranks
    return _values(place.rank, count, dtype), _values(before, count, dtype)


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _one(_ranks: int) -> float:
    return 1.0


OPERATIONS: Final[Mapping[str, Operation]] = {
    "allreduce": Operation(_allreduce, lambda ranks: 2 * _others(ranks), reduces=True),
    "all_gather": Operation(_all_gather, _others, parts=True),
    "reduce_scatter": Operation(_reduce_scatter, _others, reduces=True, parts=True),
    "broadcast": Operation(_broadcast, _one, rooted=True),
    "reduce": Operation(_reduce, _one, reduces=True, rooted=True),
    "alltoall": Operation(_alltoall, _others, parts=True),
    "gather": Operation(_gather, _others, rooted=True, parts=True),
    "scatter": Operation(_scatter, _others, rooted=True, parts=True),
    "sendrecv": Operation(_sendrecv, _one),
}
"""By the name of the command, with the factors of nccl-tests (doc/PERFORMANCE.md and src/*.cu there)."""


class Arrays:
    """What a rank gives (``source``) and where it gets the result (``out``, None if it gets none), in place or not."""

    def __init__(self, name: str, place: Place, count: int, dtype: str, *, in_place: bool) -> None:
        """``count`` as :meth:`Operation.count` has it."""
        self._given, self._expected = OPERATIONS[name].arrays(place, count, np.dtype(dtype))
        given, expected = self._given, self._expected
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
