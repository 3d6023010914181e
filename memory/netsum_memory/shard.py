# SPDX-License-Identifier: MIT
"""One shard on this device: its contents, the log of what was done to them, and the replies that were given."""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from netsum.transports.udp import region_group
from netsum.wire.memory import (
    MAX_SEGMENTS,
    MEMORY_HEADER_BYTES,
    Flag,
    Instruction,
    MemoryHeader,
    MemoryStatus,
    pack_position,
    parse_memory,
    parse_position,
    position_seed,
    tagged,
)

from netsum_memory import execute, message
from netsum_memory.dedup import NEW, Absent, DedupWindows, Noted
from netsum_memory.execute import Result
from netsum_memory.message import Address, MemoryMessage, Send
from netsum_memory.region import Assignment
from netsum_memory.region_types import RegionType
from netsum_memory.replication.log import LogRecord
from netsum_memory.store import PAGE, Store

Route = Callable[[int], Address]
"""To whom a packet for a virtual address goes."""


class Journal(Protocol):
    """Keeps what outlives the process."""

    def appended(self, shard: Shard, position: int, epoch: int, done: MemoryMessage) -> None:
        """An instruction was appended to its log."""

    def cut(self, shard: Shard, position: int) -> None:
        """Its log ends before this position now."""

    def executed(self, shard: Shard) -> None:
        """It has done the next instruction of its log."""

    def changed(self, shard: Shard) -> None:
        """It is in another epoch, or its contents have become void."""

    def installed(self, shard: Shard) -> None:
        """It has received another device's contents."""


class Reply(NamedTuple):
    """``header`` is the request's, or as much of it as is known."""

    header: MemoryHeader
    result: Result


