"""Registers."""

from __future__ import annotations

from collections.abc import MutableSequence


class RegisterArray:
    """Cells of `width` bits, all 0 at first. The data plane reads and writes `values` in place, or the memory behind it."""

    def __init__(self, name: str, size: int, width: int, values: MutableSequence[int] | None = None) -> None:
        self.name = name
        self.size = size
        self.width = width
        self.values = [0] * size if values is None else values

    def read(self, index: int) -> int:
        """The value of a cell.

        Raises:
            IndexError: there is no such cell.
        """
        return self.values[self._checked(index)]

    def write(self, index: int, value: int) -> None:
        """Set a cell; the value is truncated to the cell's width.

        Raises:
            IndexError: there is no such cell.
        """
        self.values[self._checked(index)] = value & (1 << self.width) - 1

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(f"register {self.name} has {self.size} cells, none has index {index}")
        return index
