# SPDX-License-Identifier: MIT
"""v1model's externs: counters, registers, meters, log_msg."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import NamedTuple

from netsum_switch.errors import MeterError
from netsum_switch.native.layout import MeterWord
from netsum_switch.native.memory import Cells, Memory
from netsum_switch.native.module import Array

_CELLS_AT_ONCE = 1 << 12  # that are set to one value

# Indirect counters.


class CounterArray:
    """Packets and bytes by index, in memory where packets count. What is set waits until `refresh`: a packet that is just being
    counted would undo it."""

    def __init__(self, name: str, size: int, memory: Memory, stride: int, changed: Callable[[CounterArray], None]) -> None:
        self.name = name
        self.size = size
        self.packets, self.bytes = (Cells(memory, size, stride, 8, start) for start in (0, 8))
        self._changed = changed
        self._waiting: dict[tuple[int, int], int] = {}  # by index and which of the two

    def read(self, index: int) -> tuple[int, int]:
        """(packets, bytes) of a cell. Raises IndexError if there is no such cell."""
        if not 0 <= index < self.size:
            raise IndexError(f"counter {self.name} has {self.size} cells, none has index {index}")
        packets, total = self.packets[index], self.bytes[index]
        return self._waiting.get((index, 0), packets), self._waiting.get((index, 1), total)

    def write(self, index: int, packets: int, size: int) -> None:
        """Set a cell. Raises IndexError if there is no such cell."""
        for which, (value, old) in enumerate(zip((packets, size), self.read(index), strict=True)):
            if value != old:
                self._waiting[index, which] = value
                self._changed(self)

    def copy(self, other: CounterArray) -> None:
        """Take the values of another counter's cells, as far as there are any. No packet is in flight in either."""
        self.packets.copy(other.packets)  # their rows have the bytes, too

    def refresh(self) -> None:
        """Put in place what was set."""
        for (index, which), value in self._waiting.items():
            (self.bytes if which else self.packets)[index] = value
        self._waiting.clear()


# Registers.


class RegisterArray(Cells):
    """A register's cells, which packets read and write in place; a signed value is there in two's complement. What controllers
    set waits until `refresh`."""

    def __init__(self, name: str, array: Array, memory: Memory, changed: Callable[[RegisterArray], None]) -> None:
        super().__init__(memory, array.size, array.stride, array.stride)
        self.name = name
        self.bits = array.bits
        self.stride = array.stride
        self._changed = changed
        self._waiting: dict[int, int] = {}
        self._waiting_for_all: bytes | None = None

    def set(self, index: int, value: int) -> None:
        """Set a cell to a value of at most `bits`. Raises IndexError if there is no such cell."""
        if not 0 <= index < len(self):
            raise IndexError(f"register {self.name} has {len(self)} cells, none has index {index}")
        self._waiting[index] = value
        self._changed(self)

    def set_all(self, value: int) -> None:
        """Set all cells to a value of at most `bits`."""
        self._waiting.clear()
        self._waiting_for_all = value.to_bytes(self._stride, "little") * max(1, min(len(self), _CELLS_AT_ONCE))
        self._changed(self)

    def copy(self, other: Cells) -> None:
        """Take the values of another register's cells, as far as there are any and they fit. No packet is in flight in either."""
        if isinstance(other, RegisterArray) and other.bits == self.bits:
            super().copy(other)
            return
        for index, value in zip(range(len(self)), other, strict=False):
            if value < 1 << self.bits:
                self[index] = value

    def refresh(self) -> None:
        """Put in place what was set."""
        if (cells := self._waiting_for_all) is not None:
            data, end = self._memory.data, len(self) * self._stride
            for at in range(0, end, len(cells)):
                data[at : min(end, at + len(cells))] = cells[: end - at]
            self._waiting_for_all = None
        for index, value in self._waiting.items():
            self[index] = value
        self._waiting.clear()


# Meters: two rates, three colors.


GREEN, YELLOW, RED = 0, 1, 2

# Packets or bytes a second. Nothing is faster, and 64 bits hold what comes of it in one second, and in 24 days.
FASTEST = 1 << 43

_BUCKET = "<4Q"  # rate, burst, tokens, and those earned since the meter's beginning, lost ones included, at the last packet


class MeterConfig(NamedTuple):
    """Committed and peak rate a second, each with the burst that it allows; packets or bytes."""

    cir: int
    cburst: int
    pir: int
    pburst: int


class MeterArray:
    """Cells of a meter. A packet is red if it is above the peak rate, yellow if above the committed one, else green; in a cell
    without a configuration it is always green. A configuration waits until `refresh`: a packet may be at the cell. Source:
    BMv2's meters.cpp, after RFC 2698."""

    def __init__(
        self, name: str, array: Array, memory: Memory, changed: Callable[[MeterArray], None], *, counts_bytes: bool
    ) -> None:
        self.name = name
        self.size = array.size
        self.counts_bytes = counts_bytes
        self._configs: dict[int, MeterConfig] = {}
        self._stride = array.stride
        self._memory = memory
        self._changed = changed
        self._waiting: set[int] = set()

    def config(self, index: int) -> MeterConfig | None:
        """The configuration of a cell, if it has one. Raises IndexError if there is no such cell."""
        return self._configs.get(self._checked(index))

    def configure(self, index: int, config: MeterConfig | None) -> None:
        """Give a cell a configuration and full buckets, or take its configuration away. Raises IndexError if there is
        no such cell, MeterError if the peak rate is below the committed one."""
        self._checked(index)
        if config is None:
            self._configs.pop(index, None)
        else:
            check_config(config)
            self._configs[index] = config
        self._waiting.add(index)
        self._changed(self)

    def copy(self, index: int, other: MeterArray, at: int) -> None:
        """Take the tokens of another meter's cell, if both are configured alike. No packet is in flight in either."""
        if self.config(index) is not None and (self.config(index), self.counts_bytes) == (other.config(at), other.counts_bytes):
            self.refresh()
            here, there = index * self._stride, at * other._stride
            cell = other._memory.data[there : there + self._stride]
            self._memory.data[here : here + self._stride] = cell

    def refresh(self) -> None:
        """Put in place what was configured."""
        for index in self._waiting:
            at, config = index * self._stride, self._configs.get(index)
            self._memory.set_number(at, config is not None)
            if config is not None:
                at += 8 * MeterWord.BUCKETS
                for rate, burst in ((config.pir, config.pburst), (config.cir, config.cburst)):
                    bucket = struct.pack(_BUCKET, min(rate, FASTEST), burst, burst, 0)
                    self._memory.data[at : at + len(bucket)] = bucket
                    at += len(bucket)
        self._waiting.clear()

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(f"meter {self.name} has {self.size} cells, none has index {index}")
        return index


def check_config(config: MeterConfig) -> None:
    """Check what a cell can be given. Raises MeterError if the peak rate is below the committed one."""
    if config.pir < config.cir:
        raise MeterError(f"the peak rate {config.pir} of a meter is below its committed rate {config.cir}")


# The extern log_msg.


log = logging.getLogger("netsum_switch.pipeline")


def log_message(text: str, *values: int) -> None:
    """A program's message, with a value in the place of each {}."""
    pieces = text.split("{}")
    given = [*map(str, values), *[""] * len(pieces)]
    log.info("%s", "".join(piece + value for piece, value in zip(pieces, given, strict=False)))
