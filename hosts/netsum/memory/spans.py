# SPDX-License-Identifier: MIT
"""The selection of an index of an array, as spans of neighboring elements; and how spans are cut into instructions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsum.errors import UnsupportedError

Index = Any
"""An int, a slice, an ellipsis, an array of ints (for the first axis), or a tuple of these."""


@dataclass(frozen=True)
class Spans:
    """``length`` elements from each of ``starts`` on make up an array of this shape."""

    starts: NDArray[np.int64]
    length: int
    shape: tuple[int, ...]

    def singly(self) -> Spans:
        """The same, an element a span."""
        if self.length == 1:
            return self
        return Spans(np.add.outer(self.starts, np.arange(self.length)).reshape(-1), 1, self.shape)


_Axis = range | NDArray[np.int64]
"""The selected elements of an axis."""


def spans(index: Index, shape: tuple[int, ...]) -> Spans:
    """The selection of an index. Raises :class:`IndexError` as numpy does, :class:`UnsupportedError` for what this cannot."""
    axes, result = _axes(index, shape)
    if not all(result):
        return Spans(np.zeros(0, np.int64), 0, result)
    block, axis = 1, len(shape)
    while axis and isinstance(whole := axes[axis - 1], range) and whole == range(shape[axis - 1]):
        axis -= 1
        block *= shape[axis]
    stride, first = block, 0
    if axis and isinstance(inner := axes[axis - 1], range) and inner.step == 1:
        axis -= 1
        first = inner.start * stride
        block *= len(inner)
        stride *= shape[axis]
    starts = np.array([first], np.int64)
    for at in range(axis - 1, -1, -1):
        starts = np.add.outer(np.asarray(axes[at], np.int64) * stride, starts).reshape(-1)
        stride *= shape[at]
    return Spans(starts, block, result)


def _axes(index: Index, shape: tuple[int, ...]) -> tuple[list[_Axis], tuple[int, ...]]:
    """The elements that are selected on each axis, and the shape of all that."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if (dots := [at for at, part in enumerate(parts) if part is Ellipsis]) and len(dots) == 1:
        parts[dots[0] : dots[0] + 1] = [slice(None)] * (len(shape) - len(parts) + 1)
    parts += [slice(None)] * (len(shape) - len(parts))
    if len(parts) > len(shape) or len(dots) > 1:
        raise IndexError(f"{index!r} has too many indices for an array of shape {shape}")
    axes: list[_Axis] = []
    result: list[int] = []
    for axis, (part, length) in enumerate(zip(parts, shape, strict=True)):
        if isinstance(part, slice):
            chosen = range(*part.indices(length))
            axes.append(range(chosen.start, chosen.start + 1) if len(chosen) == 1 else chosen)
            result.append(len(chosen))
        elif type(part) is int:
            _check(part, part, axis, length)
            axes.append(range(part % length, part % length + 1))
        else:
            axes.append(_listed(part, axis, length))
            result += np.shape(part)
    return axes, tuple(result)


def _listed(part: Any, axis: int, length: int) -> NDArray[np.int64]:
    """An array of ints, or something like an int."""
    wanted = np.asarray(part)
    if not wanted.size:
        wanted = wanted.astype(np.int64)
    if wanted.dtype.kind not in "iu" or (wanted.ndim and (axis or wanted.ndim > 1)):
        raise UnsupportedError(f"{part!r} on axis {axis}: a region takes ints and slices, and on its first axis a list of ints")
    if wanted.size:
        _check(int(wanted.min()), int(wanted.max()), axis, length)
    return np.where(wanted < 0, wanted + length, wanted).astype(np.int64).reshape(-1)


def _check(low: int, high: int, axis: int, length: int) -> None:
    if not -length <= low <= high < length:
        wrong = low if low < -length else high
        raise IndexError(f"index {wrong} is out of bounds for axis {axis} with size {length}")


@dataclass(frozen=True)
class Cut:
    """Instructions about ``length`` bytes at each of ``addresses``; row i is the bytes from ``offsets[i]`` on of what is sent or
    received. ``straight``: the rows follow each other there."""

    addresses: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    length: int

    @property
    def straight(self) -> bool:
        return len(self.offsets) == 1 or bool((np.diff(self.offsets) == self.length).all())


def cut(addresses: NDArray[np.uint64], length: int, piece: int) -> list[Cut]:
    """Spans of ``length`` bytes each, cut so that nothing crosses a multiple of ``piece`` (a power of two)."""
    if len(addresses) == 1:
        return _cut_one(int(addresses[0]), 0, length, piece)
    offsets = np.arange(len(addresses), dtype=np.int64) * length
    within = (addresses & np.uint64(piece - 1)).astype(np.int64)
    crossing = within + length > piece
    cuts = []
    if not crossing.all():
        cuts.append(Cut(addresses[~crossing], offsets[~crossing], length))
    for at in np.flatnonzero(crossing):
        cuts += _cut_one(int(addresses[at]), int(offsets[at]), length, piece)
    return cuts


def _cut_one(address: int, offset: int, length: int, piece: int) -> list[Cut]:
    if address % piece + length <= piece:
        return [Cut(np.array([address], np.uint64), np.array([offset], np.int64), length)]
    head = -address % piece
    number, tail = divmod(length - head, piece)
    parts = [(address, 1, head), (address + head, number, piece), (address + length - tail, 1, tail)]
    return [
        Cut(_steps(start, many, size), offset + np.arange(many, dtype=np.int64) * size + (start - address), size)
        for start, many, size in parts
        if many and size
    ]


def _steps(start: int, number: int, step: int) -> NDArray[np.uint64]:
    return np.uint64(start) + np.arange(number, dtype=np.uint64) * np.uint64(step)


def cut_pair(to: int, source: int, length: int, piece: int) -> list[tuple[Cut, NDArray[np.uint64]]]:
    """A span that is copied, cut so that neither end crosses a multiple of ``piece``; with the addresses of the sources."""
    by_size: dict[int, list[int]] = {}
    at = 0
    while at < length:
        size = min(piece - (to + at) % piece, piece - (source + at) % piece, length - at)
        by_size.setdefault(size, []).append(at)
        at += size
    return [
        (Cut(_shifted(to, offsets), np.array(offsets, np.int64), size), _shifted(source, offsets))
        for size, offsets in by_size.items()
    ]


def _shifted(start: int, offsets: Sequence[int]) -> NDArray[np.uint64]:
    return np.uint64(start) + np.array(offsets, np.uint64)
