"""A shard as replication sees it: :class:`netsum_memory.replication.machine.Machine`."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from netsum_memory.message import Message, Send
from netsum_memory.replication.log import Record
from netsum_memory.shard import Shard
from netsum_memory.store import PAGE
from netsum_memory.windows import Absent

PIECE: Final = 1024
"""Bytes of a copy's piece: they fit every network's packets."""

_DIGESTED: Final = struct.Struct(">BBHQQ")
_HEAD: Final = struct.Struct(">QQ")
_PAGE_AT: Final = struct.Struct(">Q")
_NOTHING: Final = bytes(PAGE)


class ShardCopy:
    """Pages that are not all zeros, the clients' replies and what the kind has beside: all as it was."""

    def __init__(self, shard: Shard) -> None:
        windows, kind = shard.windows.save(), shard.kind.save(elsewhere=True)
        parts = [_HEAD.pack(len(windows), len(kind)), windows, kind]
        for at in _pages(shard):
            page = shard.store.read(at, PAGE)
            if page != _NOTHING:
                parts += (_PAGE_AT.pack(at), page)
        self._bytes = b"".join(parts)

    @property
    def pieces(self) -> int:
        return -(-len(self._bytes) // PIECE)

    def piece(self, number: int) -> bytes:
        return self._bytes[number * PIECE : (number + 1) * PIECE]


def _pages(shard: Shard) -> Iterator[int]:
    region = shard.region
    for granule in region.granules(shard.index):
        yield from range(granule, granule + region.granule, PAGE)


class Contents:
    """One shard's."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._coming: list[bytes] = []

    def digest(self, message: Message) -> int:
        header = message.header
        fields = header.instruction, header.lane, header.length, header.address, header.argument
        start = zlib.crc32(_DIGESTED.pack(*fields))
        if message.segments:
            start = zlib.crc32(repr(message.segments).encode(), start)
        return zlib.crc32(message.payload, start)

    def known(self, message: Message) -> Sequence[Send] | None:
        noted = self._shard.known(message.header)
        if noted is Absent.NEW:
            return None
        return self._shard.answers(self._shard.repeated(message.header, noted))

    def entered(self, epoch: int) -> None:
        """The shard's own journal has it with the assignment."""

    def append(self, position: int, record: Record[Message]) -> None:
        self._shard.append(position, record.epoch, record.message)

    def cut(self, position: int) -> None:
        self._shard.cut(position)

    def execute(self, position: int, message: Message) -> Sequence[Send]:  # noqa: ARG002 - the shard's log has it, too
        replies = self._shard.apply()
        return self._shard.answers(replies) if self._shard.primary else ()

    def look(self, message: Message) -> Sequence[Send]:
        return self._shard.look(message)

    def copy(self) -> ShardCopy:
        return ShardCopy(self._shard)

    def begin(self, position: int, pieces: int) -> None:  # noqa: ARG002
        shard = self._shard
        shard.begin_install()
        shard.store.clear(shard.region.granules(shard.index), shard.region.granule)
        self._coming = [b""] * pieces

    def piece(self, number: int, data: bytes) -> None:
        self._coming[number] = data

    def finish(self, position: int) -> None:
        data = b"".join(self._coming)
        self._coming = []
        windows, kind = _HEAD.unpack_from(data)
        pages = _HEAD.size + windows + kind
        for at in range(pages, len(data), _PAGE_AT.size + PAGE):
            (address,) = _PAGE_AT.unpack_from(data, at)
            self._shard.store.write(address, data[at + _PAGE_AT.size : at + _PAGE_AT.size + PAGE])
        end = _HEAD.size + windows
        self._shard.install(position, data[_HEAD.size : end], data[end:pages])
