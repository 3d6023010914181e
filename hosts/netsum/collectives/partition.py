# SPDX-License-Identifier: MIT
"""Cuts an array into blocks, and puts it together again.

A call has *segments*, each for one rank or for everyone; no block holds elements of two. In lanes, the last block of a segment is
filled up with zeros; on the wire, it is only as long as it needs to be.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from netsum.core.endpoint import GROUP
from netsum.numeric.fixed_point import Array, Numbers
from netsum.wire.schema import CHUNK_BYTES, EVERYONE

_AT_ONCE: Final = 1 << 16
"""Elements of several blocks, if not more: enough to make numpy's overhead negligible, few enough to stay in the cache."""


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
    size on the wire (``sizes``, bytes) of each. Arrays are flat, with the layout's segments one after the other."""

    def __init__(self, counts: tuple[int, ...], owners: tuple[int, ...], width: int, per_chunk: int) -> None:
        self._owners = owners
        self.width = width
        self.simple = len(counts) == 1
        blocks = [-(-count // width) for count in counts]
        self.number = sum(blocks)
        self._elements = list(accumulate(counts, initial=0))  # where each segment begins, and the end of the last
        self._blocks = list(accumulate(blocks, initial=0))
        self._padding: dict[int, int] = {}  # lanes, of the blocks that have some
        self.owner: list[int] = []
        self.sizes: list[int] = []
        for count, owner, many in zip(counts, owners, blocks, strict=True):
            self.owner += [owner] * many
            self.sizes += [width // per_chunk * CHUNK_BYTES] * many
            if many:
                self.sizes[-1] = -(-(count - (many - 1) * width) // per_chunk) * CHUNK_BYTES
                self._padding[len(self.sizes) - 1] = many * width - count

    def _runs(self, numbers: range) -> Iterator[tuple[slice, slice]]:
        """These blocks, a segment at a time: their places among ``numbers``, and their elements."""
        segment, block = bisect_right(self._blocks, numbers.start) - 1, numbers.start
        while block < numbers.stop:
            first, after = self._elements[segment], self._elements[segment + 1]
            stop = min(self._blocks[segment + 1], numbers.stop)
            begin, end = (first + (each - self._blocks[segment]) * self.width for each in (block, stop))
            if stop > block:
                yield slice(block - numbers.start, stop - numbers.start), slice(begin, min(end, after))
            segment, block = segment + 1, stop

    def elements(self, number: int) -> slice:
        """The elements of one block."""
        ((_, elements),) = self._runs(range(number, number + 1))
        return elements

    def span(self, rank: int) -> slice:
        """The elements from the first that this rank gets to the last."""
        mine = [index for index, owner in enumerate(self._owners) if owner in (EVERYONE, rank)]
        return slice(self._elements[mine[0]], self._elements[mine[-1] + 1]) if mine else slice(0, 0)

    def irregular(self, numbers: Numbers) -> Sequence[int]:
        """The places, among these blocks, of those that may be shorter than the others, or someone else's."""
        return (len(numbers) - 1,) if self.simple else range(len(numbers))

    @property
    def all_numbers(self) -> range:
        """The blocks' numbers."""
        return range(self.number)

    def groups(self, size: int = GROUP) -> Iterator[range]:
        """The blocks' numbers, ``size`` at a time."""
        for start in range(0, self.number, size):
            yield range(start, min(start + size, self.number))

    def all_rows(self, array: Array) -> Iterator[Array]:
        """All blocks of an array, as :meth:`rows`, some at a time."""
        return (self.rows(array, numbers) for numbers in self.groups(max(GROUP, _AT_ONCE // self.width)))

    def only(self, array: Array, numbers: Iterable[int]) -> Array:
        """A copy of an array in which all but these blocks are zeros."""
        copy = np.zeros_like(array)
        for number in numbers:
            block = self.elements(number)
            copy[block] = array[block]
        return copy

    def rows(self, array: Array, numbers: Numbers) -> Array:
        """These blocks of an array, ``(blocks, width)``, the last of a segment filled up with zeros; a view where possible."""
        if not isinstance(numbers, range):
            if not self.simple:
                return np.concatenate([self.rows(array, range(int(number), int(number) + 1)) for number in numbers])
            start = int(numbers[0])
            return self.rows(array, range(start, int(numbers[-1]) + 1))[numbers - start]
        if (there := self.view(array, numbers)) is not None:
            return there
        filled = np.zeros((len(numbers), self.width), array.dtype)
        for places, elements in self._runs(numbers):
            filled[places].reshape(-1)[: elements.stop - elements.start] = array[elements]
        return filled

    def view(self, array: Array, numbers: Numbers) -> Array | None:
        """These blocks of an array, ``(blocks, width)``, if they are whole and in a row."""
        if not isinstance(numbers, range):
            return None
        if self.simple:  # by far the most calls
            last = self._elements[-1]
            begin, end = min(numbers.start * self.width, last), min(numbers.stop * self.width, last)
        else:
            runs = list(self._runs(numbers))
            begin, end = (runs[0][1].start, runs[-1][1].stop) if runs else (0, 0)
        return array[begin:end].reshape(-1, self.width) if end - begin == len(numbers) * self.width else None

    def place(self, array: Array, rows: Array, numbers: Numbers, owned: NDArray[np.bool_] | None = None, first: int = 0) -> None:
        """The inverse of :meth:`rows`: put these blocks (only those that are ``owned``) into an array, which begins with element
        ``first``."""
        if not isinstance(numbers, range):
            for row, number in enumerate(numbers):
                if owned is None or owned[row]:
                    self.place(array, rows[row : row + 1], range(int(number), int(number) + 1), None, first)
            return
        for places, elements in self._runs(numbers):
            if owned is None or owned[places.start]:  # a segment has one owner
                count = elements.stop - elements.start
                array[elements.start - first : elements.stop - first] = rows[places].reshape(-1)[:count]

    def parts(self, array: Array, rank: int) -> list[Array]:
        """The segments of a result, as views; empty where this rank gets none. The result is what :meth:`span` says."""
        span = self.span(rank)
        return [
            array[begin - span.start : end - span.start] if span.start <= begin and end <= span.stop else array[:0]
            for begin, end in pairwise(self._elements)
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
