# SPDX-License-Identifier: MIT
"""Messages to memory devices."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from enum import IntEnum, IntFlag
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np

from netsum.wire.codec import packing
from netsum.wire.schema import (
    Field,
    byte_groups,
)

# The wire of memory in the network, defined once, as data: header, instructions, refusals, limits.
#
# Ethernet / IPv4 / UDP port 12001 / header (56 bytes) / segments (8 bytes each) / payload. Header and segments are big-
# endian; a payload is the memory's own bytes, so its lanes are little-endian, and a device adds them without turning
# them round.
#
# Everything that reads or writes such a packet is made from this file, as from :mod:`netsum.wire.schema`.


MEMORY_VERSION: Final = 1
"""Version of the header; a packet of another version is malformed."""

MEMORY_PORT: Final = 12001
"""UDP destination port of a request, source port of a reply."""

MAX_PAYLOAD: Final = 8192
"""Bytes that one instruction can be about: 2,048 float32."""

ADDRESS_STEP: Final = 8192
"""An instruction crosses no multiple of this in its address, so a client need not know how memory is spread over devices."""

MAX_SEGMENTS: Final = 16
SEGMENT_BYTES: Final = 8
"""A segment is an address, where the instruction goes next."""

CLIENT_WINDOW: Final = 256
"""Instructions that a client may have in progress: it sends sequence s once all up to s - CLIENT_WINDOW are complete. So a device
need not keep more replies of a client than these. When its numbers are used up, a client takes a new number for itself."""
LAST_SEQUENCE: Final = (1 << 32) - 1

MEMORY_FIELDS: Final = (
    Field("version", 4, "version of this header"),
    Field("reserved", 4, "0"),
    Field("instruction", 8, "what to do, see Instruction"),
    Field("flags", 8, "see Flag"),
    Field("status", 8, "on a reply: the outcome, see MemoryStatus; else 0"),
    Field("lane", 8, "type of the lanes, see LaneType"),
    Field("segments", 8, "segments behind the header"),
    Field("length", 16, "bytes of the payload before compression; READ and COPY: bytes wanted"),
    Field("shard", 16, "0 from clients: the switch writes the shard's number in its region"),
    Field("replica", 16, "on a reply: the device's number in the shard's group, 0 is the primary"),
    Field("epoch", 32, "0 from clients: the switch writes the shard's epoch"),
    Field("region", 32, "0 from clients: the switch writes the region's id"),
    Field("sequence", 32, "serial number of the client's instruction, from 1; never wraps"),
    Field("client", 64, "random number of the client's life"),
    Field("key", 64, "access key of the region; on a reply: the shard's position"),
    Field("address", 64, "virtual address of the first byte"),
    Field("argument", 64, "by instruction: the last position that the client was told; COPY's source; step and worker"),
)
"""The header, in wire order."""

MEMORY_HEADER_BYTES: Final = sum(field.bits for field in MEMORY_FIELDS) // 8
MAX_MESSAGE: Final = MEMORY_HEADER_BYTES + MAX_SEGMENTS * SEGMENT_BYTES + MAX_PAYLOAD
"""The largest UDP payload."""


class Instruction(IntEnum):
    """The instruction of a packet to the memory at its address."""

    NOP = 0  # answer, nothing else
    READ = 1  # the reply brings `length` bytes
    WRITE = 2  # the payload replaces what is there
    ADD = 3  # the payload's lanes are added; integers wrap
    MIN = 4  # each lane becomes the smaller one
    MAX = 5  # each lane becomes the larger one
    SUM_FORWARD = 6  # add what is here to the payload and send it to the next segment; at the last, store it
    FETCH_ADD = 7  # ADD, and the reply brings what was there before
    COMPARE_SWAP = 8  # payload: expected, wanted (half each); the reply brings what was there before
    COPY = 9  # `length` bytes from the address in `argument`
    OPTIMIZE = 10  # the payload is a worker's gradient; `argument`: step (high half), worker (low half)
    LOOKUP = 11  # the payload is keys; the reply brings their rows
    PUSH = 12  # the payload is keys, then their gradients
    # Among devices:
    ORDER = 16  # (client, sequence) has position `argument` in the shard's log
    ACK = 17  # the backup has done all up to position `argument`
    RECORD = 18  # send me the log's record at position `argument`
    STORE = 19  # what a chain writes at all its ranks


class Flag(IntFlag):
    """Bits of ``flags``."""

    REPLY = 1  # an answer, to a client or to a device
    REPLICATED = 2  # the switch has sent this to more than one device
    COMPRESSED = 4  # the payload's zeros are left out, see netsum.wire.codec
    REPEAT = 8  # the client has sent this before
    SHARED = 16  # the reply may go to many at once; on a reply: it does, and its segments are their tags
    POSITION = 32  # the last segment is the position that the client was told, since the argument is something else


class LaneType(IntEnum):
    """Type of the lanes that an instruction computes with; a payload is a whole number of lanes."""

    BYTES = 0
    INT32 = 1
    INT64 = 2
    FLOAT32 = 3
    FLOAT64 = 4
    UINT32 = 5
    UINT64 = 6

    @property
    def dtype(self) -> str:
        """numpy's name of it, in the byte order of the memory."""
        return ("u1", "<i4", "<i8", "<f4", "<f8", "<u4", "<u8")[self]

    @property
    def bytes(self) -> int:
        return (1, 4, 8, 4, 8, 4, 8)[self]


