"""How a call's elements are spread over blocks.

A call has *segments*, each for one rank or for everyone; no block holds elements of two. In lanes, a segment is padded to whole
blocks, so that block b is elements b * width to (b + 1) * width of the padded array; on the wire the last block of a segment is
no longer than it needs to be.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netsum.fixed_point import Array
from netsum.wire.schema import CHUNK_BYTES, EVERYONE


def chunked(size: int) -> int:
    """Bytes rounded up to whole chunks."""
    return -(-size // CHUNK_BYTES) * CHUNK_BYTES


class Layout:
    """``counts`` elements in the segments, ``owners`` who gets each (a rank, or EVERYONE)."""

    def __init__(self, counts: Sequence[int], owners: Sequence[int] = (EVERYONE,)) -> None:
        self.counts = tuple(counts)
        self.owners = tuple(owners)

    @classmethod
    def whole(cls, count: int, owner: int = EVERYONE) -> Layout:
        """One segment."""
        return cls((count,), (owner,))

    def cut(self, width: int, lane_bytes: int) -> Cut:
        """The layout in blocks of ``width`` lanes."""
        return Cut(self, width, lane_bytes)


class Cut:
    """A layout in blocks. ``number`` of blocks; ``owner`` and ``sizes`` (bytes on the wire) of each."""

    def __init__(self, layout: Layout, width: int, lane_bytes: int) -> None:
        self._counts = layout.counts
        self._owners = layout.owners
        self._width = width
        blocks = [-(-count // width) for count in layout.counts]
        self.number = sum(blocks)
        self._first = [sum(blocks[:index]) for index in range(len(blocks))]
        self.owner: list[int] = []
        self.sizes: list[int] = []
        for count, owner, many in zip(layout.counts, layout.owners, blocks, strict=True):
            self.owner += [owner] * many
            self.sizes += [width * lane_bytes] * many
            if many:
                self.sizes[-1] = chunked((count - (many - 1) * width) * lane_bytes)

    @property
    def simple(self) -> bool:
        """One segment: the array needs no padding between its parts."""
        return len(self._counts) == 1

    def padded(self, flat: Array) -> Array:
        """The array with its segments padded with zeros to whole blocks; of one segment, the array itself."""
        if self.simple:
            return flat
        result = np.zeros(self.number * self._width, flat.dtype)
        start = 0
        for first, count in zip(self._first, self._counts, strict=True):
            result[first * self._width : first * self._width + count] = flat[start : start + count]
            start += count
        return result

    def parts(self, padded: Array) -> list[Array]:
        """The segments of a padded array, as views."""
        return [
            padded[first * self._width : first * self._width + count]
            for first, count in zip(self._first, self._counts, strict=True)
        ]

    def beyond(self, numbers: range | NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which lanes of these blocks are padding; ``(blocks, width)``."""
        used = np.zeros(self.number, np.int64)
        for first, count in zip(self._first, self._counts, strict=True):
            many = -(-count // self._width)
            used[first : first + many] = self._width
            if many:
                used[first + many - 1] = count - (many - 1) * self._width
        return np.asarray(np.arange(self._width) >= used[np.asarray(numbers, np.int64), None])

    def mine(self, rank: int, numbers: range | NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Which of these blocks' results this rank gets; None: all."""
        if all(owner in (EVERYONE, rank) for owner in self._owners):
            return None
        return np.array([self.owner[number] in (EVERYONE, rank) for number in numbers])
