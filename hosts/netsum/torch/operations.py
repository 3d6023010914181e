"""torch's reductions as netsum's."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch.distributed import ReduceOp

from netsum.errors import UnsupportedError
from netsum.fixed_point import Array

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
