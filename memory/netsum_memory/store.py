# SPDX-License-Identifier: MIT
"""A region's bytes on this device.

The whole region is mapped, and only what this device's shards touch takes up memory. In a folder, the mapping is private: the
file has what the last checkpoint wrote, and the journal has what came after it (:mod:`netsum_memory.checkpoint`).
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final
from weakref import ref

import numpy as np
from numpy.typing import DTypeLike, NDArray

from netsum_memory.page_sums import PageSums
from netsum_memory.region import Region

PAGE: Final = mmap.PAGESIZE
_NORESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000)
_DONTNEED: Final = getattr(mmap, "MADV_DONTNEED", None)


class Snapshot:
    """The pages that were not all zeros: a sequence of addresses and contents. While a snapshot is held, the store
    puts aside each page that changes."""

    def __init__(self, store: Store, numbers: NDArray[np.int64]) -> None:
        self._store, self._numbers = store, numbers
        self._aside: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> tuple[int, bytes]:
        number = int(self._numbers[index])
        return self._store.base + number * PAGE, self._aside.get(number) or self._store.page(number)

    def put_aside(self, numbers: range) -> None:
        """These pages are about to change."""
        for index in range(*np.searchsorted(self._numbers, (numbers.start, numbers.stop))):
            number = int(self._numbers[index])
            if number not in self._aside:
                self._aside[number] = self._store.page(number)


class Store:
    """Bytes [base, base + size). ``folder`` is where a kind may keep files of its own; None if nothing outlives the process."""

    def __init__(self, region: Region, folder: Path | None = None, sums: PageSums | None = None) -> None:
        """``sums``: of the region's file; None if it is new. Raises OSError."""
        self.base, self.size, self.folder = region.base, region.size, folder
        self.commit: Callable[[], None] = lambda: None
        """Has the journal keep everything done so far; a kind calls it before it writes into files of its own."""
        self.fsync = False
        """True if such files must survive a power failure, too."""
        self.path = None if folder is None else folder / f"{region.id}.memory"
        self._file: int | None = None
        self.dirty: set[int] = set()
        """Numbers of the pages that the file does not have yet; stays empty without one."""
        self._sums = sums or PageSums(self.size // PAGE)
        self._snapshots: list[ref[Snapshot]] = []
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        if self.path is None:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
            self._map = mmap.mmap(-1, self.size, flags=flags, prot=protection)
        else:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if os.fstat(self._file).st_size < self.size:
                os.ftruncate(self._file, self.size)
            self._map = mmap.mmap(self._file, self.size, flags=mmap.MAP_PRIVATE | _NORESERVE, prot=protection)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)

    def read(self, address: int, length: int) -> bytes:
        start = address - self.base
        return self._map[start : start + length]

    def view(self, address: int, length: int, dtype: DTypeLike = np.uint8) -> NDArray[Any]:
        """The bytes as lanes, read-only."""
        start = address - self.base
        return self.bytes[start : start + length].view(dtype)

    def change(self, address: int, length: int, dtype: DTypeLike = np.uint8) -> NDArray[Any]:
        """The bytes as lanes, writable."""
        start = address - self.base
        if self._file is not None or self._snapshots:
            self._soil(start, length)
        return self.bytes[start : start + length].view(dtype)

    def write(self, address: int, data: bytes | memoryview) -> None:
        start, length = address - self.base, len(data)
        if self._file is not None or self._snapshots:
            self._soil(start, length)
        self._map[start : start + length] = data

    def _soil(self, start: int, length: int) -> None:
        numbers = range(start // PAGE, -(-(start + length) // PAGE))
        if self._file is not None:
            self.dirty.update(numbers)
        for each in list(self._snapshots):
            if (snapshot := each()) is not None:
                snapshot.put_aside(numbers)

    def snapshot(self, addresses: Iterable[int], length: int) -> Snapshot:
        """A snapshot of these stretches; costs reading each byte, and a page of RAM for each page that changes."""
        found: list[NDArray[Any]] = [np.zeros(0, np.int64)]
        for address in addresses:
            there = self.view(address, length).reshape(-1, PAGE).any(axis=1)
            found.append(np.flatnonzero(there) + (address - self.base) // PAGE)
        snapshot = Snapshot(self, np.concatenate(found))
        self._snapshots.append(ref(snapshot, self._snapshots.remove))
        return snapshot

    def page(self, number: int) -> bytes:
        return self._map[number * PAGE : (number + 1) * PAGE]

    def new_sums(self) -> int:
        """The sum of all pages of the file (:class:`PageSums`) once it has all that is here."""
        self._sums.update((number, self.page(number)) for number in self.dirty)
        return self._sums.total

    def put(self, pages: Iterable[tuple[int, bytes]]) -> None:
        """Write pages to the file, and forget that they differ from it."""
        assert self._file is not None
        for number, content in pages:
            os.pwrite(self._file, content, number * PAGE)
            self.dirty.discard(number)
            if _DONTNEED is not None:
                self._map.madvise(_DONTNEED, number * PAGE, PAGE)  # from now on the file's page is seen

    def sync(self) -> None:
        if self._file is not None:
            os.fsync(self._file)

    def clear(self, addresses: Iterable[int], length: int) -> None:
        """Make these stretches zeros, and give their memory back. No snapshot of them may be needed any more."""
        for address in addresses:
            start = address - self.base
            if self._file is None and _DONTNEED is not None:
                self._map.madvise(_DONTNEED, start, length)
                continue
            for at in range(address, address + length, PAGE):
                if self.view(at, PAGE).any():  # holes stay holes
                    self.change(at, PAGE)[:] = 0

    def close(self) -> None:
        """Forget the bytes; the file stays."""
        self.bytes = np.zeros(0, np.uint8)
        if self._file is not None:
            os.close(self._file)
            self._file = None
        with contextlib.suppress(BufferError):  # a view still exists: it goes with that
            self._map.close()
