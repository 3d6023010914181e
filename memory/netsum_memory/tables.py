# SPDX-License-Identifier: MIT
"""Regions of kind "table": rows by key. LOOKUP reads them, PUSH takes gradients of them; the addresses only say which shard."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

import numpy as np
from netsum.memory.client import Keys, mixed, shards_of
from netsum.wire.memory import MAX_PAYLOAD, Instruction, MemoryStatus
from numpy.typing import NDArray

from netsum_memory import execute
from netsum_memory.execute import Execution, Result
from netsum_memory.message import MemoryMessage
from netsum_memory.optimizer_rules import Floats
from netsum_memory.parameters import settings_of, settings_valid
from netsum_memory.region import Region
from netsum_memory.store import Store
from netsum_memory.table_disk import Disk, Frequency, Rows

# What a region of kind "table" is told when it is made, and what a row's optimizer does with a gradient, pure.


OPTIMIZERS: Final = ("sgd", "adagrad", "rowwise_adagrad")
MOST_DIM: Final = (MAX_PAYLOAD - 8) // 4


@dataclass(frozen=True)
class TableOptions:
    """
    Attributes:
        dim: numbers in a row.
        ram_rows: rows in RAM, over all the region's shards; the others are on disk.
        initial: a row that was not changed is uniform in [-initial, initial), from ``seed`` and its key.
        disk: bytes that a shard's file may have; it grows as needed, and up to this.
    """

    dim: int
    ram_rows: int = 1 << 16
    optimizer: str = "sgd"
    lr: float = 0.01
    eps: float = 1e-10
    initial: float = 0.05
    seed: int = 0
    disk: int = 1 << 40

    @property
    def width(self) -> int:
        """Numbers of a row with the optimizer's."""
        return self.dim + {"sgd": 0, "adagrad": self.dim, "rowwise_adagrad": 1}[self.optimizer]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TableOptions:
        """The options in ``given``, or ValueError that names what is wrong."""
        names = [field.name for field in fields(cls)]
        for name, value in given.items():
            if name not in names:
                raise ValueError(f"no option {name!r} of a table; there are {', '.join(names)}")
            _check_type(name, value)
        if "dim" not in given:
            raise ValueError("a table needs the option dim, the numbers in a row")
        made = cls(**given)
        made._check()
        return made

    def _check(self) -> None:
        if not 1 <= self.dim <= MOST_DIM:
            raise ValueError(f"dim is 1 to {MOST_DIM}, so that a row and its key fit a packet, not {self.dim}")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer of a table is one of {', '.join(OPTIMIZERS)}, not {self.optimizer!r}")
        for name, least in (("ram_rows", 1), ("disk", 1 << 20), ("lr", 0), ("eps", 0), ("initial", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is at least {least}, not {getattr(self, name)}")


def _check_type(name: str, value: object) -> None:
    if name == "optimizer":
        right, words = isinstance(value, str), "a name"
    elif name in ("lr", "eps", "initial"):
        right, words = isinstance(value, int | float) and math.isfinite(value), "a finite number"
    else:
        right, words = isinstance(value, int), "an integer"
    if not right or isinstance(value, bool):
        raise ValueError(f"{name} is {words}, not {value!r}")


def initial_rows(options: TableOptions, keys: Keys) -> Floats:
    """Rows as they are before they are changed: the same on every device."""
    rows = np.zeros((keys.size, options.width), np.float32)
    if options.initial:
        columns = mixed(np.arange(options.dim, dtype=np.uint64) + np.uint64(options.seed % 2**64))
        bits = mixed(mixed(keys)[:, None] ^ columns) >> np.uint64(40)
        uniform = bits.astype(np.float32) * np.float32(2**-23) - np.float32(1)
        rows[:, : options.dim] = uniform * np.float32(options.initial)
    return rows


def update(options: TableOptions, rows: Floats, gradients: Floats, lr: float) -> None:
    """Take a step in each row, in place; torch's SGD and Adagrad, and Adagrad with one sum for the row's mean square."""
    parameters, state = rows[:, : options.dim], rows[:, options.dim :]
    rate = np.float32(lr)
    if options.optimizer == "sgd":
        parameters -= rate * gradients
        return
    squares = gradients * gradients
    state += squares if options.optimizer == "adagrad" else squares.mean(axis=1, keepdims=True, dtype=np.float32)
    spread: Floats = np.sqrt(state)
    spread += np.float32(options.eps)
    parameters -= rate * gradients / spread


def coalesced(keys: Keys, gradients: Floats) -> tuple[Keys, Floats]:
    """Each key once, with the sum of its gradients in the order given."""
    unique, inverse = np.unique(keys, return_inverse=True)
    if unique.size == keys.size:
        return keys, gradients
    summed = np.zeros((unique.size, gradients.shape[1]), np.float32)
    np.add.at(summed, inverse, gradients)
    return unique, summed


# One shard's rows: hot ones in RAM, the others on disk.
#
# Eviction: the least recently used row goes first. Admission (TinyLFU): where RAM is full, a row from the disk comes in
# only if it was used more often of late than the row that would have to go; otherwise it is read and written on disk.
# So one pass over many keys does not drive out what is hot.
#
# A change in RAM is on disk when its row is evicted, or at a checkpoint; until then the device's journal has it. Each
# row has the position in the shard's log of its last change, so the journal may be replayed over rows that are further.


class _Gathered(NamedTuple):
    """Rows of some keys, copied, and the slots of those that are in RAM (``hit``)."""

    rows: Rows
    hit: NDArray[np.bool_]
    slots: NDArray[np.intp]


class TableRows:
    def __init__(self, options: TableOptions, disk: Disk, capacity: int) -> None:
        """``capacity``: rows in RAM."""
        self._options, self._disk, self.capacity = options, disk, capacity
        self._slots: OrderedDict[int, int] = OrderedDict()  # by key, the least recently used first
        self._frequency = Frequency(capacity)
        self._values = np.zeros((capacity, options.width), np.float32)
        self._positions = np.zeros(capacity, np.uint64)
        self._changed = np.zeros(capacity, np.bool_)
        self._free = list(range(capacity - 1, -1, -1))

    def __len__(self) -> int:
        """Rows in RAM."""
        return len(self._slots)

    def lookup(self, keys: Keys) -> tuple[Floats, int]:
        """The rows of these keys, and how many of them were in RAM."""
        unique, inverse = np.unique(keys, return_inverse=True)
        gathered = self._gather(unique)
        self._admit(gathered.rows.at(~gathered.hit), write=False)
        parameters = gathered.rows.values[:, : self._options.dim]
        return parameters[inverse], int(gathered.hit[inverse].sum())

    def push(self, keys: Keys, gradients: Floats, position: int, lr: float) -> None:
        """Take a step in each of these rows; those that have had the log's ``position`` are left alone."""
        unique, summed = coalesced(keys, gradients)
        rows, hit, slots = self._gather(unique)
        behind = rows.positions < position
        stepped = rows.values[behind]
        update(self._options, stepped, summed[behind], lr)
        rows.values[behind] = stepped
        rows.positions[behind] = position
        inside = behind & hit
        places = slots[inside[hit]]
        self._values[places] = rows.values[inside]
        self._positions[places] = position
        self._changed[places] = True
        self._admit(rows.at(behind & ~hit), write=True)

    def _gather(self, keys: Keys) -> _Gathered:
        """Each key is given once. A row that is nowhere has its initial value."""
        self._frequency.add(keys)
        found = [self._slots.get(key) for key in keys.tolist()]
        hit = np.array([slot is not None for slot in found], np.bool_)
        slots = np.array([slot for slot in found if slot is not None], np.intp)
        for key in keys[hit].tolist():
            self._slots.move_to_end(key)
        values = np.empty((keys.size, self._options.width), np.float32)
        positions = np.zeros(keys.size, np.uint64)
        values[hit], positions[hit] = self._values[slots], self._positions[slots]
        if not hit.all():
            absent = np.flatnonzero(~hit)
            there, read = self._disk.read(keys[absent])
            values[absent[there]], positions[absent[there]] = read.values, read.positions
            values[absent[~there]] = initial_rows(self._options, keys[absent[~there]])
        return _Gathered(Rows(keys, positions, values), hit, slots)

    def _admit(self, rows: Rows, *, write: bool) -> None:
        """Take rows into RAM, or leave them on disk. ``write``: they differ from what is there."""
        if not rows.keys.size:
            return
        stays, evicted = [], []
        for number, (key, uses) in enumerate(zip(rows.keys.tolist(), self._frequency.of(rows.keys), strict=True)):
            if not self._free:
                victim = next(iter(self._slots))
                if uses <= self._frequency.of(np.array([victim], np.uint64))[0]:
                    stays.append(number)
                    continue
                evicted.append(self._evict(victim))
            slot = self._free.pop()
            self._slots[key] = slot
            self._values[slot], self._positions[slot] = rows.values[number], rows.positions[number]
            self._changed[slot] = write
        if write and stays:
            evicted.append(rows.at(np.array(stays, np.intp)))
        self._disk.write(_joined([each for each in evicted if each.keys.size], self._options.width))

    def _evict(self, key: int) -> Rows:
        """Free the row's slot; returns the row if the disk does not have it."""
        slot = self._slots.pop(key)
        self._free.append(slot)
        chosen = np.array([slot] if self._changed[slot] else [], np.intp)
        return Rows(np.full(chosen.size, key, np.uint64), self._positions[chosen], self._values[chosen])

    def require(self, syncs: int) -> None:
        """Raise :class:`DeviceError` if the disk is older than :meth:`flush` left it when it returned this."""
        self._disk.require(syncs)

    def flush(self) -> int:
        """Write all changed rows to the disk, and see that they stay there. Returns how often that was done."""
        changed = [(key, slot) for key, slot in self._slots.items() if self._changed[slot]]
        slots = np.array([slot for _, slot in changed], np.intp)
        keys = np.array([key for key, _ in changed], np.uint64)
        self._disk.write(Rows(keys, self._positions[slots], self._values[slots]))
        self._changed[slots] = False
        return self._disk.sync()

    def all(self) -> Rows:
        """All rows that were changed."""
        self.flush()
        return self._disk.all()

    def replace(self, rows: Rows) -> None:
        self._slots.clear()
        self._free = list(range(self.capacity - 1, -1, -1))
        self._disk.clear()
        self._disk.write(rows)

    def close(self) -> None:
        """Rows that the disk does not have are in the journal."""
        self._disk.close()


def _joined(parts: list[Rows], width: int) -> Rows:
    if not parts:
        return Rows(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros((0, width), np.float32))
    return Rows(*(np.concatenate(column) for column in zip(*parts, strict=True)))


_KEY: Final = 8
_ALL: Final = b"rows\0\0\0\0"
"""The first bytes of saved rows."""
_FILE: Final = b"file\0\0\0\0"
"""The start of saved state: where the rows stay on this device's disk; behind it, how often they were flushed."""


class TableKind:
    def __init__(self, region: Region, shard: int, store: Store) -> None:
        self.options = TableOptions.of(region.options)
        self._region, self._shard = region, shard
        path = None if store.folder is None else store.folder / f"{region.id}.{shard}.table"
        capacity = max(1, self.options.ram_rows // region.shards)
        disk = Disk(self.options.width, path, self.options.disk, store.commit, fsync=store.fsync)
        self.rows = TableRows(self.options, disk, capacity)

    def check(self, message: MemoryMessage) -> MemoryStatus:
        header = message.header
        if header.instruction not in (Instruction.NOP, Instruction.LOOKUP, Instruction.PUSH):
            return MemoryStatus.UNSUPPORTED
        status = execute.right(self._region, header) or execute.place(self._region, header.address, header.length)
        if status or header.instruction == Instruction.NOP:
            return status
        row = 4 * self.options.dim
        record = _KEY if header.instruction == Instruction.LOOKUP else _KEY + row
        count, left = divmod(header.length, record)
        if left or not count:
            return MemoryStatus.ALIGNMENT
        if count * row > MAX_PAYLOAD or not settings_valid(message.segments, most=1):
            return MemoryStatus.MALFORMED
        keys = np.frombuffer(message.payload, "<u8", count)
        elsewhere = np.any(shards_of(keys, self._region.shards) != self._shard)
        return MemoryStatus.BOUNDS if elsewhere else MemoryStatus.OK

    def execute(self, message: MemoryMessage, position: int) -> Execution:
        count = message.header.length // (_KEY + 4 * self.options.dim)
        keys = np.frombuffer(message.payload, "<u8", count)
        gradients = np.frombuffer(message.payload, "<f4", offset=_KEY * count).reshape(count, self.options.dim)
        settings = settings_of(message.segments)
        with np.errstate(all="ignore"):
            self.rows.push(keys, gradients, position, settings[0] if settings else self.options.lr)
        return Execution(Result())

    def read(self, message: MemoryMessage) -> Result:
        if message.header.instruction == Instruction.NOP:
            return Result(payload=message.payload)
        rows, hits = self.rows.lookup(np.frombuffer(message.payload, "<u8"))
        return Result(payload=rows.tobytes(), argument=hits)

    def save(self, elsewhere: bool) -> bytes:
        """The rows themselves are on disk once this returns; only another device needs them all."""
        if not elsewhere:
            return _FILE + self.rows.flush().to_bytes(8)
        rows = self.rows.all()
        return b"".join((_ALL, rows.keys.tobytes(), rows.positions.tobytes(), rows.values.tobytes()))

    def load(self, saved: bytes) -> None:
        if saved.startswith(_FILE):
            self.rows.require(int.from_bytes(saved[len(_FILE) :]))
            return
        if not saved:
            return
        saved = saved.removeprefix(_ALL)
        count = len(saved) // (2 * _KEY + 4 * self.options.width)
        keys = np.frombuffer(saved, "<u8", count)
        positions = np.frombuffer(saved, "<u8", count, _KEY * count)
        values = np.frombuffer(saved, "<f4", offset=2 * _KEY * count).reshape(count, self.options.width)
        self.rows.replace(Rows(keys, positions, values))

    def close(self) -> None:
        self.rows.close()
