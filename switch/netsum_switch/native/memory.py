"""Flat memory that compiled code and the control plane share."""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from typing import overload

from netsum_switch.externs import GREEN, RED, YELLOW, CounterArray, MeterArray, MeterConfig, buckets_of
from netsum_switch.native.layout import MeterWord
from netsum_switch.native.module import Array, Module

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

    def __delitem__(self, index: int | slice) -> None:
        raise TypeError("the number of cells is fixed")

    def insert(self, index: int, value: int) -> None:  # noqa: ARG002 - a sequence's
        raise TypeError("the number of cells is fixed")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list has none


# Indirect counters in flat memory, where compiled code counts.


class NativeCounters(CounterArray):
    """The values that are set wait until `refresh`: a packet that is just being counted would undo it."""

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


# Meters in flat memory: the function that colors a packet, and the control plane's side of the same cells.


_SECOND = 1_000_000  # microseconds


def write_meter(module: Module) -> str:
    """``execute_meter``: the color of a packet that needs this many tokens; the same arithmetic as `meter.Bucket`."""
    name = "execute_meter"
    if not module.assembly.once(name):
        return name
    out = module.assembly.function(name, "ptr %cell, i64 %wanted, i64 %now", "i64", attributes="noinline")
    with out.when(out.compare("eq", 64, out.load("%cell", 64, 8), 0)):
        out.give(f"i64 {GREEN}")
    seconds, rest = (out.op(op, 64, "%now", _SECOND) for op in ("udiv", "urem"))
    for number, color in enumerate((RED, YELLOW)):
        bucket = out.offset("%cell", 8 * (MeterWord.BUCKETS + number * MeterWord.BUCKET_WORDS))
        rate, burst, tokens, before = (out.load(out.offset(bucket, 8 * at), 64, 8) for at in range(4))
        part = out.op("udiv", 64, out.op("mul", 64, rest, rate), _SECOND)
        earned = out.op("add", 64, out.op("mul", 64, seconds, rate), part)
        new, room = out.op("sub", 64, earned, before), out.op("sub", 64, burst, tokens)
        more = out.choose(out.compare("ult", 64, new, room), 64, new, room)
        tokens = out.op("add", 64, tokens, more)
        out.store(earned, out.offset(bucket, 24), 64, 8)
        enough = out.compare("uge", 64, tokens, "%wanted")
        left = out.choose(enough, 64, out.op("sub", 64, tokens, "%wanted"), tokens)
        out.store(left, out.offset(bucket, 16), 64, 8)
        with out.unless(enough):
            out.give(f"i64 {color}")
    out.give(f"i64 {GREEN}")
    return name


class NativeMeters(MeterArray):
    """The configuration waits until `refresh`: a packet may be at the cell."""

    def __init__(
        self,
        name: str,
        array: Array,
        memory: Memory,
        changed: Callable[[NativeMeters], None],
        *,
        counts_bytes: bool,
    ) -> None:
        super().__init__(name, array.size, counts_bytes=counts_bytes)
        self._array = array
        self._memory = memory
        self._changed = changed
        self._waiting: dict[int, MeterConfig | None] = {}

    def _set(self, index: int, config: MeterConfig | None) -> None:
        self._waiting[index] = config
        self._changed(self)

    def refresh(self) -> None:
        """Put in place what was configured."""
        for index, config in self._waiting.items():
            at = index * self._array.stride
            self._memory.set_number(at, config is not None)
            if config is not None:
                words = [
                    word for each in buckets_of(config) for word in (each.rate, each.burst, each.tokens, each.earned)
                ]
                at += 8 * MeterWord.BUCKETS
                self._memory.data[at : at + 8 * len(words)] = struct.pack(f"<{len(words)}Q", *words)
        self._waiting.clear()
