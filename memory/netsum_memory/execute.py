# SPDX-License-Identifier: MIT
"""Execution of instructions: pure and deterministic, so that all devices of a shard hold the same bits."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from netsum.wire.memory import (
    ADDRESS_STEP,
    ARITHMETIC,
    CHANGING,
    IDEMPOTENT,
    MEMORY_FIELDS,
    Instruction,
    LaneType,
    MemoryHeader,
    MemoryStatus,
)
from numpy.typing import NDArray

from netsum_memory.message import LANES, MemoryMessage
from netsum_memory.region import Region
from netsum_memory.store import Store

# What is wrong with an instruction, before it is done: rights, bounds, alignment, types.


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
"""The instructions that every kind of region does by itself; the rest is up to the kind."""


def right(region: Region, header: MemoryHeader, *, passing: bool = False) -> MemoryStatus:
    """True if the key permits the instruction. ``passing``: a chain only reads what is here."""
    keys = region.keys
    reads = passing or header.instruction in IDEMPOTENT
    if header.key in (keys.write, keys.device) or (reads and header.key == keys.read):
        return OK
    return MemoryStatus.FORBIDDEN


def place(region: Region, address: int, length: int) -> MemoryStatus:
    """True if these bytes may be what an instruction is about."""
    if address < region.base or address + length > region.end:
        return MemoryStatus.BOUNDS
    if address % ADDRESS_STEP + length > ADDRESS_STEP:
        return MemoryStatus.CROSSES
    return OK


def touched(header: MemoryHeader) -> int:
    """Bytes of memory at the address that the instruction is about."""
    return header.length // 2 if header.instruction == _COMPARE_SWAP else header.length


def lanes(region: Region, header: MemoryHeader) -> MemoryStatus:
    """True if type and alignment fit the instruction."""
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
    """True if the instruction changes memory here, so that it is done exactly once: a chain does so at its end alone."""
    if header.instruction == _SUM_FORWARD:
        return not header.segments
    return header.instruction in CHANGING


class Result(NamedTuple):
    """The reply to an instruction. None for ``argument`` and ``lane``: what the request said. ``shared``: all whose results
    say so at once get one reply, the same for each but for who it is to."""

    status: int = MemoryStatus.OK
    payload: bytes = b""
    argument: int | None = None
    lane: int | None = None
    shared: bool = False


class Other(NamedTuple):
    """The reply to an earlier instruction that waited for this one."""

    client: int
    sequence: int
    result: Result


class Execution(NamedTuple):
    """``result`` is None if the reply comes with a later instruction; ``others`` are earlier ones that get theirs now."""

    result: Result | None
    others: tuple[Other, ...] = ()


_COPY, _COMPARE_SWAP, _FETCH_ADD = int(Instruction.COPY), int(Instruction.COMPARE_SWAP), int(Instruction.FETCH_ADD)
"""As plain numbers, since every packet is held against them."""
_DONE: Final = Execution(Result())
_UFUNCS: Final[dict[int, np.ufunc]] = {
    **{int(each): np.add for each in ARITHMETIC},
    Instruction.MIN: np.minimum,
    Instruction.MAX: np.maximum,
}
_DTYPES: Final = {int(lane): np.dtype(lane.dtype) for lane in LaneType}


def execute(message: MemoryMessage, store: Store) -> Execution:
    """Do a checked instruction that changes memory. A COPY has had its source's bytes put in as payload, or the source is in
    the same shard. The caller is :func:`ignoring_float_errors`."""
    header, payload = message.header, message.payload
    instruction = header.instruction
    ufunc = _UFUNCS.get(instruction)
    if ufunc is not None:
        dtype = _DTYPES[header.lane]
        held: NDArray[Any] = store.change(header.address, header.length, dtype)
        before = held.tobytes() if instruction == _FETCH_ADD else b""
        ufunc(held, np.frombuffer(payload, dtype), out=held)  # integers wrap
        return Execution(Result(payload=before)) if before else _DONE
    if instruction == _COMPARE_SWAP:
        return Execution(_compare_swap(message, store))
    if instruction == _COPY:
        payload = payload or store.read(header.argument, header.length)
    store.write(header.address, payload)
    return _DONE


def ignoring_float_errors() -> np.errstate:
    """No warnings for infinities and NaNs, as in IEEE 754. Use it around a batch: entering it costs more than one
    instruction."""
    return np.errstate(all="ignore")


def _compare_swap(message: MemoryMessage, store: Store) -> Result:
    half = message.header.length // 2
    held = store.read(message.header.address, half)
    if held != message.payload[:half]:
        return Result(MemoryStatus.MISMATCH, held)
    store.write(message.header.address, message.payload[half:])
    return Result(payload=held)


def look(message: MemoryMessage, store: Store) -> Result:
    """Answer NOP or READ."""
    if message.header.instruction == Instruction.READ:
        return Result(payload=store.read(message.header.address, message.header.length))
    return Result(payload=message.payload)


def pass_on(message: MemoryMessage, store: Store) -> MemoryMessage:
    """Add what is here to a chain's packet, for its next segment."""
    header = message.header
    dtype = _DTYPES[header.lane]
    with ignoring_float_errors():
        summed = np.frombuffer(message.payload, dtype) + store.view(header.address, header.length, dtype)
    onward = header._replace(address=message.segments[0], segments=len(message.segments) - 1)
    return MemoryMessage(onward, message.segments[1:], summed.tobytes())


assert [field.name for field in MEMORY_FIELDS[:4]] == ["version", "reserved", "instruction", "flags"]
