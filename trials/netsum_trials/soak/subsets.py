"""Finds whose contributions are in a partial result from the numbers alone, which are chosen so that sums tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations

import numpy as np
from netsum_testbed.verify.data import Array
from numpy.typing import NDArray


def subsets_of(ranks: Sequence[int]) -> list[tuple[int, ...]]:
    """All subsets but the empty one, the largest first."""
    return [chosen for size in range(len(ranks), 0, -1) for chosen in combinations(ranks, size)]


def combined(op: str, inputs: Sequence[Array], chosen: Sequence[int]) -> Array:
    """The call's result if these ranks' inputs are in it; inputs are whole numbers, so that sums are exact."""
    dtype, parts = inputs[0].dtype, [inputs[rank] for rank in chosen]
    if op == "max":
        return np.asarray(reduce(np.maximum, parts))
    wide = np.float64 if dtype.kind == "f" else np.int64
    total = np.sum([part.astype(wide) for part in parts], axis=0)
    result: Array = np.asarray(total / len(chosen) if op == "mean" else total).astype(dtype)
    return result


@dataclass(frozen=True)
class Members:
    """Who can be in each part of a result: ``matches[subset, part]`` for each of ``subsets``. Parts have ``width`` elements (the
    last may have fewer) and lie within a block, so that the same ranks are in all of a part."""

    subsets: list[tuple[int, ...]]
    matches: NDArray[np.bool_]
    width: int

    @property
    def unexplained(self) -> NDArray[np.intp]:
        """Parts that no subset explains."""
        return np.flatnonzero(~self.matches.any(axis=0))

    @property
    def ambiguous(self) -> bool:
        """Whether several subsets explain a part."""
        return bool((self.matches.sum(axis=0) > 1).any())

    def among(self, keep: Sequence[bool]) -> NDArray[np.bool_]:
        """Per part, whether one of the kept subsets explains it."""
        return np.asarray(self.matches[np.array(keep, np.bool_)].any(axis=0))

    def at_least(self, size: int) -> NDArray[np.bool_]:
        """Per part, whether a subset of so many ranks explains it."""
        return self.among([len(subset) >= size for subset in self.subsets])

    def with_rank(self, rank: int) -> NDArray[np.bool_]:
        """Per part, whether a subset with this rank explains it."""
        return self.among([rank in subset for subset in self.subsets])

    def exactly(self, ranks: Sequence[int]) -> NDArray[np.bool_]:
        """Per part, whether these ranks explain it."""
        return self.among([subset == tuple(ranks) for subset in self.subsets])


def members_of(op: str, inputs: Sequence[Array], result: Array, width: int) -> Members:
    """Find who is in a result. Inputs and result have the same shape and dtype, and are compared bit for bit, ``width`` elements
    at a time."""
    subsets = subsets_of(range(len(inputs)))
    flat = [array.reshape(-1) for array in inputs]
    wanted = result.reshape(-1)
    starts = np.arange(0, wanted.size, width)
    if not starts.size:
        return Members(subsets, np.zeros((len(subsets), 0), np.bool_), width)
    same = np.array([_same(combined(op, flat, subset), wanted) for subset in subsets], np.bool_)
    return Members(subsets, np.logical_and.reduceat(same, starts, axis=1), width)


def _same(one: Array, other: Array) -> NDArray[np.bool_]:
    bits = f"u{other.dtype.itemsize}"
    return np.asarray(np.ascontiguousarray(one).view(bits) == np.ascontiguousarray(other).view(bits))