class MemoryStatus(IntEnum):
    """Outcome of an instruction, on its reply. All but OK and MISMATCH are refusals: nothing was done."""

    OK = 0  # done
    MALFORMED = 1  # lengths, segments or version make no sense
    UNSUPPORTED = 2  # no such instruction, or not in this kind of region
    NO_REGION = 3  # no region has that address
    FORBIDDEN = 4  # the key is not the region's, or lacks the right
    CROSSES = 5  # crosses a multiple of ADDRESS_STEP
    BOUNDS = 6  # leaves the region
    ALIGNMENT = 7  # address or length is not a whole number of lanes
    MISMATCH = 8  # COMPARE_SWAP found another value, which the payload is
    NOT_PRIMARY = 10  # the device is not the shard's primary (any more): send it again
    LOST = 11  # the memory is gone: its devices are, and there was no replica
    BUSY = 12  # come again
    EXPIRED = 13  # the sequence number is older than the client's window
    TYPE = 14  # the lane type is not the region's, or the instruction takes no lanes of that type


KNOWN: Final = frozenset(Instruction)
POSITIONED: Final = frozenset(
    {
        *(Instruction.NOP, Instruction.READ, Instruction.WRITE, Instruction.ADD, Instruction.MIN, Instruction.MAX),
        *(Instruction.FETCH_ADD, Instruction.COMPARE_SWAP, Instruction.LOOKUP, Instruction.PUSH),
    }
)
"""Requests whose ``argument`` is the last position of the shard that the client was told; 0 if there was none."""
IDEMPOTENT: Final = frozenset({Instruction.NOP, Instruction.READ, Instruction.LOOKUP})
"""May be done any number of times, so they are sent to a shard's primary alone; all others are done exactly once."""
INTERNAL: Final = frozenset({Instruction.ORDER, Instruction.ACK, Instruction.RECORD, Instruction.STORE})
"""Messages between devices; not from clients."""
CHANGING: Final = KNOWN - IDEMPOTENT - INTERNAL
"""Change the memory: every device of the shard gets them."""
ARITHMETIC: Final = frozenset({Instruction.ADD, Instruction.MIN, Instruction.MAX, Instruction.SUM_FORWARD, Instruction.FETCH_ADD})
"""Compute with lanes, so their type is not BYTES."""
WITHOUT_PAYLOAD: Final = frozenset({Instruction.NOP, Instruction.READ, Instruction.COPY})
"""Requests whose ``length`` is not their payload's."""
AGAIN: Final = frozenset({MemoryStatus.NOT_PRIMARY, MemoryStatus.BUSY})
"""Refusals after which a client sends the same again, until its deadline."""


# Packs and parses packets of memory in the network: one by one as tuples, or many at once as rows of an array.


class MemoryHeader(NamedTuple):
    """The header as a tuple of ints. ``reserved`` is not in it: it is sent as 0 and not looked at."""

    instruction: int
    address: int = 0
    length: int = 0
    key: int = 0
    client: int = 0
    sequence: int = 0
    flags: int = 0
    status: int = 0
    lane: int = 0
    segments: int = 0
    argument: int = 0
    shard: int = 0
    replica: int = 0
    epoch: int = 0
    region: int = 0
    version: int = MEMORY_VERSION


_pack, parse_memory = packing(MEMORY_FIELDS, MemoryHeader, "memory header")
"""``parse_memory(data)`` is the header at the start of ``data``; fewer than 56 bytes raise :class:`ValueError`."""

