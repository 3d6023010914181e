# SPDX-License-Identifier: MIT
"""Flat memory that compiled code and the control plane share."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from typing import overload

_LARGE = 1 << 16
_SEVERAL = 256  # pieces


class Memory:
    """Zeros at first. A large one takes room only where something was written."""

    def __init__(self, size: int) -> None:
        self.size = max(8, size)
        self.data: bytearray | mmap.mmap = bytearray(self.size) if size < _LARGE else mmap.mmap(-1, self.size)
        self._view = (ctypes.c_char * self.size).from_buffer(self.data)
        self.address = ctypes.addressof(self._view)

    def number(self, at: int, size: int = 8) -> int:
        return int.from_bytes(self.data[at : at + size], "little")

    def set_number(self, at: int, value: int, size: int = 8) -> None:
        self.data[at : at + size] = value.to_bytes(size, "little")


class Staged:
    """Memory that is written aside, in `data`, and takes effect when it is put in place, in one step."""

    def __init__(self, size: int, old: bytes | bytearray = b"") -> None:
        """`old`: what it begins with."""
        self.data = bytearray(size)
        self.data[: len(old)] = old
        self._live = Memory(len(self.data))
        self._written = [(0, len(old))]

    @property
    def address(self) -> int:
        """The address of what is in place."""
        return self._live.address

    def number(self, at: int) -> int:
        return int.from_bytes(self.data[at : at + 8], "little")

    def write(self, at: int, data: bytes) -> None:
        self.data[at : at + len(data)] = data
        self._written.append((at, len(data)))

    def set_number(self, at: int, value: int, size: int = 8) -> None:
        self.write(at, value.to_bytes(size, "little"))

    def put(self) -> None:
        """Put in place what was written."""
        if len(self._written) > _SEVERAL:  # one long copy is faster than many short ones
            self._written = [(0, len(self.data))]
        for at, size in self._written:
            self._live.data[at : at + size] = self.data[at : at + size]
        self._written = []


class Cells(MutableSequence[int]):
    """Integers at equal distances. As many as there are: none can be added or taken away."""

    def __init__(self, memory: Memory, count: int, stride: int, size: int, start: int = 0) -> None:
        self._memory = memory
        self._count = count
        self._stride = stride
        self._size = size
        self._start = start

    def __len__(self) -> int:
        return self._count

    def _at(self, index: int | slice) -> int:
        if isinstance(index, slice) or not 0 <= index < self._count:
            raise IndexError(index)
        return self._start + index * self._stride

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> MutableSequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | MutableSequence[int]:
        return self._memory.number(self._at(index), self._size)

    def __setitem__(self, index: int | slice, value: int | Iterable[int]) -> None:
        assert isinstance(value, int)
        self._memory.set_number(self._at(index), value, self._size)

    def __iter__(self) -> Iterator[int]:
        data, size, end = self._memory.data, self._size, self._start + self._count * self._stride
        return (int.from_bytes(data[at : at + size], "little") for at in range(self._start, end, self._stride))

    def copy(self, other: Cells) -> None:
        """Take the rows of other cells, as far as there are any: each is a stride long, as are these."""
        size = min(self._count, other._count) * self._stride
        self._memory.data[:size] = other._memory.data[:size]

    def __delitem__(self, index: int | slice) -> None:
        raise TypeError("the number of cells is fixed")

    def insert(self, index: int, value: int) -> None:  # noqa: ARG002 - a sequence's
        raise TypeError("the number of cells is fixed")

    def tobytes(self) -> bytes:
        """All memory of the cells, to compare."""
        return bytes(self._memory.data[self._start : self._start + self._count * self._stride])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list has none
