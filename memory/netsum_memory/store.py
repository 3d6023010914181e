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

import numpy as np
from numpy.typing import NDArray

from netsum_memory.region import Region

PAGE: Final = mmap.PAGESIZE
_NORESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000)
_DONTNEED: Final = getattr(mmap, "MADV_DONTNEED", None)


class Store:
    """Bytes [base, base + size). ``folder`` is where a kind may keep files of its own; None if nothing outlives the process."""

    def __init__(self, region: Region, folder: Path | None = None) -> None:
        """Raises OSError."""
        self.base, self.size, self.folder = region.base, region.size, folder
        self.commit: Callable[[], None] = lambda: None
        """Has the journal keep everything done so far; a kind calls it before it writes into files of its own."""
        self.fsync = False
        """Whether such files, too, are to outlive the machine's power."""
        self.path = None if folder is None else folder / f"{region.id}.memory"
        self._file: int | None = None
        self.dirty: set[int] = set()
        """Numbers of the pages that the file does not have yet; stays empty without one."""
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

    def view(self, address: int, length: int, dtype: str = "u1") -> NDArray[Any]:
        """The bytes as lanes, to look at and not to change."""
        start = address - self.base
        return self.bytes[start : start + length].view(dtype)

    def change(self, address: int, length: int, dtype: str = "u1") -> NDArray[Any]:
        """The same, to be changed."""
        start = address - self.base
        if self._file is not None:
            self._soil(start, length)
        return self.bytes[start : start + length].view(dtype)

    def write(self, address: int, data: bytes | memoryview) -> None:
        start, length = address - self.base, len(data)
        if self._file is not None:
            self._soil(start, length)
        self._map[start : start + length] = data

    def _soil(self, start: int, length: int) -> None:
        if length:
            self.dirty.update(range(start // PAGE, (start + length - 1) // PAGE + 1))

    def page(self, number: int) -> bytes:
        return self._map[number * PAGE : (number + 1) * PAGE]

    def put(self, pages: Iterable[tuple[int, bytes]]) -> None:
        """Write pages into the file, and forget that they differ from it."""
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
        """Make these stretches zeros, and give their memory back."""
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
        with contextlib.suppress(BufferError):  # somebody still has a view: it goes with that
            self._map.close()

    def remove(self) -> None:
        """Close, and remove the file."""
        self.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)
