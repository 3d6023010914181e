# SPDX-License-Identifier: MIT
"""True if a region's file is as the last checkpoint left it: a checksum of each page, and one number for all of them."""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from netsum.memory.client import mixed
from numpy.typing import NDArray

_PAGE: Final = mmap.PAGESIZE
_ZEROS: Final = zlib.crc32(bytes(_PAGE))
_WHOLE: Final = 1 << 64


class PageSums:
    """A page of zeros, as holes are, counts for nothing.

    Attributes:
        total: a sum over all pages; it changes with what is in each page, and with where that is.
    """

    def __init__(self, pages: int) -> None:
        self._crcs = np.zeros(pages, np.uint32)
        self.total = 0

    @classmethod
    def of(cls, path: Path) -> Self:
        """Of a file, which is read as far as it is no hole. Raises OSError."""
        sums = cls(-(-path.stat().st_size // _PAGE))
        sums.update(_pages(path))
        return sums

    def update(self, pages: Iterable[tuple[int, bytes]]) -> None:
        """These pages change: numbers, each once, and contents."""
        found = [(number, zlib.crc32(content) ^ _ZEROS) for number, content in pages]
        numbers = np.array([number for number, _ in found], np.int64)
        crcs = np.array([crc for _, crc in found], np.uint32)
        self.total = (self.total + _sum(numbers, crcs) - _sum(numbers, self._crcs[numbers])) % _WHOLE
        self._crcs[numbers] = crcs


def _sum(numbers: NDArray[Any], crcs: NDArray[Any]) -> int:
    there = crcs != 0
    return int(mixed(mixed(numbers[there]) ^ crcs[there]).sum(dtype=np.uint64))


def _pages(path: Path) -> Iterator[tuple[int, bytes]]:
    """The pages that are not holes."""
    with path.open("rb") as file:
        at, size = 0, os.fstat(file.fileno()).st_size
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA) // _PAGE * _PAGE
            except OSError:  # nothing but a hole is left
                return
            hole = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            file.seek(at)
            for number in range(at // _PAGE, -(-hole // _PAGE)):
                yield number, file.read(_PAGE)
            at = -(-hole // _PAGE) * _PAGE
