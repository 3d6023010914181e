# SPDX-License-Identifier: MIT
"""Messages between the devices of a shard. Each carries its epoch, and counts in that epoch only."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from netsum.wire.memory import MAX_SEGMENTS, Instruction, MemoryHeader

from netsum_memory.message import MemoryMessage


class OrderEntry(NamedTuple):
    """A record without its payload. ``digest`` tells two instructions of one name apart, should a client have sent two."""

    epoch: int
    digest: int
    name: tuple[int, int]


class Order(NamedTuple):
    """Primary to all: the entries from position ``first`` on, where the log ends and how far it is executed."""

    epoch: int
    first: int
    entries: tuple[OrderEntry, ...]
    end: int
    committed: int


class Ack(NamedTuple):
    """To the primary: my log is yours up to ``position``, and executed up to ``executed``. ``ready``: I know that I am waited
    for."""

    epoch: int
    position: int
    executed: int
    ready: bool


class Counted(NamedTuple):
    """To a device that was joining: from ``position`` on nothing is done without you."""

    epoch: int
    position: int


class Fetch(NamedTuple):
    """To the primary: send me the record at ``position``; if it is of epoch ``mine``, I have it, and need to be told only
    that."""

    epoch: int
    position: int
    mine: int


class Given(NamedTuple):
    """The record asked for."""

    epoch: int
    position: int
    of: int  # the record's own epoch
    message: Any


class Offer(NamedTuple):
    """In place of a forgotten record: a copy of the whole shard as of ``position``."""

    epoch: int
    position: int
    pieces: int


class FetchPiece(NamedTuple):
    epoch: int
    position: int
    number: int


class Piece(NamedTuple):
    """A piece of the copy as of ``position``."""

    epoch: int
    position: int
    number: int
    data: bytes


PeerMessage = Order | Ack | Counted | Fetch | Given | Offer | FetchPiece | Piece


# Messages as packets: an instruction's header, whose fields mean something else between devices.
#
#     ORDER    argument: first position, address: how far the primary has executed; payload: end of the log, entries
#     ACK      argument: position, address: how far it is executed; status: 0 or 1 (ready), 2 (from the primary: you are
#              waited for)
#     RECORD   argument: position; status says what it is:
#              0 ask (address: epoch of what I have there), 1 the record, 2 a copy is offered instead (address: its pieces),
#              3 ask for a piece (address: its number), 4 the piece
#
# A record's packet is only two segments longer than the instruction's own, so that it fits the same links.


RECORD_SEGMENTS: Final = MAX_SEGMENTS - 2
"""Most segments of an instruction in a log. None that changes memory uses more."""

_END: Final = struct.Struct(">Q")
_ENTRY: Final = struct.Struct(">IIQI")
_COUNTED: Final = 2
_FETCH, _GIVEN, _OFFER, _FETCH_PIECE, _PIECE = range(5)


def pack(peer_message: PeerMessage, blank: MemoryHeader) -> bytes:
    """The packet; ``blank`` has the shard, the group's key and the sender's number."""
    header = blank._replace(epoch=peer_message.epoch)
    segments: tuple[int, ...] = ()
    payload = b""
    if isinstance(peer_message, Order):
        header = _filled(header, Instruction.ORDER, peer_message.first, address=peer_message.committed)
        entries = (_ENTRY.pack(each.epoch, each.digest, *each.name) for each in peer_message.entries)
        payload = _END.pack(peer_message.end) + b"".join(entries)
    elif isinstance(peer_message, Ack):
        header = _filled(header, Instruction.ACK, peer_message.position, int(peer_message.ready), peer_message.executed)
    elif isinstance(peer_message, Counted):
        header = _filled(header, Instruction.ACK, peer_message.position, _COUNTED)
    elif isinstance(peer_message, Fetch):
        header = _filled(header, Instruction.RECORD, peer_message.position, _FETCH, peer_message.mine)
    elif isinstance(peer_message, Offer):
        header = _filled(header, Instruction.RECORD, peer_message.position, _OFFER, peer_message.pieces)
    elif isinstance(peer_message, FetchPiece):
        header = _filled(header, Instruction.RECORD, peer_message.position, _FETCH_PIECE, peer_message.number)
    elif isinstance(peer_message, Piece):
        header = _filled(header, Instruction.RECORD, peer_message.position, _PIECE, peer_message.number)
        payload = peer_message.data
    else:
        header, segments, payload = _record(header, peer_message)
    return MemoryMessage(header, segments, payload).pack()


def _filled(header: MemoryHeader, instruction: int, position: int, status: int = 0, address: int = 0) -> MemoryHeader:
    return header._replace(instruction=int(instruction), argument=position, status=status, address=address)


def _record(header: MemoryHeader, peer_message: Given) -> tuple[MemoryHeader, tuple[int, ...], bytes]:
    inner, segments, payload, _ = peer_message.message
    header = _filled(header, Instruction.RECORD, peer_message.position, _GIVEN, inner.address)
    header = header._replace(client=inner.client, sequence=inner.sequence, lane=inner.lane, length=inner.length)
    return header, (*segments, inner.argument, peer_message.of << 8 | inner.instruction), payload


def parse(order: MemoryMessage) -> PeerMessage | None:
    """The message in a packet, or None if there is none."""
    header, segments, payload, _ = order
    epoch, position, address, status = header.epoch, header.argument, header.address, header.status
    if header.instruction == Instruction.ORDER:
        return _order(header, payload)
    if header.instruction == Instruction.ACK:
        return Counted(epoch, position) if status == _COUNTED else Ack(epoch, position, address, bool(status))
    if header.instruction != Instruction.RECORD:
        return None
    if status == _GIVEN:
        return _given(header, segments, payload) if len(segments) >= 2 else None
    if status == _PIECE:
        return Piece(epoch, position, address, payload)
    if status == _FETCH:
        return Fetch(epoch, position, address)
    if status == _OFFER:
        return Offer(epoch, position, address)
    return FetchPiece(epoch, position, address) if status == _FETCH_PIECE else None


def _order(header: MemoryHeader, payload: bytes) -> Order | None:
    if len(payload) < _END.size or (len(payload) - _END.size) % _ENTRY.size:
        return None
    (end,) = _END.unpack_from(payload)
    rows = _ENTRY.iter_unpack(memoryview(payload)[_END.size :])
    entries = tuple(OrderEntry(epoch, digest, (client, sequence)) for epoch, digest, client, sequence in rows)
    return Order(header.epoch, header.argument, entries, end, header.address)


def _given(header: MemoryHeader, segments: tuple[int, ...], payload: bytes) -> Given:
    *own, argument, last = segments
    inner = MemoryHeader(
        last & 0xFF,
        header.address,
        header.length,
        client=header.client,
        sequence=header.sequence,
        lane=header.lane,
        segments=len(own),
        argument=argument,
    )
    return Given(header.epoch, header.argument, last >> 8, MemoryMessage(inner, tuple(own), payload))
