"""What instructions do to memory: pure and deterministic, so that all devices of a shard hold the same bits."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from netsum.wire.memory import Instruction, LaneType, MemoryStatus
from numpy.typing import NDArray

from netsum_memory.message import Message
from netsum_memory.store import Store


class Result(NamedTuple):
    """What an instruction's reply says. None for ``argument`` and ``lane``: what the request said."""

    status: int = MemoryStatus.OK
    payload: bytes = b""
    argument: int | None = None
    lane: int | None = None


class Other(NamedTuple):
    """The reply to an earlier instruction that had to wait for this one."""

    client: int
    sequence: int
    result: Result


class Outcome(NamedTuple):
    """``result`` is None if the reply comes with a later instruction; ``others`` are earlier ones that get theirs now."""

    result: Result | None
    others: tuple[Other, ...] = ()


_DONE: Final = Outcome(Result())
_UFUNCS: Final[dict[int, np.ufunc]] = {Instruction.MIN: np.minimum, Instruction.MAX: np.maximum}
_DTYPES: Final = {int(lane): np.dtype(lane.dtype) for lane in LaneType}


def execute(message: Message, store: Store) -> Outcome:
    """Do a checked instruction that changes memory. A COPY has had its source's bytes put in as payload, or the source is in
    the same shard."""
    header = message.header
    instruction, address, length = header.instruction, header.address, header.length
    if instruction == Instruction.WRITE:
        store.write(address, message.payload)
        return _DONE
    if instruction == Instruction.COPY:
        store.write(address, message.payload or store.read(header.argument, length))
        return _DONE
    if instruction == Instruction.COMPARE_SWAP:
        return Outcome(_compare_swap(message, store))
    dtype = _DTYPES[header.lane]
    given = np.frombuffer(message.payload, dtype)
    held: NDArray[Any] = store.change(address, length, dtype.str)
    before = held.tobytes() if instruction == Instruction.FETCH_ADD else b""
    ufunc = _UFUNCS.get(instruction, np.add)
    if dtype.kind == "f":  # which become infinite or not a number without a word, as IEEE 754 has it
        with np.errstate(all="ignore"):
            ufunc(held, given, out=held)
    else:
        ufunc(held, given, out=held)  # integers wrap
    return Outcome(Result(payload=before)) if before else _DONE


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
    """A chain's packet with what is here added, on its way to its next segment."""
    header = message.header
    dtype = _DTYPES[header.lane]
    with np.errstate(all="ignore"):
        summed = np.frombuffer(message.payload, dtype) + store.view(header.address, header.length, dtype.str)
    onward = header._replace(address=message.segments[0], segments=len(message.segments) - 1)
    return Message(onward, message.segments[1:], summed.tobytes())
