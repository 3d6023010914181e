"""The memory that instructions are checked against: a few bytes, and what each instruction makes of them. It shares nothing with
the devices' arithmetic: integers are Python's, and floats are rounded by ``struct``."""

from __future__ import annotations

import math
import struct
from typing import Final, NamedTuple

from netsum.wire.memory import Instruction, LaneType

CODES: Final = {
    LaneType.INT32: "i",
    LaneType.INT64: "q",
    LaneType.FLOAT32: "f",
    LaneType.FLOAT64: "d",
    LaneType.UINT32: "I",
    LaneType.UINT64: "Q",
}
"""Of ``struct``."""
FLOATS: Final = (LaneType.FLOAT32, LaneType.FLOAT64)
COMPUTING: Final = (Instruction.ADD, Instruction.MIN, Instruction.MAX, Instruction.FETCH_ADD)
READING: Final = (Instruction.READ, Instruction.FETCH_ADD, Instruction.COMPARE_SWAP)
"""Their replies bring what was there before."""

Lanes = tuple[float, ...]
"""Integers or floats."""


class Asked(NamedTuple):
    """An instruction about ``length`` bytes from ``start`` on of a place; COPY takes them from ``source`` on."""

    instruction: Instruction
    start: int
    length: int
    payload: bytes = b""
    lane: LaneType = LaneType.BYTES
    source: int = 0

    @property
    def changes(self) -> bool:
        return self.instruction != Instruction.READ

    def describe(self) -> str:
        """In a line."""
        name = self.instruction.name
        if self.instruction in COMPUTING:
            name += f" {self.lane.name.lower()}"
        if self.instruction == Instruction.COPY:
            name += f" from {self.source}"
        payload = self.payload if len(self.payload) <= 16 else self.payload[:16]
        return f"{name} [{self.start}:{self.start + self.length}] {payload.hex()}".rstrip()


class Step(NamedTuple):
    """An instruction with its answer, None if nobody knows it. A COPY between devices is done in two steps: with ``reads`` it
    only takes the bytes, without it only puts them down; ``serial`` says which belong together. ``atomic``: at once."""

    asked: Asked
    answer: bytes | None = None
    serial: int = 0
    reads: bool = False
    atomic: bool = True


class State(NamedTuple):
    """``held``: what COPYs have taken and not put down, by serial number."""

    memory: bytes
    held: tuple[tuple[int, bytes], ...] = ()


def do(state: State, step: Step) -> State | None:
    """The state after the step; None if it cannot have been done there with that answer."""
    asked, memory = step.asked, state.memory
    here = memory[asked.start : asked.start + asked.length]
    if asked.instruction == Instruction.COPY:
        return _copy(state, step)
    if step.answer is not None and step.answer != (here if asked.instruction in READING else b""):
        return None
    if not asked.changes:
        return state
    return State(_put(memory, asked.start, changed(asked, here)), state.held)


def _copy(state: State, step: Step) -> State | None:
    asked, memory = step.asked, state.memory
    taken = memory[asked.source : asked.source + asked.length]
    if step.atomic:
        return State(_put(memory, asked.start, taken), state.held)
    if step.reads:
        return State(memory, (*state.held, (step.serial, taken)))
    held = dict(state.held)
    if step.serial not in held:
        return None
    after = _put(memory, asked.start, held.pop(step.serial))
    return State(after, tuple(held.items()))


def _put(memory: bytes, start: int, data: bytes) -> bytes:
    return memory[:start] + data + memory[start + len(data) :]


def changed(asked: Asked, here: bytes) -> bytes:
    """What becomes of the bytes that are here."""
    payload = asked.payload
    if asked.instruction == Instruction.WRITE:
        return payload
    if asked.instruction == Instruction.COMPARE_SWAP:
        return payload[asked.length :] if here == payload[: asked.length] else here
    held, given = unpack(asked.lane, here), unpack(asked.lane, payload)
    pairs = zip(held, given, strict=True)
    if asked.instruction == Instruction.MIN:
        return pack(asked.lane, tuple(min(pair) for pair in pairs))
    if asked.instruction == Instruction.MAX:
        return pack(asked.lane, tuple(max(pair) for pair in pairs))
    return pack(asked.lane, tuple(a + b for a, b in pairs))


def unpack(lane: LaneType, data: bytes) -> Lanes:
    """Lanes as numbers."""
    return struct.unpack(f"<{len(data) // lane.bytes}{CODES[lane]}", data)


def pack(lane: LaneType, lanes: Lanes) -> bytes:
    """Numbers as lanes: integers wrap, floats are rounded once, since a sum of two float32 is exact enough in float64."""
    code, bits = CODES[lane], 8 * lane.bytes
    if lane not in FLOATS:
        lanes = tuple(int(number) & (1 << bits) - 1 for number in lanes)
        return struct.pack(f"<{len(lanes)}{code.upper()}", *lanes)
    return b"".join(_float(code, number) for number in lanes)


def _float(code: str, number: float) -> bytes:
    try:
        return struct.pack(f"<{code}", number)
    except OverflowError:
        return struct.pack(f"<{code}", math.copysign(math.inf, number))
