"""What instructions do to memory: pure and deterministic, so that all devices of a shard hold the same bits."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from netsum.wire.memory import ARITHMETIC, Instruction, LaneType, MemoryStatus
from numpy.typing import NDArray

from netsum_memory.message import Message
from netsum_memory.store import Store


class Result(NamedTuple):
    """What an instruction's reply says. None for ``argument`` and ``lane``: what the request said. ``shared``: all whose results
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


class Outcome(NamedTuple):
    """``result`` is None if the reply comes with a later instruction; ``others`` are earlier ones that get theirs now."""

    result: Result | None
    others: tuple[Other, ...] = ()


_COPY, _COMPARE_SWAP, _FETCH_ADD = int(Instruction.COPY), int(Instruction.COMPARE_SWAP), int(Instruction.FETCH_ADD)
"""As plain numbers, since every packet is held against them."""
_DONE: Final = Outcome(Result())
_UFUNCS: Final[dict[int, np.ufunc]] = {
    **{int(each): np.add for each in ARITHMETIC},
    Instruction.MIN: np.minimum,
    Instruction.MAX: np.maximum,
}
_DTYPES: Final = {int(lane): np.dtype(lane.dtype) for lane in LaneType}


def execute(message: Message, store: Store) -> Outcome:
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
        return Outcome(Result(payload=before)) if before else _DONE
    if instruction == _COMPARE_SWAP:
        return Outcome(_compare_swap(message, store))
    if instruction == _COPY:
        payload = payload or store.read(header.argument, header.length)
    store.write(header.address, payload)
    return _DONE


def ignoring_float_errors() -> np.errstate:
    """No warnings for infinities and NaNs, as in IEEE 754. Use it around a batch: entering it costs more than one
    instruction."""
    return np.errstate(all="ignore")


def _compare_swap(message: Message, store: Store) -> Result:
    half = message.header.length // 2
    held = store.read(message.header.address, half)
    if held != message.payload[:half]:
        return Result(MemoryStatus.MISMATCH, held)
    store.write(message.header.address, message.payload[half:])
    return Result(payload=held)


def look(message: Message, store: Store) -> Result:
    """Answer NOP or READ."""
    if message.header.instruction == Instruction.READ:
        return Result(payload=store.read(message.header.address, message.header.length))
    return Result(payload=message.payload)


def pass_on(message: Message, store: Store) -> Message:
    """Add what is here to a chain's packet, for its next segment."""
    header = message.header
    dtype = _DTYPES[header.lane]
    with ignoring_float_errors():
        summed = np.frombuffer(message.payload, dtype) + store.view(header.address, header.length, dtype)
    onward = header._replace(address=message.segments[0], segments=len(message.segments) - 1)
    return Message(onward, message.segments[1:], summed.tobytes())