class Shard:
    """Knows nothing of other devices: in what order instructions come, when they are done, and when replies may leave, is an
    :class:`~netsum_memory.ordering.Ordering`'s to say.

    Attributes:
        position: of the last instruction done; the first has position 1.
        tail: what the log has behind that, with the epochs in which it got there.
        number: this device's place in the group, 0 for the primary.
        behind: whether a client has shown that something is gone which this device had: no client is shown anything then.
        whole: whether it holds everything up to ``position``; not while another device's contents are being copied here.
        journal: is told what is to be kept; None if nothing is.
    """

    def __init__(
        self,
        assignment: Assignment,
        host: str,
        store: Store,
        kind: RegionType,
        *,
        homes: dict[int, Address],
        route: Route,
    ) -> None:
        self.host, self.store, self.kind = host, store, kind
        self.region, self.index = assignment.region, assignment.shard
        self.id = self.region.id, self.index
        self.position = 0
        self.tail: deque[tuple[int, MemoryMessage]] = deque()
        self.whole = True
        self.behind = False
        self.windows = DedupWindows()
        self._seed = position_seed(self.region.keys.device, *self.id)
        self.journal: Journal | None = None
        self._homes, self._route = homes, route
        self.assign(assignment)

    def assign(self, assignment: Assignment) -> None:
        """Take part in another epoch."""
        self.assignment = assignment
        self.region = assignment.region
        self.epoch, self.group, self.lost = assignment.epoch, assignment.group, assignment.lost
        self._everybody = region_group(self.region.id)
        number = assignment.number(self.host)
        self.number = len(self.group) if number is None else number
        self.primary = number == 0
        if self.journal is not None:
            self.journal.changed(self)

    @property
    def packed_position(self) -> int:
        """The position that replies show."""
        return pack_position(self.position, self._seed)

    def shown(self, packed: int) -> int:
        """The position that a client was told; 0 if it is none of this shard."""
        return parse_position(packed, self._seed) or 0

    def fall_behind(self) -> None:
        """The contents here are older than what clients were told; that is kept."""
        self.behind = True
        if self.journal is not None:
            self.journal.changed(self)

    def known(self, header: MemoryHeader) -> Noted | Absent:
        """The outcome of this instruction."""
        return self.windows.find(header.client, header.sequence)

    def append(self, position: int, epoch: int, coming: MemoryMessage) -> None:
        """An instruction that is NEW has its place in the log."""
        self.tail.append((epoch, coming))
        if self.journal is not None:
            self.journal.appended(self, position, epoch, coming)

    def cut(self, position: int) -> None:
        """Drop the log from this position on."""
        while self.position + len(self.tail) >= position and self.tail:
            self.tail.pop()
        if self.journal is not None:
            self.journal.cut(self, position)

    def apply(self) -> list[Reply]:
        """Do the log's next instruction; returns the replies that it brings about."""
        _, done = self.tail.popleft()
        self.position += 1
        if self.journal is not None:
            self.journal.executed(self)
        outcome = self.kind.execute(done, self.position)
        self.windows.note(done.header, outcome.result)
        replies = [] if outcome.result is None else [Reply(done.header, outcome.result)]
        for client, sequence, result in outcome.others:
            noted = self.windows.settle(client, sequence, result)
            if noted is not None:
                replies.append(Reply(noted.header(client, sequence, *self.id), result))
        return replies

    def repeated(self, header: MemoryHeader, noted: Noted | Absent) -> list[Reply]:
        """The replies to an instruction that is not NEW."""
        if isinstance(noted, Absent):
            return [Reply(header, Result(MemoryStatus.EXPIRED))]
        return [] if noted.result is None else [Reply(header, noted.result._replace(shared=False))]

    def answers(self, replies: Sequence[Reply]) -> list[Send]:
        """The replies as packets."""
        shared = [reply for reply in replies if reply.result.shared]
        sends = [
            (self._everybody, self._pack_shared(shared[at : at + MAX_SEGMENTS])) for at in range(0, len(shared), MAX_SEGMENTS)
        ]
        for header, result in replies:
            home = self._homes.get(header.client)
            if home is not None and not result.shared:
                sends.append((home, self._pack(header, result)))
        return sends

    def _pack(self, header: MemoryHeader, result: Result) -> bytes:
        return message.reply(
            header,
            result.status,
            result.payload,
            replica=self.number,
            epoch=self.epoch,
            argument=result.argument,
            lane=result.lane,
            of=self.id,
            position=self.packed_position,
        )

    def _pack_shared(self, replies: Sequence[Reply]) -> bytes:
        header, result = replies[0]
        packet = self._pack(header._replace(client=0, sequence=0), result)
        blank, payload = parse_memory(packet), packet[MEMORY_HEADER_BYTES:]
        blank = blank._replace(flags=blank.flags | Flag.SHARED)
        return tagged(self.region.keys.write, blank, payload, [(each.client, each.sequence) for each, _ in replies])

    def look(self, request: MemoryMessage) -> list[Send]:
        """Do what changes nothing here: answer, or send a chain's packet on."""
        if request.header.instruction == Instruction.SUM_FORWARD:
            onward = execute.pass_on(request, self.store)
            return [(self._route(onward.header.address), onward.pack_thin())]
        return self.answers([Reply(request.header, self.kind.read(request))])

    def begin_install(self) -> None:
        """Another device's contents are about to be copied into the store."""
        self.whole = False
        self.position = 0
        self.windows = DedupWindows()
        self.tail.clear()
        if self.journal is not None:
            self.journal.changed(self)

    def install(self, position: int, windows: bytes, kind: bytes) -> None:
        """The store holds another device's contents as of ``position``; take the rest of them."""
        self.windows = DedupWindows.load(windows)
        self.kind.load(kind)
        self.position, self.whole = position, True
        self.tail.clear()
        if self.journal is not None:
            self.journal.installed(self)


# A shard as replication sees it: :class:`netsum_memory.replication.log.StateMachine`.


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

    def digest(self, message: MemoryMessage) -> int:
        header = message.header
        fields = header.instruction, header.lane, header.length, header.address, header.argument
        start = zlib.crc32(_DIGESTED.pack(*fields))
        if message.segments:
            start = zlib.crc32(repr(message.segments).encode(), start)
        return zlib.crc32(message.payload, start)

    def known(self, message: MemoryMessage) -> Sequence[Send] | None:
        header = message.header
        noted = self._shard.windows.find(header.client, header.sequence)
        if noted is NEW:
            return None
        return self._shard.answers(self._shard.repeated(header, noted))

    def entered(self, epoch: int) -> None:
        """The shard's own journal has it with the assignment."""

    def append(self, position: int, record: LogRecord[MemoryMessage]) -> None:
        self._shard.append(position, record.epoch, record.message)

    def cut(self, position: int) -> None:
        self._shard.cut(position)

    def execute(self, position: int, message: MemoryMessage) -> Sequence[Send]:  # noqa: ARG002 - the shard's log has it, too
        replies = self._shard.apply()
        return self._shard.answers(replies) if self._shard.primary else ()

    def look(self, message: MemoryMessage) -> Sequence[Send]:
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
