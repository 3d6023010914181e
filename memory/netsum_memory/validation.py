"""What is wrong with an instruction, before it is done: rights, bounds, alignment, types."""

from __future__ import annotations

from typing import Final

from netsum.wire.memory import (
    ADDRESS_STEP,
    ARITHMETIC,
    CHANGING,
    IDEMPOTENT,
    Instruction,
    LaneType,
    MemoryStatus,
)
from netsum.wire.memory_codec import MemoryHeader

from netsum_memory.message import LANES
from netsum_memory.region import Region

OK: Final = MemoryStatus.OK
_COPY, _COMPARE_SWAP = int(Instruction.COPY), int(Instruction.COMPARE_SWAP)
_FETCH_ADD, _SUM_FORWARD, _BYTES = int(Instruction.FETCH_ADD), int(Instruction.SUM_FORWARD), int(LaneType.BYTES)
"""As plain numbers, since every packet is held against them."""
_LANE_BYTES: Final = {int(lane): lane.bytes for lane in LaneType}
_ARRAY: Final = frozenset(
    {
        *(Instruction.NOP, Instruction.READ, Instruction.WRITE, Instruction.COPY),
        *(Instruction.COMPARE_SWAP, *ARITHMETIC),
    }
)
"""What every kind of region does by itself; the rest is up to the kind."""


def right(region: Region, header: MemoryHeader, *, passing: bool = False) -> MemoryStatus:
    """Whether the key permits the instruction. ``passing``: a chain only reads what is here."""
    keys = region.keys
    reads = passing or header.instruction in IDEMPOTENT
    if header.key in (keys.write, keys.device) or (reads and header.key == keys.read):
        return OK
    return MemoryStatus.FORBIDDEN


def place(region: Region, address: int, length: int) -> MemoryStatus:
    """Whether these bytes may be what an instruction is about."""
    if address < region.base or address + length > region.end:
        return MemoryStatus.BOUNDS
    if address % ADDRESS_STEP + length > ADDRESS_STEP:
        return MemoryStatus.CROSSES
    return OK


def touched(header: MemoryHeader) -> int:
    """Bytes of memory at the address that the instruction is about."""
    return header.length // 2 if header.instruction == _COMPARE_SWAP else header.length


def lanes(region: Region, header: MemoryHeader) -> MemoryStatus:
    """Whether type and alignment fit the instruction."""
    size = _LANE_BYTES.get(header.lane)
    if size is None:
        return MemoryStatus.TYPE
    length = touched(header)
    if header.instruction in ARITHMETIC:
        if header.lane == _BYTES:
            return MemoryStatus.TYPE
        if region.dtype is not None and LANES.get(region.dtype) != header.lane:
            return MemoryStatus.TYPE
    elif header.instruction == _COMPARE_SWAP:
        if header.lane == _BYTES:
            size = length
        if header.length % 2 or size not in (4, 8):
            return MemoryStatus.TYPE
    if header.instruction in (_FETCH_ADD, _COMPARE_SWAP) and length != size:
        return MemoryStatus.ALIGNMENT  # one lane, so that the replies that are kept stay small
    if header.address % size or length % size:
        return MemoryStatus.ALIGNMENT
    return OK


def check(region: Region, header: MemoryHeader) -> MemoryStatus:
    """Check an instruction on an array, as far as possible without reading memory."""
    instruction = header.instruction
    if instruction not in _ARRAY:
        return MemoryStatus.UNSUPPORTED
    status = (
        right(region, header, passing=instruction == _SUM_FORWARD and header.segments > 0)
        or place(region, header.address, touched(header))
        or lanes(region, header)
    )
    if instruction == _COPY and status == OK:
        status = place(region, header.argument, header.length)
    return status


def changes(header: MemoryHeader) -> bool:
    """Whether the instruction changes memory here, so that it is done exactly once: a chain does so at its end alone."""
    if header.instruction == _SUM_FORWARD:
        return not header.segments
    return header.instruction in CHANGING
