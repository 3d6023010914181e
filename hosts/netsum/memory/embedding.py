# SPDX-License-Identifier: MIT
"""Rows by key, in a region of kind "table": batched lookups, and pushes of sparse gradients (docs/memory.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from netsum.core.progress import Flow, Work
from netsum.errors import UnsupportedError
from netsum.memory.array import MemoryArray
from netsum.memory.client import Keys, shards_of
from netsum.memory.descriptor import RegionDescriptor
from netsum.memory.opening import open as open_region
from netsum.memory.run import Task
from netsum.wire.memory import Instruction, LaneType, MemoryHeader

Floats = NDArray[np.float32]

_KEY: Final = 8


@dataclass
class TableStats:
    """Counts of requests. ``hits``: how many of the requested ``rows`` the memory had in RAM; a key that occurs twice in one
    lookup counts once."""

    rows: int = 0
    hits: int = 0
    pushed: int = 0

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.rows if self.rows else 0.0


class _Batch(NamedTuple):
    """Instructions with as many keys each: row i is about ``keys[places[i]]``, all in one shard."""

    addresses: NDArray[np.uint64]
    places: NDArray[np.int64]


class Table:
    """A table of float32 rows by 64-bit keys. Every row exists from the start; all clients see the same rows."""

    def __init__(self, memory: MemoryArray, *, owns: bool = False) -> None:
        """``owns``: closing this closes the region."""
        descriptor = memory.descriptor
        if descriptor.kind != "table":
            raise UnsupportedError(f"region {memory.name!r} is of kind {descriptor.kind!r}, not 'table'")
        self.memory, self._owns = memory, owns
        self.dim = int(descriptor.options["dim"])
        self.stats = TableStats()
        self._looked = memory.piece // (4 * self.dim)
        self._pushed = memory.piece // (_KEY + 4 * self.dim)
        if not self._pushed:
            raise UnsupportedError(
                f"a row of {self.dim} numbers and its key do not fit a packet: {memory.piece} bytes on the way to "
                f"region {memory.name!r}"
            )

    def lookup(self, keys: Any, *, timeout: float | None = None) -> Floats:
        """The rows of these keys (integers, of any shape): an array with one more axis, of ``dim`` numbers."""
        return self._start(keys, timeout, background=False).wait()

    def lookup_async(self, keys: Any, *, timeout: float | None = None) -> Work[Floats]:
        """Begin :meth:`lookup`; ``wait()`` on what this returns gives the result."""
        return self._start(keys, timeout, background=True)

    def _start(self, keys: Any, timeout: float | None, *, background: bool) -> Work[Floats]:
        wanted = _as_keys(keys)
        unique, inverse = np.unique(wanted, return_inverse=True)
        return self.memory.client.start(
            lambda task: self._looking(task, unique, inverse.reshape(wanted.shape)), timeout, background=background
        )

    def push(self, keys: Any, gradients: Any, *, lr: float | None = None, timeout: float | None = None) -> None:
        """Take a step in the rows of these keys, with the table's optimizer. Gradients of a key that occurs more than once are
        added up. ``lr``: instead of the table's learning rate."""
        unique, summed = self._coalesced(_as_keys(keys), gradients)
        if lr is not None and not (np.isfinite(lr) and lr >= 0):
            raise UnsupportedError(f"lr is a finite number, 0 or more, not {lr!r}")
        self.memory.client.start(lambda task: self._pushing(task, unique, summed, lr), timeout, background=False).wait()

    def close(self) -> None:
        if self._owns:
            self.memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _coalesced(self, keys: Keys, gradients: Any) -> tuple[Keys, Floats]:
        given = np.asarray(gradients)
        if given.shape != (*keys.shape, self.dim) or given.dtype != np.float32:
            raise UnsupportedError(f"gradients are float32 {(*keys.shape, self.dim)}, not {given.dtype} {given.shape}")
        unique, inverse = np.unique(keys, return_inverse=True)
        summed = np.zeros((unique.size, self.dim), np.float32)
        np.add.at(summed, inverse.reshape(-1), given.reshape(-1, self.dim))
        return unique, summed

    def _batches(self, keys: Keys, most: int) -> Iterator[_Batch]:
        """Instructions with at most ``most`` keys, all of one shard, batched by their number of keys."""
        descriptor = self.memory.descriptor
        shards = shards_of(keys, descriptor.shards).astype(np.int64)
        order = np.argsort(shards, kind="stable")
        by_count: dict[int, list[tuple[int, NDArray[np.int64]]]] = {}
        ends = (np.flatnonzero(np.diff(shards[order], append=-1)) + 1).tolist()
        for begin, end in zip([0, *ends], ends, strict=False):
            for at in range(begin, end, most):
                places = order[at : min(at + most, end)]
                by_count.setdefault(len(places), []).append((int(shards[places[0]]), places))
        for parts in by_count.values():
            addresses = np.array([descriptor.base + shard * descriptor.granule for shard, _ in parts], np.uint64)
            yield _Batch(addresses, np.stack([places for _, places in parts]))

    def _looking(self, task: Task, keys: Keys, inverse: NDArray[np.int64]) -> Flow:
        rows = np.empty((keys.size, self.dim), np.float32)
        for batch in self._batches(keys, self._looked):

            def take(number: int, header: MemoryHeader, payload: memoryview, batch: _Batch = batch) -> None:
                rows[batch.places[number]] = np.frombuffer(payload, "<f4").reshape(-1, self.dim)
                self.stats.hits += header.argument

            header = MemoryHeader(Instruction.LOOKUP, length=_KEY * batch.places.shape[1], lane=LaneType.FLOAT32)
            data = keys[batch.places].astype("<u8").reshape(-1).view(np.uint8)
            self.memory.client.submit(self.memory.run(task, header, batch.addresses, data=data, on_reply=take))
        yield task.done
        self.stats.rows += keys.size
        return rows[inverse]

    def _pushing(self, task: Task, keys: Keys, gradients: Floats, lr: float | None) -> Flow:
        for batch in self._batches(keys, self._pushed):
            number, count = batch.places.shape
            data = np.empty((number, count * (_KEY + 4 * self.dim)), np.uint8)
            data[:, : _KEY * count] = keys[batch.places].astype("<u8").view(np.uint8).reshape(number, -1)
            data[:, _KEY * count :] = gradients[batch.places].astype("<f4").reshape(number, -1).view(np.uint8)
            header = MemoryHeader(Instruction.PUSH, length=data.shape[1], lane=LaneType.FLOAT32)
            segments = None if lr is None else np.full((number, 1), lr, np.float64).view(np.uint64)
            run = self.memory.run(task, header, batch.addresses, data=data.reshape(-1), segments=segments)
            self.memory.client.submit(run)
        yield task.done
        self.stats.pushed += keys.size


def table(
    name: str | None = None, *, descriptor: RegionDescriptor | str | os.PathLike[str] | None = None, **options: Any
) -> Table:
    """Open a region of kind "table"; all arguments are those of :func:`netsum.memory.open`, and it raises the same."""
    memory = open_region(name, descriptor=descriptor, **options)
    try:
        return Table(memory, owns=True)
    except BaseException:
        memory.close()
        raise


def _as_keys(keys: Any) -> Keys:
    given = np.asarray(keys)
    if given.dtype.kind not in "iu" and given.size:
        raise UnsupportedError(f"keys are integers, not {given.dtype}")
    return given.astype(np.uint64)
