"""torch's reductions as netsum's."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
from torch.distributed import ReduceOp

from netsum.errors import Unsupported
from netsum.fixed_point import Array

_NAMES: Final = {
    "SUM": "sum",
    "AVG": "mean",
    "PRODUCT": "product",
    "MIN": "min",
    "MAX": "max",
    "BAND": "and",
    "BOR": "or",
    "BXOR": "xor",
    "PREMUL_SUM": "sum",
}
_OF_BOOLS: Final = {"sum": "or", "product": "and"}
"""Sums and products of bools as torch computes them: whether any, or whether all are true."""


class Operation(NamedTuple):
    """A reduction by netsum's name. Every rank multiplies its elements by ``factor`` first, unless that is None."""

    name: str
    factor: Any = None

    def prepare(self, array: Array) -> Array:
        """The array to contribute; a new one if it must be multiplied."""
        if self.factor is None:
            return array
        factor = self.factor.cpu().numpy() if isinstance(self.factor, torch.Tensor) else self.factor
        product: Array = (array * factor).astype(array.dtype)
        return product


def operation(op: Any, dtype: torch.dtype) -> Operation:
    """The operation of a ReduceOp on tensors of this type. Raises Unsupported for one that netsum does not know."""
    kind, factor = ReduceOp(op).__getstate__() if not isinstance(op, ReduceOp) else op.__getstate__()
    name = _NAMES.get(kind.name)
    if name is None:
        raise Unsupported(f"ReduceOp.{kind.name} is not one of {', '.join(_NAMES)}")
    if dtype == torch.bool:
        name = _OF_BOOLS.get(name, name)
    return Operation(name, factor)
