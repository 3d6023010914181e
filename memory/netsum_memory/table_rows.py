"""One shard's rows: hot ones in RAM, the others on disk.

Eviction: the least recently used row goes first. Admission (TinyLFU): where RAM is full, a row from the disk comes in only if it
was used more often of late than the row that would have to go; otherwise it is read and written on disk. So one pass over many
keys does not drive out what is hot.

A change in RAM is on disk when its row is evicted, or at a checkpoint; until then the device's journal has it. Each row has the
position in the shard's log of its last change, so the journal may be replayed over rows that are further.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np
from netsum.memory.keys import Keys
from numpy.typing import NDArray

from netsum_memory.frequency import Frequency
from netsum_memory.optimizer_rules import Floats
from netsum_memory.table_disk import Disk, Rows
from netsum_memory.table_options import TableOptions, coalesced, initial_rows, update


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
        """All rows that somebody has changed."""
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
