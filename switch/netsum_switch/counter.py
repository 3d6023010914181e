"""Indirect counters."""

from __future__ import annotations


class CounterArray:
    """Packets and bytes by index. The data plane increments `packets` and `bytes` in place."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.packets = [0] * size
        self.bytes = [0] * size

    def read(self, index: int) -> tuple[int, int]:
        """(packets, bytes) of a cell.

        Raises:
            IndexError: there is no such cell.
        """
        return self.packets[self._checked(index)], self.bytes[index]

    def write(self, index: int, packets: int, size: int) -> None:
        """Set a cell.

        Raises:
            IndexError: there is no such cell.
        """
        self.packets[self._checked(index)] = packets
        self.bytes[index] = size

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(f"counter {self.name} has {self.size} cells, none has index {index}")
        return index
