"""A shard as replication sees it: :class:`netsum_memory.replication.state_machine.StateMachine`."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final

from netsum_memory.dedup import NEW
from netsum_memory.message import Message, Send
from netsum_memory.replication.log import Record
from netsum_memory.shard import Shard
from netsum_memory.store import PAGE

PIECE: Final = 1024
"""Bytes of a copy's piece, small enough for the packets of every network."""

_DIGESTED: Final = struct.Struct(">BBHQQ")
_HEAD: Final = struct.Struct(">QQ")
_PAGE_AT: Final = struct.Struct(">Q")
_RECORD: Final = _PAGE_AT.size + PAGE


class ShardCopy:
    """A snapshot: the clients' replies, the kind's own state, and the pages that are not all zeros. A page is copied only when
    it changes."""

    def __init__(self, shard: Shard) -> None:
        windows, kind = shard.windows.save(), shard.kind.save(elsewhere=True)
        self._start = _HEAD.pack(len(windows), len(kind)) + windows + kind
        self._pages = shard.store.snapshot(shard.region.granules(shard.index), shard.region.granule)

    @property
    def pieces(self) -> int:
        return -(-(len(self._start) + _RECORD * len(self._pages)) // PIECE)

    def piece(self, number: int) -> bytes:
        start, end = number * PIECE, (number + 1) * PIECE
        begin, until = (max(0, each - len(self._start)) for each in (start, end))
        first = begin // _RECORD
        records = (self._record(index) for index in range(first, min(-(-until // _RECORD), len(self._pages))))
        return self._start[start:end] + b"".join(records)[begin - first * _RECORD : until - first * _RECORD]

    def _record(self, index: int) -> bytes:
        address, content = self._pages[index]
        return _PAGE_AT.pack(address) + content


class Contents:
    """One shard's."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._coming = bytearray()
        """The start of another device's copy that is not a whole page yet."""
        self._beside: tuple[bytes, bytes] | None = None
        """Its clients' replies and its kind's own state."""

    def digest(self, message: Message) -> int:
        header = message.header
        fields = header.instruction, header.lane, header.length, header.address, header.argument
        start = zlib.crc32(_DIGESTED.pack(*fields))
        if message.segments:
            start = zlib.crc32(repr(message.segments).encode(), start)
        return zlib.crc32(message.payload, start)

    def known(self, message: Message) -> Sequence[Send] | None:
        header = message.header
        noted = self._shard.windows.find(header.client, header.sequence)
        if noted is NEW:
            return None
        return self._shard.answers(self._shard.repeated(header, noted))

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

    def begin(self, position: int) -> None:  # noqa: ARG002
        shard = self._shard
        shard.begin_install()
        shard.store.clear(shard.region.granules(shard.index), shard.region.granule)
        self._coming.clear()
        self._beside = None

    def piece(self, data: bytes) -> None:
        coming = self._coming
        coming += data
        if self._beside is None and len(coming) >= _HEAD.size:
            windows, kind = _HEAD.unpack_from(coming)
            pages = _HEAD.size + windows + kind
            if len(coming) >= pages:
                self._beside = bytes(coming[_HEAD.size : pages - kind]), bytes(coming[pages - kind : pages])
                del coming[:pages]
        while self._beside is not None and len(coming) >= _RECORD:
            (address,) = _PAGE_AT.unpack_from(coming)
            self._shard.store.write(address, bytes(coming[_PAGE_AT.size : _RECORD]))
            del coming[:_RECORD]

    def finish(self, position: int) -> None:
        assert self._beside is not None
        self._shard.install(position, *self._beside)
        self._beside = None
