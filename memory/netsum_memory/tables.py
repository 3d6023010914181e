"""Regions of kind "table": rows by key. LOOKUP reads them, PUSH takes gradients of them; the addresses only say which shard."""

from __future__ import annotations

from typing import Final

import numpy as np
from netsum.memory.keys import shards_of
from netsum.wire.memory import MAX_PAYLOAD, Instruction, MemoryStatus

from netsum_memory import validation
from netsum_memory.execute import Outcome, Result
from netsum_memory.message import Message
from netsum_memory.optimizer_kind import settings_of, settings_valid
from netsum_memory.region import Region
from netsum_memory.store import Store
from netsum_memory.table_disk import Disk, Rows
from netsum_memory.table_options import TableOptions
from netsum_memory.table_rows import TableRows

_KEY: Final = 8
_ALL: Final = b"rows\0\0\0\0"
"""What saved rows begin with."""
_FILE: Final = b"file\0\0\0\0"
"""What is saved begins with where the rows stay on this device's disk; behind it, how often they were flushed."""


class TableKind:
    def __init__(self, region: Region, shard: int, store: Store) -> None:
        self.options = TableOptions.of(region.options)
        self._region, self._shard = region, shard
        path = None if store.folder is None else store.folder / f"{region.id}.{shard}.table"
        capacity = max(1, self.options.ram_rows // region.shards)
        disk = Disk(self.options.width, path, self.options.disk, store.commit, fsync=store.fsync)
        self.rows = TableRows(self.options, disk, capacity)

    def check(self, message: Message) -> MemoryStatus:
        header = message.header
        if header.instruction not in (Instruction.NOP, Instruction.LOOKUP, Instruction.PUSH):
            return MemoryStatus.UNSUPPORTED
        status = validation.right(self._region, header) or validation.place(self._region, header.address, header.length)
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

    def execute(self, message: Message, position: int) -> Outcome:
        count = message.header.length // (_KEY + 4 * self.options.dim)
        keys = np.frombuffer(message.payload, "<u8", count)
        gradients = np.frombuffer(message.payload, "<f4", offset=_KEY * count).reshape(count, self.options.dim)
        settings = settings_of(message.segments)
        with np.errstate(all="ignore"):
            self.rows.push(keys, gradients, position, settings[0] if settings else self.options.lr)
        return Outcome(Result())

    def read(self, message: Message) -> Result:
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
