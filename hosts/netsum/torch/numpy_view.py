# SPDX-License-Identifier: MIT
"""Tensors as numpy arrays that share their memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from netsum.errors import CallError, UnsupportedError
from netsum.numeric.fixed_point import Array

_KNOWN: Final = frozenset(
    getattr(torch, name)
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
    if hasattr(torch, name)
)
"""Types that numpy has too."""
_ALIKE: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The type, by its bytes, that carries the elements of one that numpy lacks."""


class Lent(NamedTuple):
    """A tensor's elements as a flat array. ``give_back()`` writes what is in the array into the tensor; it does nothing where
    they share memory. ``copied``: bytes that are copied there and back."""

    array: Array
    give_back: Callable[[], None]
    copied: int = 0


def lend(tensor: Tensor, *, values: bool = False) -> Lent:
    """The array of a tensor: without a copy if it is dense, contiguous and on the CPU.

    Types that numpy lacks are lent as records of an integer of the same width, which has the type's name: so ranks whose types
    differ are told so. But if ``values`` are to be computed with, bfloat16 is ml_dtypes', a complex number is two floats, and all
    others raise UnsupportedError.
    """
    if tensor.layout is not torch.strided:
        raise UnsupportedError(f"the tensor's layout is {tensor.layout}; give a dense one, such as tensor.to_dense()")
    given = tensor.detach()
    if given.device.type == "cpu" and given.is_contiguous() and not given.is_conj() and not given.is_neg():
        return Lent(_array(given.view(-1), values), _nothing)
    staging = torch.empty(given.shape, dtype=given.dtype, device="cpu", pin_memory=given.device.type == "cuda")
    staging.copy_(given)
    return Lent(_array(staging.view(-1), values), _returning(given, staging), 2 * staging.nbytes)


After = Callable[[list[Any]], None]
"""The places of the results of calls."""


def giving_back(lent: Sequence[Lent]) -> After:
    """The results are in the arrays; put them into the tensors that do not share memory with them."""

    def after(_: list[Any]) -> None:
        for each in lent:
            each.give_back()

    return after


def filling(outputs: Sequence[Sequence[Tensor]]) -> After:
    """Copies each result into a list of tensors, one after the other."""

    def after(results: list[Any]) -> None:
        for result, parts in zip(results, outputs, strict=False):  # only the root has a list to gather into
            if result.size != sum(part.numel() for part in parts):
                raise CallError("the result lacks the tensors of a rank that was evicted")
            start = 0
            for part in parts:
                own = lend(part)
                own.array[...] = result[start : start + own.array.size]
                own.give_back()
                start += own.array.size

    return after


def shapes_of(tensors: Iterable[Tensor]) -> Iterator[str]:
    """The type and shape of each tensor, as the ranks compare them where several tensors travel together."""
    return (f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}" for tensor in tensors)


def _nothing() -> None:
    pass


def _returning(tensor: Tensor, staging: Tensor) -> Callable[[], None]:
    """Copies ``staging`` into the tensor, on the stream that is current now: the copy may run on another thread."""
    if tensor.device.type != "cuda":
        return lambda: _copy(tensor, staging)
    stream = torch.cuda.current_stream(tensor.device)

    def give_back() -> None:
        with torch.cuda.stream(stream):
            _copy(tensor, staging)

    return give_back


def _copy(tensor: Tensor, staging: Tensor) -> None:
    with torch.no_grad():
        tensor.copy_(staging)


def _array(flat: Tensor, values: bool) -> Array:
    array: Array
    if values and flat.is_complex():
        flat = torch.view_as_real(flat).view(-1)
    if flat.dtype in _KNOWN:
        array = flat.numpy()
        return array
    if not values:
        array = flat.view(_ALIKE[flat.element_size()]).numpy()
        return array.view(np.dtype([(str(flat.dtype), array.dtype)]))
    if flat.dtype != torch.bfloat16:
        raise UnsupportedError(f"{flat.dtype} cannot be reduced; convert it first, to torch.float32 for example")
    array = flat.view(torch.int16).numpy().view(_bfloat16())
    return array


def _bfloat16() -> Any:
    try:
        import ml_dtypes  # noqa: PLC0415  only bfloat16 needs it
    except ImportError:
        raise UnsupportedError("sums of bfloat16 need the package ml_dtypes: pip install ml_dtypes") from None
    return ml_dtypes.bfloat16
