"""A checkpoint's file: the changed pages, and the shards' state besides their bytes."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from netsum_memory.errors import DeviceError
from netsum_memory.journal import sync
from netsum_memory.message import Message, parse_record
from netsum_memory.store import PAGE, Store


class Contents(NamedTuple):
    """A shard's state besides its bytes: its clients, what its kind saves, and the unexecuted end of its log."""

    windows: bytes
    kind: bytes
    tail: tuple[tuple[int, Message], ...] = ()

    def blobs(self) -> list[bytes]:
        return [self.windows, self.kind, *(struct.pack("<I", epoch) + done.pack() for epoch, done in self.tail)]

    @classmethod
    def of(cls, blobs: Sequence[bytes]) -> Contents:
        tail = tuple((struct.unpack_from("<I", each)[0], parse_record(each[4:])) for each in blobs[2:])
        return cls(blobs[0], blobs[1], tail)


ShardState = tuple[Mapping[str, Any], Contents]
"""A shard's state and contents."""

_HEAD: Final = struct.Struct("<8sQI")
_MAGIC: Final = b"nsmemory"
_NUMBER: Final = struct.Struct("<Q")


def write(path: Path, shards: Sequence[ShardState], stores: Mapping[int, Store], *, fsync: bool) -> None:
    """Write the file, whole or not at all. Raises OSError."""
    blobs = [contents.blobs() for _, contents in shards]
    head = {
        "page": PAGE,
        "shards": [{**state, "sizes": [*map(len, each)]} for (state, _), each in zip(shards, blobs, strict=True)],
        "regions": [[number, len(store.dirty)] for number, store in stores.items()],
    }
    text = json.dumps(head).encode()
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(_HEAD.pack(_MAGIC, len(text), zlib.crc32(text)))
        file.write(text)
        for each in blobs:
            file.writelines(each)
        for store in stores.values():
            for number in sorted(store.dirty):
                file.write(_NUMBER.pack(number))
                file.write(store.page(number))
        file.flush()
        if fsync:
            os.fsync(file.fileno())
    part.replace(path)
    if fsync:
        sync(path.parent)


class Checkpoint:
    """What :func:`write` wrote. ``shards`` is read at once, pages as they are asked for."""

    def __init__(self, path: Path, head: Mapping[str, Any], start: int, shards: list[ShardState]) -> None:
        self._path, self._head, self._start, self.shards = path, head, start, shards

    def pages(self) -> Iterator[tuple[int, Iterator[tuple[int, bytes]]]]:
        """By region: number and bytes of each page. Take a region's pages before the next region's."""
        with self._path.open("rb") as file:
            file.seek(self._start)
            for region, count in self._head["regions"]:
                yield int(region), self._region(file, int(count))

    def _region(self, file: BinaryIO, count: int) -> Iterator[tuple[int, bytes]]:
        for _ in range(count):
            (number,) = _NUMBER.unpack(file.read(_NUMBER.size))
            content = file.read(PAGE)
            if len(content) < PAGE:
                raise DeviceError(f"{self._path} ends too early")
            yield number, content


def read(path: Path) -> Checkpoint:
    """Raises :class:`DeviceError` if the file is not a checkpoint, or comes from a machine with another page size."""
    with path.open("rb") as file:
        start = file.read(_HEAD.size)
        if len(start) < _HEAD.size or start[:8] != _MAGIC:
            raise DeviceError(f"{path} is no checkpoint of netsum-memory")
        _, size, crc = _HEAD.unpack(start)
        text = file.read(size)
        if zlib.crc32(text) != crc:
            raise DeviceError(f"{path} is damaged: put it right from a copy, or give this device another folder")
        head = json.loads(text)
        if head["page"] != PAGE:
            raise DeviceError(f"{path} has pages of {head['page']} bytes; this machine's have {PAGE}")
        shards = [(state, Contents.of([file.read(size) for size in state["sizes"]])) for state in head["shards"]]
        return Checkpoint(path, head, file.tell(), shards)
