# SPDX-License-Identifier: MIT
"""The meaning of torch's arguments, and which are refused."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed
from torch.distributed import ReduceOp

from netsum.errors import NetsumError, UnsupportedError
from netsum.numeric.fixed_point import Array

# torch's exceptions with netsum's words.


@contextmanager
def as_torch_raises(world: Sequence[int] = ()) -> Iterator[None]:
    """Raise netsum's errors as what callers of torch.distributed expect, a RuntimeError; netsum's own is its ``__cause__``.
    ``world``: the rank in torch's world of each rank that an error may name, if it is another number."""
    try:
        yield
    except (NetsumError, TimeoutError) as error:
        # By these words the users of other backends know a timeout, torchft's tests among them.
        timed_out = "Timed out waiting: " if isinstance(error, TimeoutError) else ""
        raise distributed.DistBackendError(
            f"netsum: {type(error).__name__}: {timed_out}{error}{_in_world(error, world)}"
        ) from error


_MOST_NAMED: Final = 16


def _in_world(error: Exception, world: Sequence[int]) -> str:
    ranks = getattr(error, "missing", ()) or range(len(world))
    if not world or len(ranks) > _MOST_NAMED:
        return ""
    return f"; in the world, {', '.join(f'rank {rank} of this group is rank {world[rank]}' for rank in ranks)}"


# torch's reductions as netsum's.


_REAL: Final = {"PRODUCT": "product", "MIN": "min", "MAX": "max"}
_BITS: Final = {"BAND": "and", "BOR": "or", "BXOR": "xor"}
_COMPLEX: Final = {"SUM": "sum", "AVG": "mean", "PREMUL_SUM": "sum"}
_FLOATS: Final = {**_COMPLEX, **_REAL}
_INTEGERS: Final = {"SUM": "sum", "AVG": "integer_mean", **_REAL, **_BITS}
_BOOLS: Final = {**_REAL, **_BITS, "SUM": "or", "PRODUCT": "and"}
"""A sum of bools is whether any is true, a product whether all are, as ProcessGroupNCCL has it."""
_TYPES: Final = {
    **dict.fromkeys(("complex32", "complex64", "complex128"), _COMPLEX),
    **dict.fromkeys(("float16", "bfloat16", "float32", "float64"), _FLOATS),
    **dict.fromkeys((f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), _INTEGERS),
    "bool": _BOOLS,
}
"""netsum's name of each operation that there is for a type of torch."""


class Operation(NamedTuple):
    """A reduction by netsum's name. Every rank multiplies its elements by ``factor`` first, unless that is None."""

    name: str
    factor: float | None = None

    def prepare(self, array: Array) -> Array:
        """The array to contribute; a new one if it must be multiplied."""
        if self.factor is None:
            return array
        with np.errstate(all="ignore"):  # a product may leave the type's range, or not be a number
            product: Array = (array * self.factor).astype(array.dtype)
        return product


def operation(op: Any, dtype: torch.dtype) -> Operation:
    """The operation of a ReduceOp on tensors of this type. Raises UnsupportedError where it is not defined."""
    kind, factor = ReduceOp(op).__getstate__() if not isinstance(op, ReduceOp) else op.__getstate__()
    names = _TYPES.get(str(dtype).removeprefix("torch."))
    if names is None:
        raise UnsupportedError(f"{dtype} cannot be reduced; convert it first, to torch.float32 for example")
    name = names.get(kind.name)
    if name is None:
        raise UnsupportedError(f"ReduceOp.{kind.name} is not defined for {dtype}, which has {', '.join(names)}")
    return Operation(name, None if factor is None else _number(factor))


def _number(factor: Any) -> float:
    """The factor of a PREMUL_SUM: a number, or a tensor with one, as torch sees to; it must be real."""
    if not isinstance(factor, torch.Tensor):
        return float(factor)
    if factor.is_complex():
        raise UnsupportedError(f"the factor of ReduceOp.PREMUL_SUM must be real, and this is a {factor.dtype}")
    return float(factor.item())


# What the tensors of a call must have in common. What is wrong raises UnsupportedError, before the call begins.


Tensors = Sequence[Tensor]


def check_one_each(parts: Tensors, size: int, collective: str) -> None:
    if len(parts) != size:
        raise UnsupportedError(f"{collective} needs {size} tensors, one for each rank; there are {len(parts)}")


def check_one_type(tensors: Tensors, collective: str) -> None:
    types = dict.fromkeys(str(each.dtype) for each in tensors)
    if len(types) > 1:
        raise UnsupportedError(f"{collective} needs tensors of one type; these are {' and '.join(types)}")


def check_elements(tensors: Tensors, wanted: int, collective: str) -> None:
    """Check that each of the tensors has ``wanted`` elements."""
    for each in tensors:
        if each.numel() != wanted:
            raise UnsupportedError(
                f"{collective} needs a tensor of {wanted} elements in the place of one that has {each.numel()}"
            )


def elements_by_rank(tensor: Tensor, rows: Sequence[int], size: int, which: str) -> list[int]:
    """The number of elements of each rank if the tensor is split along its first axis for each; empty:
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
    """The number of elements that go from rank to rank, from a table in which each rank's row says how many it has for each
    rank, and then how many it expects from each. It is the same on every rank, so that all refuse what does not agree."""
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
