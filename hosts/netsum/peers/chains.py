# SPDX-License-Identifier: MIT
"""Blocks whose packets visit the members' memories one after the other: the *chains* of one member in one epoch.

A block's sum goes around a ring: the first rank sends its contribution, each one it visits adds its own and sends it on, and the
last one, the block's *owner*, stores the sum. From there the result goes around the ring, and each rank stores it. Which ring a
block takes and who owns it follow from its number alone (of floats: in their call), so that rings and ranks get equal shares.
Neighboring blocks share a packet as long as that is not larger than a packet of memory may be, and than the path takes.

Each member numbers the packets that it sends to another. A gap in the numbers makes the receiver READ what is missing from where
it should have come, at once; only what is lost last of all needs a timer. What was sent is kept for a window, after which the
other end has it for certain. Adding changes no memory, and a packet that comes twice is known by its number.

No socket and no thread; the clock is passed in.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from typing import Any, Final

import numpy as np

from netsum.core.blocks import ID_MASK, Block, id_distance
from netsum.descriptor import IP_UDP_BYTES, MULTICAST, Descriptor
from netsum.peers.batch import RankBatch
from netsum.peers.chain_route import ChainHop, ChainRoute, Lanes, added, parse_hop, shortened
from netsum.peers.rings import rings_of
from netsum.peers.stream import Gap, Incoming, Outgoing
from netsum.peers.wire import DATAGRAM, RANK
from netsum.stats import Stats
from netsum.wire.memory import (
    MAX_PAYLOAD,
    MAX_SEGMENTS,
    MEMORY_DTYPE,
    MEMORY_HEADER_BYTES,
    SEGMENT_BYTES,
    Flag,
    Instruction,
    LaneType,
    MemoryHeader,
    MemoryStatus,
    pack_memory,
)
from netsum.wire.schema import EVERYONE, Lane, Op

Frame = tuple[bytes, ...]
Stream = tuple[int, int]
"""Packets from this rank, of this area of it."""
_Sent = tuple[MemoryHeader, tuple[int, ...], bytes]

OWN, RESULTS, SENT, SENT_TO_ALL = range(4)
"""Areas of a rank's memory: its contributions and the results, by block id, and what it has sent, by number."""
_AREAS: Final = {Instruction.SUM_FORWARD: OWN, Instruction.STORE: RESULTS}
_RANK_BIT: Final = 48
_AREA_BIT: Final = 44
_TYPES: Final = {
    # No sum of a call carries from one lane into the next, so narrow ones are added several at a time, as in the switch.
    (Lane.L8, False): LaneType.UINT32,
    (Lane.L16, False): LaneType.UINT32,
    (Lane.L32, False): LaneType.UINT32,
    (Lane.L64, False): LaneType.UINT64,
    (Lane.L32, True): LaneType.FLOAT32,
    (Lane.L64, True): LaneType.FLOAT64,
}
_TAG: Final = MEMORY_DTYPE.fields["key"][1] if MEMORY_DTYPE.fields else 0
_TAG_BYTES: Final = 8
_PERSON: Final = b"netsum chains"


class Part:
    """The rows of one batch that go by chain. ``left``: the packets' blocks of which this rank still gets something."""

    def __init__(self, batch: RankBatch) -> None:
        self.batch = batch
        self.left = 0


@dataclass(slots=True)
class _Unit:
    """Blocks of one packet that have begun: ``rows`` of the batch, in lanes of ``width`` bytes. ``due`` are the areas that
    packets will still come to."""

    way: ChainRoute
    lane: LaneType
    width: int
    ours: Lanes
    part: Part
    rows: list[int]
    due: set[int]


