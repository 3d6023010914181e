# SPDX-License-Identifier: MIT
"""A packet of memory in the network: header, segments and the whole payload."""

from __future__ import annotations

from typing import Final, NamedTuple

from netsum.wire.codec import with_zeros, without_zeros
from netsum.wire.memory import (
    INTERNAL,
    MAX_PAYLOAD,
    MEMORY_HEADER_BYTES,
    MEMORY_VERSION,
    POSITIONED,
    WITHOUT_PAYLOAD,
    Flag,
    Instruction,
    LaneType,
    MemoryHeader,
    MemoryStatus,
    pack_memory,
    parse_memory,
    split_memory,
)

Address = tuple[str, int]
"""IPv4 address and UDP port."""
Send = tuple[Address, bytes]
"""A packet to send, and to whom."""


_REPLY, _COMPRESSED, _POSITION = int(Flag.REPLY), int(Flag.COMPRESSED), int(Flag.POSITION)
_POSITIONED: Final = frozenset(map(int, POSITIONED))
"""As plain numbers, since every packet is held against them."""


class MemoryMessage(NamedTuple):
    """``shown``: the packed position that a client was told; 0 if it says none."""

    header: MemoryHeader
    segments: tuple[int, ...] = ()
    payload: bytes = b""
    shown: int = 0

    def head(self) -> bytes:
        """The packet up to its payload."""
        return pack_memory(self.header, self.segments)

    def pack(self) -> bytes:
        return self.head() + self.payload

    def pack_thin(self) -> bytes:
        """The same with the payload's zeros left out, if those are more than half of it."""
        thin = without_zeros(self.payload)
        if thin is None:
            return self.pack()
        return pack_memory(self.header._replace(flags=self.header.flags | _COMPRESSED), self.segments) + thin

    @property
    def instruction(self) -> int:
        return self.header.instruction

    @property
    def name(self) -> tuple[int, int]:
        """The instruction's unique name: client and sequence."""
        return self.header.client, self.header.sequence


class Malformed(ValueError):
    """A packet that makes no sense.

    Attributes:
        header: so much as could be read of it, so that the sender can be told.
    """

    def __init__(self, header: MemoryHeader, text: str) -> None:
        super().__init__(text)
        self.header = header


def parse(data: bytes | memoryview) -> MemoryMessage:
    """The packet as a message that does not share its bytes. Raises :class:`Malformed`, or ValueError where there is not even a
    header."""
    header = parse_memory(data)
    if header.version != MEMORY_VERSION:
        raise Malformed(header, f"version {header.version}, not {MEMORY_VERSION}")
    try:
        segments: tuple[int, ...] = ()
        rest = data[MEMORY_HEADER_BYTES:]
        shown = header.argument if header.instruction in _POSITIONED else 0
        if header.segments:
            segments, rest = split_memory(header, memoryview(data))
            if header.flags & _POSITION:
                *others, shown = segments
                segments = tuple(others)
                header = header._replace(flags=header.flags & ~_POSITION, segments=len(segments))
        if header.flags & _COMPRESSED:
            if header.length > MAX_PAYLOAD:
                raise ValueError(f"{header.length} bytes without zeros")
            payload = with_zeros(rest, header.length).tobytes()
            header = header._replace(flags=header.flags & ~_COMPRESSED)
        else:
            payload = bytes(rest)
    except ValueError as error:
        raise Malformed(header, str(error)) from None
    if not header.flags & _REPLY:
        _check_length(header, payload)
    return MemoryMessage(header, segments, payload, shown)


def parse_record(data: bytes | memoryview) -> MemoryMessage:
    """Parse an instruction from a log (:meth:`MemoryMessage.pack`); a COPY's may have its source's bytes as payload."""
    header = parse_memory(data)
    segments, payload = split_memory(header, memoryview(data))
    return MemoryMessage(header, segments, bytes(payload))


def _check_length(header: MemoryHeader, payload: bytes) -> None:
    if header.instruction in INTERNAL:
        return
    if header.length > MAX_PAYLOAD:
        raise Malformed(header, f"length {header.length} is more than {MAX_PAYLOAD}")
    wanted = 0 if header.instruction in WITHOUT_PAYLOAD else header.length
    if len(payload) != wanted:
        raise Malformed(header, f"{len(payload)} bytes of payload where {wanted} were to come")


def instruction_name(number: int) -> str:
    """Such as ``fetch_add``; ``unknown`` for any other number."""
    try:
        return Instruction(number).name.lower()
    except ValueError:
        return "unknown"


def reply(
    header: MemoryHeader,
    status: int = MemoryStatus.OK,
    payload: bytes = b"",
    *,
    replica: int = 0,
    epoch: int | None = None,
    argument: int | None = None,
    lane: int | None = None,
    of: tuple[int, int] | None = None,
    position: int = 0,
) -> bytes:
    """The packet that answers a request; ``of`` is the shard: its region and its number there. ``position`` is packed."""
    short = without_zeros(payload) if payload else None
    region, shard = (header.region, header.shard) if of is None else of
    answer = MemoryHeader(
        header.instruction,
        header.address,
        len(payload),
        position,
        header.client,
        header.sequence,
        _REPLY if short is None else _REPLY | _COMPRESSED,
        int(status),
        header.lane if lane is None else lane,
        0,
        header.argument if argument is None else argument,
        shard,
        replica,
        header.epoch if epoch is None else epoch,
        region,
    )
    return pack_memory(answer) + (payload if short is None else short)


LANES: Final = {
    "int32": LaneType.INT32,
    "int64": LaneType.INT64,
    "float32": LaneType.FLOAT32,
    "float64": LaneType.FLOAT64,
    "uint32": LaneType.UINT32,
    "uint64": LaneType.UINT64,
}
"""numpy's name of a lane type."""
