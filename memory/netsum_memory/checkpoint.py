# SPDX-License-Identifier: MIT
"""A checkpoint's file: the changed pages, and the shards' state besides their bytes, in frames of :mod:`netsum_memory.sealed`."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from netsum_memory.errors import DeviceError
from netsum_memory.journal import sync
from netsum_memory.message import MemoryMessage, parse_record
from netsum_memory.sealed import HEAD_BYTES, Seal, damaged
from netsum_memory.store import PAGE, Store


class Contents(NamedTuple):
    """A shard's state besides its bytes: its clients, what its kind saves, and the unexecuted end of its log."""

    windows: bytes
    kind: bytes
    tail: tuple[tuple[int, MemoryMessage], ...] = ()

    def blobs(self) -> list[bytes]:
        return [self.windows, self.kind, *(struct.pack("<I", epoch) + done.pack() for epoch, done in self.tail)]

    @classmethod
    def of(cls, blobs: Sequence[bytes]) -> Contents:
        tail = tuple((struct.unpack_from("<I", each)[0], parse_record(each[4:])) for each in blobs[2:])
        return cls(blobs[0], blobs[1], tail)


ShardState = tuple[Mapping[str, Any], Contents]
"""A shard's state and contents."""

_NUMBER: Final = struct.Struct("<Q")


def write(path: Path, incarnation: str, shards: Sequence[ShardState], stores: Mapping[int, Store], *, fsync: bool) -> None:
    """Write the file, whole or not at all. Raises OSError."""
    blobs = [contents.blobs() for _, contents in shards]
    head = {
        "page": PAGE,
        "shards": [{**state, "sizes": [*map(len, each)]} for (state, _), each in zip(shards, blobs, strict=True)],
        "regions": [[number, len(store.dirty), store.new_sums()] for number, store in stores.items()],
    }
    seal = Seal(incarnation, path.name)
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:

        def put(*parts: bytes) -> None:
            file.writelines((seal.head(parts), *parts))

        put(json.dumps(head).encode())
        for each in blobs:
            put(*each)
        for store in stores.values():
            for number in sorted(store.dirty):
                put(_NUMBER.pack(number), store.page(number))
        file.flush()
        if fsync:
            os.fsync(file.fileno())
    part.replace(path)
    if fsync:
        sync(path.parent)


class Pages(NamedTuple):
    """The part of a region in a checkpoint: number and bytes of each changed page, and the sums of all the region's pages with
    them. Take a region's pages before the next region's."""

    region: int
    sums: int
    changed: Iterator[tuple[int, bytes]]


class Checkpoint:
    """The contents that :func:`write` wrote. ``shards`` is read at once, pages as they are asked for. Raises
    :class:`DeviceError` if the file is damaged, or comes from a machine with another page size."""

    def __init__(self, path: Path, incarnation: str) -> None:
        self.path, self._seal = path, Seal(incarnation, path.name)
        with path.open("rb") as file:
            head = json.loads(self._next(file))
            if head["page"] != PAGE:
                raise DeviceError(f"{path} has pages of {head['page']} bytes; this machine's have {PAGE}")
            self.regions: Sequence[tuple[int, int, int]] = [(*each,) for each in head["regions"]]
            self.shards: list[ShardState] = []
            for state in head["shards"]:
                blobs, ends = self._next(file), [0, *accumulate(state["sizes"])]
                self.shards.append((state, Contents.of([blobs[at:end] for at, end in pairwise(ends)])))
            self._start = file.tell()

    def _next(self, file: BinaryIO) -> bytes:
        at = file.tell()
        head = self._seal.opened(file.read(HEAD_BYTES))
        body = b"" if head is None else file.read(head.size)
        if head is None or not head.fits(body):
            raise damaged(self.path, f"is damaged at byte {at}")
        return body

    def pages(self) -> Iterator[Pages]:
        with self.path.open("rb") as file:
            file.seek(self._start)
            for region, count, sums in self.regions:
                yield Pages(region, sums, self._region(file, count))
            if file.read(1):
                raise damaged(self.path, "does not end where it should")

    def _region(self, file: BinaryIO, count: int) -> Iterator[tuple[int, bytes]]:
        for _ in range(count):
            body = self._next(file)
            yield _NUMBER.unpack_from(body)[0], body[_NUMBER.size :]