class Chains:
    """The chains of one member, whose memory is the batches that it has begun."""

    def __init__(self, descriptor: Descriptor, ranks: Sequence[int], stats: Stats) -> None:
        """``ranks`` are those that are there."""
        self._descriptor = descriptor
        self._rank = descriptor.rank
        self._ranks = frozenset(ranks)
        self._stats = stats
        self._epoch = descriptor.epoch & ID_MASK
        self._keyed = blake2b(key=bytes.fromhex(descriptor.peer_key), digest_size=_TAG_BYTES, person=_PERSON)
        self._rings = rings_of(descriptor.algorithm, ranks)
        room = descriptor.mtu - IP_UDP_BYTES - MEMORY_HEADER_BYTES
        most = max(1, min(MAX_PAYLOAD, room - SEGMENT_BYTES) // descriptor.block_bytes)
        self._together = 1 << (most.bit_length() - 1)  # blocks of a packet
        self._segments = min(MAX_SEGMENTS, max(1, (room - self._together * descriptor.block_bytes) // SEGMENT_BYTES))
        places = [(ring, ring.index(self._rank)) for ring in self._rings]
        before = {ring[at - 1] for ring, at in places} - {self._rank}
        after = {ring[(at + 1) % len(ring)] for ring, at in places} - {self._rank}
        self._multicasts = descriptor.algorithm == MULTICAST
        others = self._ranks - {self._rank} if self._multicasts else set()
        self._incoming = {(rank, SENT): Incoming() for rank in sorted(before)}
        self._incoming |= {(rank, SENT_TO_ALL): Incoming() for rank in sorted(others)}
        self._outgoing: dict[int, Outgoing[_Sent]] = {rank: Outgoing() for rank in sorted(after)}
        self._receivers = {rank: {rank} for rank in self._outgoing}
        if self._multicasts:
            self._outgoing[EVERYONE], self._receivers[EVERYONE] = Outgoing(), set(others)
        self._units: dict[int, _Unit] = {}  # by the id of the first block
        self._early: dict[int, list[ChainHop]] = {}
        self._frames: list[Frame] = []

    # Blocks

    def takes(self, block: Block) -> bool:
        """True if the block's payload takes a chain: a sum, or one rank's bytes for everyone. All other
        blocks go as in any job without a switch."""
        if len(self._ranks) == 1:
            return False
        if block.op is Op.SUM:
            return block.source == EVERYONE and (block.lane, block.floats) in _TYPES
        return block.op is Op.COPY and block.source in self._ranks and block.dest == EVERYONE

    def begin(self, first_id: int, blocks: Sequence[Block], rows: Sequence[int], batch: RankBatch) -> Part:
        """Begin these ``rows`` of a batch; ``first_id`` is the id of its first block."""
        part = Part(batch)

        def packet(row: int) -> tuple[object, ...]:
            block = blocks[row]
            # Which way integers go only matters to the links. Floats are to have the same bits in every run.
            at = (block.number if block.floats else (first_id + row) & ID_MASK) // self._together
            return at, block.op, block.lane, block.floats, block.dest, block.source

        for (at, *_), group in groupby(rows, packet):
            together = list(group)
            self._begin(part, (first_id + together[0]) & ID_MASK, at, [blocks[row] for row in together], together)
        return part

    def _begin(self, part: Part, block_id: int, at: Any, blocks: Sequence[Block], rows: list[int]) -> None:
        """Begin the blocks of the packet with number ``at``."""
        like = blocks[0]
        dest = like.dest if like.dest in self._ranks else EVERYONE
        way = ChainRoute.of(at, like.op, dest, like.source, self._rings)
        lane = _TYPES[like.lane, like.floats] if like.op is Op.SUM else LaneType.BYTES
        due = {area for area, ring in ((OWN, way.sums), (RESULTS, way.stores)) if self._rank in ring[1:]}
        size = self._descriptor.block_bytes
        ours = b"".join([bytes(block.payload).ljust(size, b"\0") for block in blocks[:-1]] + [blocks[-1].payload])
        ours = ours if any(block.payload for block in blocks) else b""
        part.left += bool(due)
        width = like.lane.bytes if like.op is Op.SUM else 1
        unit = _Unit(way, lane, width, turned(np.frombuffer(ours, np.uint8), width), part, rows, due)
        self._units[block_id] = unit
        if (way.sums or way.stores)[0] == self._rank:
            self._send_on(Instruction.SUM_FORWARD if way.sums else Instruction.STORE, block_id, unit, unit.ours)
        for hop in self._early.pop(block_id, ()):
            self._take_hop(block_id, hop)

    def forget(self, block_id: int) -> None:
        """Every rank holds this block's result, and those before it."""
        self._units.pop(block_id, None)
        for link in self._outgoing.values():
            link.forget(block_id)

    def unsettled(self, gone: Collection[int]) -> list[tuple[int, int]]:
        """The receivers, apart from those that are ``gone``, that have not confirmed everything that was sent: each with
        whom it was sent to, itself or EVERYONE."""
        return [
            (rank, to)
            for to, link in self._outgoing.items()
            for rank in self._receivers[to]
            if rank not in gone and not link.settled(rank)
        ]

    def silent(self, queries: int) -> tuple[int, ...]:
        """The ranks that have left at least this many queries unanswered."""
        return tuple(sorted({rank for (rank, _), link in self._incoming.items() if link.unanswered >= queries}))

    # Packets

    def receive(self, data: memoryview, now: float, next_id: int, horizon: int) -> None:
        """Take a packet. ``next_id`` is the first block that has not begun; packets of ``horizon`` blocks from there on are kept
        until theirs begins."""
        self._stats.packets_received += 1
        self._stats.bytes_received += len(data)
        try:
            hop = self._checked(data)
        except ValueError:
            self._stats.malformed += 1
            return
        header, rank = hop.header, hop.header.client
        reply, area = bool(header.flags & Flag.REPLY), header.address >> _AREA_BIT & 0xF
        to = EVERYONE if area == SENT_TO_ALL else rank
        sent = SENT if header.address >> _RANK_BIT == self._rank else SENT_TO_ALL
        match header.instruction, reply:
            case (Instruction.SUM_FORWARD | Instruction.STORE, False) if (rank, sent) in self._incoming:
                self._arrived((rank, sent), hop, now, next_id, horizon)
            case (Instruction.READ, False) if rank in self._receivers.get(to, ()):
                self._repeat(rank, to, header)
            case (Instruction.READ, True) if (rank, area) in self._incoming:
                self._incoming[rank, area].answered(now)
            case (Instruction.NOP, False) if (rank, area) in self._incoming:
                self._answer((rank, area), header.sequence, now)
            case (Instruction.NOP, True) if rank in self._receivers.get(to, ()):
                self._outgoing[to].acknowledged(rank, header.sequence)
            case _:
                self._stats.malformed += 1

    def _checked(self, data: memoryview) -> ChainHop:
        hop = parse_hop(data)
        header = hop.header
        if header.key != self._tag(data[:_TAG], data[_TAG + _TAG_BYTES :]) or header.epoch != self._epoch:
            raise ValueError("not from a member in this epoch, or altered")
        if (
            header.address >> _RANK_BIT not in (self._rank, EVERYONE)
            or header.length > self._together * self._descriptor.block_bytes
        ):
            raise ValueError("for another rank, or too long")
        return hop

    def _arrived(self, stream: Stream, hop: ChainHop, now: float, next_id: int, horizon: int) -> None:
        header, link = hop.header, self._incoming[stream]
        block_id = self._number_of(header.address)
        known = block_id in self._units
        if id_distance(block_id, next_id) > horizon:
            self._stats.malformed += 1
            return
        if not link.take(header.sequence, now, again=bool(header.flags & Flag.REPEAT)):
            self._stats.duplicates += 1
            return
        self._request_gaps(stream, link.gaps(now))
        if known:
            self._take_hop(block_id, hop)
        elif id_distance(block_id, next_id) >= 0:
            self._early.setdefault(block_id, []).append(hop._replace(payload=hop.payload.copy()))
        else:
            self._stats.stale += 1  # of a block that does not go by chain here: the ranks' calls differ

    def _take_hop(self, block_id: int, hop: ChainHop) -> None:
        unit, area = self._units[block_id], _AREAS[Instruction(hop.header.instruction)]
        if area not in unit.due:
            self._stats.malformed += 1
            return
        unit.due.discard(area)
        unit.part.left -= not unit.due
        if area == RESULTS:
            self._store(unit, hop.payload)
            self._send_on(Instruction.STORE, block_id, unit, hop.payload, hop.segments)
            return
        total = added(hop.payload, unit.ours, unit.lane)
        if unit.way.sums[-1] != self._rank:
            self._send_on(Instruction.SUM_FORWARD, block_id, unit, total, hop.segments)
            return
        self._store(unit, total)
        self._send_on(Instruction.STORE, block_id, unit, total)

    def _store(self, unit: _Unit, payload: Lanes) -> None:
        size, lanes = self._descriptor.block_bytes, turned(payload, unit.width)
        for number, row in enumerate(unit.rows):
            unit.part.batch.store(row, lanes[number * size : (number + 1) * size])

    def _send_on(
        self, instruction: Instruction, block_id: int, unit: _Unit, payload: Lanes, segments: tuple[int, ...] = ()
    ) -> None:
        """Send it to the first of its segments. If it has none left, it gets those that follow on the block's way, if any."""
        if not segments:
            ring = unit.way.sums if instruction is Instruction.SUM_FORWARD else unit.way.stores
            following = ring[ring.index(self._rank) + 1 :][: self._segments + 1]
            if self._multicasts and instruction is Instruction.STORE:
                following = (EVERYONE,) if ring[0] == self._rank and following else ()
            segments = tuple(self._address(rank, _AREAS[instruction], block_id) for rank in following)
        if not segments:
            return
        peer = segments[0] >> _RANK_BIT
        if peer not in self._outgoing:
            self._stats.malformed += 1  # its sender knows other rings
            return
        link = self._outgoing[peer]
        header, short = shortened(MemoryHeader(instruction, segments[0], lane=unit.lane, sequence=link.next), payload)
        link.sent(block_id, (header, segments[1:], short))
        self._post(peer, header, segments[1:], short)

    # What is missing

    def _request_gaps(self, stream: Stream, gaps: Sequence[Gap]) -> None:
        """READ packets of these numbers, from the first to the last."""
        rank, area = stream
        for first, last in gaps:
            self._stats.reads += 1
            self._post(rank, MemoryHeader(Instruction.READ, self._address(rank, area, first), argument=last))

    def _repeat(self, rank: int, to: int, header: MemoryHeader) -> None:
        """Send again what was sent from one number to another; if nothing was, say that there is nothing."""
        packets = self._outgoing[to].between(self._number_of(header.address), header.argument & ID_MASK)
        for each, segments, short in packets:
            self._post(rank, each._replace(flags=each.flags | Flag.REPEAT), segments, short)
        self._stats.retransmissions += len(packets)
        if not packets:
            reply = MemoryHeader(Instruction.READ, flags=Flag.REPLY, status=MemoryStatus.BUSY)
            self._post(rank, reply._replace(address=self._address(rank, _area(to), 0)))

    def _answer(self, stream: Stream, following: int, now: float) -> None:
        """The other end tells the number of its next packet. Tell it the first that is missing here."""
        link, (rank, area) = self._incoming[stream], stream
        link.expect(following)
        self._request_gaps(stream, link.gaps(now))
        nop = MemoryHeader(Instruction.NOP, self._address(rank, area, 0), flags=Flag.REPLY, sequence=link.lacking)
        self._post(rank, nop)

    def announce_sent(self, gone: Collection[int]) -> None:
        """Tell the others how much was sent; they answer how much of it they have."""
        for rank, to in self.unsettled(gone):
            number = self._outgoing[to].next
            self._post(rank, MemoryHeader(Instruction.NOP, self._address(rank, _area(to), 0), sequence=number))

    def poll(self, now: float, *, waiting: bool, listened: bool) -> list[Frame]:
        """The frames to send now. ``waiting``: this member waits for others, and asks if nothing comes for long; but only if it
        has ``listened``: whatever has come is taken."""
        for stream, link in self._incoming.items() if listened or not waiting else ():
            self._request_gaps(stream, link.overdue(now, waiting=waiting))
        frames, self._frames = self._frames, []
        return frames

    def next_deadline(self) -> float | None:
        return min((link.due for link in self._incoming.values() if link.due is not None), default=None)

    # Frames

    def _address(self, rank: int, area: int, number: int) -> int:
        return rank << _RANK_BIT | area << _AREA_BIT | number * self._descriptor.block_bytes

    def _number_of(self, address: int) -> int:
        return address % (1 << _AREA_BIT) // self._descriptor.block_bytes & ID_MASK

    def _post(self, rank: int, header: MemoryHeader, segments: Sequence[int] = (), payload: bytes = b"") -> None:
        bare = pack_memory(header._replace(client=self._rank, epoch=self._epoch, key=0), segments)
        head, tail = bare[:_TAG], bare[_TAG + _TAG_BYTES :]
        packet = head + self._tag(head, tail, payload).to_bytes(_TAG_BYTES, "big") + tail
        self._stats.packets_sent += 1
        self._stats.bytes_sent += len(packet) + len(payload)
        self._frames.append((RANK.pack(rank) + DATAGRAM + packet, payload))

    def _tag(self, *parts: bytes | memoryview) -> int:
        """The proof that a packet is a member's of this epoch, and unaltered: it takes the place of a region's key."""
        tag = self._keyed.copy()
        for part in parts:
            tag.update(part)
        return int.from_bytes(tag.digest(), "big")


def _area(to: int) -> int:
    return SENT_TO_ALL if to == EVERYONE else SENT


def turned(payload: Lanes, width: int) -> Lanes:
    """The payload in the byte order of memory instead of that of blocks, or the other way round; lanes have ``width`` bytes."""
    return payload.view(f"u{width}").byteswap().view(np.uint8) if width > 1 else payload
