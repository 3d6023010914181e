"""What the tensors of a call must have in common. What is wrong raises UnsupportedError, before the call begins."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from netsum.errors import UnsupportedError
from netsum.fixed_point import Array

Tensors = Sequence[Tensor]


def check_one_each(parts: Tensors, size: int, collective: str) -> None:
    if len(parts) != size:
        raise UnsupportedError(f"{collective} needs {size} tensors, one for each rank; there are {len(parts)}")


def check_one_type(tensors: Tensors, collective: str) -> None:
    types = dict.fromkeys(str(each.dtype) for each in tensors)
    if len(types) > 1:
        raise UnsupportedError(f"{collective} needs tensors of one type; these are {' and '.join(types)}")


def check_elements(tensors: Tensors, wanted: int, collective: str) -> None:
    """Each of the tensors must have so many elements."""
    for each in tensors:
        if each.numel() != wanted:
            raise UnsupportedError(
                f"{collective} needs a tensor of {wanted} elements in the place of one that has {each.numel()}"
            )


def elements_by_rank(tensor: Tensor, rows: Sequence[int], size: int, which: str) -> list[int]:
    """How many of the elements each rank has if the tensor is split into so many ``rows`` along its first axis for each; empty:
    into equal parts."""
    there, row = (tensor.shape[0], math.prod(tensor.shape[1:])) if tensor.dim() else (1, 1)
    if not rows:
        if there % size:
            raise UnsupportedError(
                f"the {which} of all_to_all has {there} rows, which {size} ranks cannot share equally: give its split sizes"
            )
        rows = [there // size] * size
    if len(rows) != size or min(rows) < 0 or sum(rows) != there:
        raise UnsupportedError(
            f"the {which} of all_to_all has {there} rows, and its split sizes are {list(rows)}: they must be {size} numbers, one "
            "for each rank, that add up to the rows"
        )
    return [each * row for each in rows]


def agreed_counts(table: Array) -> Array:
    """How many elements go from rank to rank, from a table in which each rank's row says how many it has for each rank, and then
    how many it expects from each. It is the same on every rank, so that all refuse what does not agree."""
    sent, expected = np.hsplit(table, 2)
    for source, dest in np.argwhere(sent != expected.T).tolist():
        raise UnsupportedError(
            f"rank {source} has {sent[source, dest]} elements for rank {dest}, which expects {expected[dest, source]} of it: the "
            "sizes of inputs and outputs of all_to_all must agree"
        )
    return sent


def check_same_counts(table: Array) -> None:
    """Each rank's row of a table says how many elements each rank gets; all rows must be the same."""
    for rank in np.flatnonzero((table != table[0]).any(axis=1)).tolist():
        raise UnsupportedError(
            f"rank {rank} scatters {table[rank].tolist()} elements to the ranks, and rank 0 {table[0].tolist()}: the sizes must "
            "be the same on all ranks"
        )