MEMORY_DTYPE: Final = np.dtype(
    {
        "names": [members[0][0].name for _, _, members in byte_groups(MEMORY_FIELDS)],
        "formats": [f">u{size}" for _, size, _ in byte_groups(MEMORY_FIELDS)],
        "offsets": [offset for offset, _, _ in byte_groups(MEMORY_FIELDS)],
        "itemsize": MEMORY_HEADER_BYTES,
    }
)
"""A header as numpy sees it, for many at once: ``rows[:, :MEMORY_HEADER_BYTES].view(MEMORY_DTYPE)``. ``version`` is the whole
first byte here: VERSION_BYTE in every packet of ours."""


OFFSETS: Final = {members[0][0].name: offset for offset, _, members in byte_groups(MEMORY_FIELDS)}
"""The byte of the header at which a field begins, for fields of whole bytes."""
VERSION_BYTE: Final = MEMORY_VERSION << 4


def pack_memory(header: MemoryHeader, segments: Sequence[int] = ()) -> bytes:
    """Header and segments; ``segments`` of the header is counted here."""
    if not segments:
        return _pack(header)
    return _pack(header._replace(segments=len(segments))) + struct.pack(f">{len(segments)}Q", *segments)


def split_memory(header: MemoryHeader, data: memoryview) -> tuple[tuple[int, ...], memoryview]:
    """The packet's segments and its payload. Raises :class:`ValueError` if there are too many segments, or bytes for fewer."""
    end = MEMORY_HEADER_BYTES + SEGMENT_BYTES * header.segments
    if header.segments > MAX_SEGMENTS or len(data) < end:
        raise ValueError(f"a packet of {len(data)} bytes cannot hold {header.segments} segments")
    return struct.unpack(f">{header.segments}Q", data[MEMORY_HEADER_BYTES:end]), data[end:]


# Positions in a shard's log as packets carry them: 48 bits, and 16 bits of a checksum over the position, the shard and
# a key.
#
# A reply says how far the shard is, and a client shows the last of these in its requests. A device that is behind it
# has lost memory: so a damaged number, or one of another shard, must not be taken for a position.


CHECK_BITS: Final = 16
_SHARD: Final = struct.Struct(">QIH")
_POSITION: Final = struct.Struct(">Q")
_CHECK: Final = (1 << CHECK_BITS) - 1


def position_seed(device_key: int, region: int, shard: int) -> int:
    """The first word of a shard's checksums."""
    return zlib.crc32(_SHARD.pack(device_key, region, shard))


def pack_position(position: int, seed: int) -> int:
    return position << CHECK_BITS | zlib.crc32(_POSITION.pack(position), seed) & _CHECK


def parse_position(packed: int, seed: int) -> int | None:
    """The position, or None if the checksum is wrong."""
    position = packed >> CHECK_BITS
    return position if pack_position(position, seed) == packed else None


# Tags: a reply to many instructions at once, by multicast, has one for each of them as a segment.
#
# Every host on the network sees such a packet, and may send others like it. So a tag is a hash of everything in the
# packet and of the instruction that it answers, keyed with the region's key, which no reply contains: who takes a reply
# for its tag knows that the device has made it, for this instruction and no other, and whole.


_PERSON: Final = b"netsum shared"
_NAME: Final = struct.Struct(">QI")


class Tags:
    """Of one packet: its header, and the payload as it is sent."""

    def __init__(self, key: int, header: MemoryHeader, payload: bytes | memoryview) -> None:
        """``key``: with which its receivers may change the region. How many segments the header has does not matter."""
        self._keyed = blake2b(key=key.to_bytes(8), digest_size=8, person=_PERSON)
        self._keyed.update(pack_memory(header._replace(segments=0)))
        self._keyed.update(payload)

    def of(self, client: int, sequence: int) -> int:
        """The tag for one instruction."""
        tag = self._keyed.copy()
        tag.update(_NAME.pack(client, sequence))
        return int.from_bytes(tag.digest())


def tagged(key: int, header: MemoryHeader, payload: bytes, instructions: Iterable[tuple[int, int]]) -> bytes:
    """The packet that answers these instructions, by client and sequence: as many as it can have segments, at most."""
    tags = Tags(key, header, payload)
    return pack_memory(header, [tags.of(*each) for each in instructions]) + payload


MEMORY_NAMES: Final[dict[str, dict[int, str]]] = {
    "instruction": {instruction.value: instruction.name for instruction in Instruction},
    "status": {status.value: status.name for status in MemoryStatus},
    "lane": {lane.value: lane.name for lane in LaneType},
}
"""The same for memory in the network."""


FLAG_NAMES: Final[dict[int, str]] = {flag.value: flag.name or "" for flag in Flag}
"""Names of the bits of its ``flags``."""
