"""Indirect counters."""

from __future__ import annotations

from collections.abc import MutableSequence


class CounterArray:
    """Packets and bytes by index. The data plane increments `packets` and `bytes` in place, or the memory behind them."""

    def __init__(
        self,
        name: str,
        size: int,
        packets: MutableSequence[int] | None = None,
        bytes_: MutableSequence[int] | None = None,
    ) -> None:
        self.name = name
        self.size = size
        self.packets = [0] * size if packets is None else packets
        self.bytes = [0] * size if bytes_ is None else bytes_

    def read(self, index: int) -> tuple[int, int]:
        """(packets, bytes) of a cell. Raises IndexError if there is no such cell."""
        return self.packets[self._checked(index)], self.bytes[index]

    def write(self, index: int, packets: int, size: int) -> None:
        """Set a cell. Raises IndexError if there is no such cell."""
        self.packets[self._checked(index)] = packets
        self.bytes[index] = size

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(f"counter {self.name} has {self.size} cells, none has index {index}")
        return index
