"""Cuts an array into blocks, and puts it together again.

A call has *segments*, each for one rank or for everyone; no block holds elements of two. In lanes, a segment is padded to whole
blocks, so that block b is elements b * width to (b + 1) * width of the padded array. On the wire, the last block of a segment is
only as long as it needs to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from netsum.core.endpoint import GROUP
from netsum.numeric.fixed_point import Array, Numbers
from netsum.wire.schema import CHUNK_BYTES, EVERYONE


def chunked(size: int) -> int:
    """Bytes rounded up to whole chunks."""
    return -(-size // CHUNK_BYTES) * CHUNK_BYTES


class Layout:
    """The segments of a call: ``counts`` are their numbers of elements, ``owners`` says who gets each (a rank, or EVERYONE)."""

    def __init__(self, counts: Sequence[int], owners: Sequence[int] = (EVERYONE,)) -> None:
        self.counts = tuple(counts)
        self.owners = tuple(owners)

    @classmethod
    def whole(cls, count: int, owner: int = EVERYONE) -> Layout:
        return cls((count,), (owner,))

    def partition(self, width: int, per_chunk: int) -> BlockPartition:
        return _cut(self.counts, self.owners, width, per_chunk)


class BlockPartition:
    """A layout in blocks of ``width`` elements, ``per_chunk`` of which make a chunk: their ``number``, and the ``owner`` and the
    size on the wire (``sizes``, bytes) of each."""

    def __init__(self, counts: tuple[int, ...], owners: tuple[int, ...], width: int, per_chunk: int) -> None:
        self._counts = counts
        self._owners = owners
        self.width = width
        self.simple = len(counts) == 1  # so that the array needs no padding between segments
        blocks = [-(-count // width) for count in counts]
        self.number = sum(blocks)
        self._first = [sum(blocks[:index]) for index in range(len(blocks))]
        self._padding: dict[int, int] = {}  # lanes, of the blocks that have some
        self.owner: list[int] = []
        self.sizes: list[int] = []
        for count, owner, many in zip(counts, owners, blocks, strict=True):
            self.owner += [owner] * many
            self.sizes += [width // per_chunk * CHUNK_BYTES] * many
            if many:
                self.sizes[-1] = -(-(count - (many - 1) * width) // per_chunk) * CHUNK_BYTES
                self._padding[len(self.sizes) - 1] = many * width - count

    def irregular(self, numbers: Numbers) -> Sequence[int]:
        """The places, among these blocks, of those that may be shorter than the others, or someone else's."""
        return (len(numbers) - 1,) if self.simple else range(len(numbers))

    def padded(self, array: Array) -> Array:
        """The C-contiguous array, flat, each segment padded with zeros to whole blocks; a view if there is one segment."""
        array = array.reshape(-1)
        if self.simple:
            return array
        padded = np.zeros(self.number * self.width, array.dtype)
        start = 0
        for first, count in zip(self._first, self._counts, strict=True):
            padded[first * self.width : first * self.width + count] = array[start : start + count]
            start += count
        return padded

    def groups(self, size: int = GROUP) -> Iterator[range]:
        """The blocks' numbers, ``size`` at a time."""
        for start in range(0, self.number, size):
            yield range(start, min(start + size, self.number))

    def all_rows(self, array: Array) -> Iterator[Array]:
        """All blocks of a padded array, as :meth:`rows`, a group at a time."""
        return (self.rows(array, numbers) for numbers in self.groups())

    def only(self, array: Array, numbers: Iterable[int]) -> Array:
        """A copy of a padded array in which all but these blocks are zeros."""
        copy = np.zeros_like(array)
        for number in numbers:
            block = slice(number * self.width, (number + 1) * self.width)
            copy[block] = array[block]
        return copy

    def rows(self, array: Array, numbers: Numbers) -> Array:
        """These blocks of a padded array, ``(blocks, width)``, the last filled up with zeros; a view where possible."""
        if not isinstance(numbers, range):
            start = int(numbers[0])
            return self.rows(array, range(start, int(numbers[-1]) + 1))[numbers - start]
        if (there := self.view(array, numbers)) is not None:
            return there
        filled = np.zeros((len(numbers), self.width), array.dtype)
        part = array[numbers.start * self.width :]
        filled.reshape(-1)[: len(part)] = part
        return filled

    def view(self, array: Array, numbers: Numbers) -> Array | None:
        """These blocks of a padded array, ``(blocks, width)``, if they are all in it and in a row."""
        if not isinstance(numbers, range) or numbers.stop * self.width > len(array):
            return None
        return array[numbers.start * self.width : numbers.stop * self.width].reshape(len(numbers), self.width)

    def place(self, array: Array, rows: Array, numbers: Numbers, owned: NDArray[np.bool_] | None = None) -> None:
        """The inverse of :meth:`rows`: put these blocks (only those that are ``owned``) into a padded array. Anything beyond the
        array's end is padding."""
        if owned is None and isinstance(numbers, range):
            first = numbers.start * self.width
            count = min(rows.size, len(array) - first)
            array[first : first + count] = rows.reshape(-1)[:count]
            return
        for row in range(len(numbers)) if owned is None else np.flatnonzero(owned):
            number = int(numbers[row])
            self.place(array, rows[row : row + 1], range(number, number + 1))

    def parts(self, padded: Array) -> list[Array]:
        """The segments of a padded array, as views."""
        return [
            padded[first * self.width : first * self.width + count]
            for first, count in zip(self._first, self._counts, strict=True)
        ]

    def blank(self, rows: Array, numbers: Numbers) -> None:
        """Write zeros into the lanes of these blocks that are padding; ``(blocks, width)``."""
        for row in self.irregular(numbers):
            if (padding := self._padding.get(int(numbers[row]))) is not None:
                rows[row, self.width - padding :] = 0

    def owned(self, rank: int, numbers: Numbers | Sequence[int]) -> NDArray[np.bool_] | None:
        """The blocks among these whose results this rank gets; None for all."""
        if self._owners == (EVERYONE,) or all(owner in (EVERYONE, rank) for owner in self._owners):
            return None
        return np.array([self.owner[number] in (EVERYONE, rank) for number in numbers])


@lru_cache(maxsize=32)  # training makes the same calls again and again
def _cut(counts: tuple[int, ...], owners: tuple[int, ...], width: int, per_chunk: int) -> BlockPartition:
    return BlockPartition(counts, owners, width, per_chunk)
