"""Indirect counters in flat memory, where compiled code counts."""

from __future__ import annotations

from collections.abc import Callable

from netsum_switch.counter import CounterArray
from netsum_switch.native.memory import Cells, Memory


class NativeCounters(CounterArray):
    """What is set waits until `refresh`: a packet that is just being counted would undo it."""

    def __init__(
        self, name: str, size: int, memory: Memory, stride: int, changed: Callable[[NativeCounters], None]
    ) -> None:
        super().__init__(name, size, *(Cells(memory, size, stride, 8, start) for start in (0, 8)))
        self._changed = changed
        self._waiting: dict[tuple[int, int], int] = {}  # by index and which of the two

    def read(self, index: int) -> tuple[int, int]:
        packets, total = super().read(index)
        return self._waiting.get((index, 0), packets), self._waiting.get((index, 1), total)

    def write(self, index: int, packets: int, size: int) -> None:
        for which, (value, old) in enumerate(zip((packets, size), self.read(index), strict=True)):
            if value != old:
                self._waiting[index, which] = value
                self._changed(self)

    def refresh(self) -> None:
        """Put in place what was set."""
        for (index, which), value in self._waiting.items():
            (self.bytes if which else self.packets)[index] = value
        self._waiting.clear()
