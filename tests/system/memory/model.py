# SPDX-License-Identifier: MIT
"""The model that instructions are checked against: a few bytes, and what each instruction does to them. It shares nothing with
the devices' arithmetic: integers are Python's, and floats are rounded by ``struct``."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Any, Final, NamedTuple

from netsum.wire.memory import Instruction, LaneType

from tests.system.memory.linearizable import Call, linearizable


@dataclass(slots=True)
class HistoryEntry:
    """A client's instruction. ``answered`` is inf until there is a reply; ``answer`` is its payload, ``argument`` the rest of
    OPTIMIZE's; ``lost``: the reply says that the memory is lost."""

    client: int
    request: MemoryRequest
    invoked: float
    answered: float = inf
    answer: bytes | None = None
    argument: int = 0
    lost: bool = False

    def describe(self) -> str:
        """In a line."""
        when = "no answer" if self.answered == inf else f"{self.answered:.6f}"
        said = " -> lost" if self.lost else "" if self.answer is None else f" -> {self.answer[:16].hex()}"
        if self.argument:
            said += f" step {self.argument >> 32} of {self.argument & 0xFFFFFFFF}"
        return f"{self.invoked:.6f} .. {when}  client {self.client}  {self.request.describe()}{said}"


class Finding(StrEnum):
    """A fault of a history: an acknowledged change is missing, one was done twice, or something else."""

    LOST = "lost"
    DOUBLED = "doubled"
    WRONG = "wrong"
    UNDECIDED = "undecided"


class Refuted(Exception):
    """A finding, and the instruction that it concerns, if any."""

    def __init__(self, finding: Finding, entry: HistoryEntry | None) -> None:
        super().__init__(finding.value)
        self.finding, self.entry = finding, entry


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
ARITHMETIC: Final = (*COMPUTING, Instruction.SUM_FORWARD, Instruction.LOOKUP, Instruction.PUSH, Instruction.OPTIMIZE)
"""Instructions whose packets give the lanes' type."""
READING: Final = (Instruction.READ, Instruction.FETCH_ADD, Instruction.COMPARE_SWAP)
"""Instructions whose replies have the previous contents."""

Lanes = tuple[float, ...]
"""Integers or floats."""


class MemoryRequest(NamedTuple):
    """An instruction about ``length`` bytes from ``start`` on of a place; COPY takes them from ``source`` on.

    ``path``: where a SUM_FORWARD goes after ``start``, each time as many bytes; the rows, by number, that a LOOKUP or a PUSH is
    about. ``settings``: learning rate and so on of this PUSH or OPTIMIZE. ``argument``: OPTIMIZE's step << 32 | worker."""

    instruction: Instruction
    start: int
    length: int
    payload: bytes = b""
    lane: LaneType = LaneType.BYTES
    source: int = 0
    path: tuple[int, ...] = ()
    settings: tuple[float, ...] = ()
    argument: int = 0

    @property
    def changes(self) -> bool:
        return self.instruction not in (Instruction.READ, Instruction.LOOKUP)

    @property
    def step(self) -> int:
        return self.argument >> 32

    @property
    def worker(self) -> int:
        return self.argument & 0xFFFFFFFF

    def describe(self) -> str:
        """In a line."""
        name = self.instruction.name
        if self.instruction in ARITHMETIC:
            name += f" {self.lane.name.lower()}"
        if self.instruction == Instruction.COPY:
            name += f" from {self.source}"
        if self.instruction == Instruction.OPTIMIZE:
            name += f" step {self.step} worker {self.worker}"
        if self.path:
            name += f" {'by' if self.instruction == Instruction.SUM_FORWARD else 'of rows'} {self.path}"
        payload = self.payload if len(self.payload) <= 16 else self.payload[:16]
        return f"{name} [{self.start}:{self.start + self.length}] {payload.hex()}".rstrip()


class ModelStep(NamedTuple):
    """An instruction with its answer, None if it is not known. A COPY between devices, and a chain, are done in parts, one
    after the other, of which this is number ``part`` of ``parts``: all but the last only read; ``serial`` says which belong
    together."""

    request: MemoryRequest
    answer: bytes | None = None
    serial: int = 0
    part: int = 0
    parts: int = 1


class State(NamedTuple):
    """``held``: what COPYs and chains have taken and not put down: serial number, parts done, bytes."""

    memory: bytes
    held: tuple[tuple[int, int, bytes], ...] = ()


def do(state: State, step: ModelStep) -> State | None:
    """The state after the step; None if it cannot have been done there with that answer."""
    request, memory = step.request, state.memory
    if step.parts > 1:
        return _in_parts(state, step)
    if request.instruction == Instruction.COPY:
        return State(_put(memory, request.start, memory[request.source :][: request.length]), state.held)
    here = memory[request.start : request.start + request.length]
    if step.answer is not None and step.answer != (here if request.instruction in READING else b""):
        return None
    if not request.changes:
        return state
    return State(_put(memory, request.start, changed(request, here)), state.held)


def _in_parts(state: State, step: ModelStep) -> State | None:
    request, memory = step.request, state.memory
    done, taken = next((each[1:] for each in state.held if each[0] == step.serial), (0, request.payload))
    if done != step.part:
        return None
    others = tuple(each for each in state.held if each[0] != step.serial)
    here = (request.source, request.start) if request.instruction == Instruction.COPY else (request.start, *request.path)
    at = here[step.part]
    if request.instruction == Instruction.SUM_FORWARD:
        taken = _added(request.lane, taken, memory[at : at + request.length])
    elif not step.part:
        taken = memory[at : at + request.length]
    if step.part < step.parts - 1:
        return State(memory, tuple(sorted((*others, (step.serial, done + 1, taken)))))
    return State(_put(memory, at, taken), others)


def _put(memory: bytes, start: int, data: bytes) -> bytes:
    return memory[:start] + data + memory[start + len(data) :]


def changed(request: MemoryRequest, here: bytes) -> bytes:
    """Apply it to the bytes that are here."""
    payload = request.payload
    if request.instruction == Instruction.WRITE:
        return payload
    if request.instruction == Instruction.COMPARE_SWAP:
        return payload[request.length :] if here == payload[: request.length] else here
    if request.instruction not in (Instruction.MIN, Instruction.MAX):
        return _added(request.lane, here, payload)
    chosen = min if request.instruction == Instruction.MIN else max
    pairs = zip(unpack(request.lane, here), unpack(request.lane, payload), strict=True)
    return pack(request.lane, tuple(chosen(pair) for pair in pairs))


def _added(lane: LaneType, one: bytes, other: bytes) -> bytes:
    return pack(lane, tuple(a + b for a, b in zip(unpack(lane, one), unpack(lane, other), strict=True)))


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


# Rows of a table that instructions are checked against, in Python's numbers: it shares nothing with the devices'
# arithmetic.


_ALL: Final = (1 << 64) - 1

Numbers = tuple[float, ...]


def rounded(number: float) -> float:
    """As float32. Of one operation on two float32 done in float64, this is what rounding once would give."""
    try:
        (made,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return math.copysign(math.inf, number)
    return float(made)


def mixed(key: int) -> int:
    """splitmix64's finalizer."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key = (key ^ key >> shift) * factor & _ALL
    return key ^ key >> 31


def shard_of(key: int, shards: int) -> int:
    """The shard of a table that has the key's row."""
    return mixed(key) & (shards - 1)


class ParameterRow(NamedTuple):
    """``sums``: what the optimizer keeps of the squares of its gradients."""

    numbers: Numbers
    sums: Numbers


class _OpenRequest(NamedTuple):
    request: MemoryRequest
    answer: bytes | None


class Table:
    """The rows of some keys of a region with these options."""

    def __init__(self, options: Mapping[str, Any], keys: Sequence[int]) -> None:
        self._options, self._keys = options, keys
        self._dim = int(options["dim"])

    def explained(self, entries: Sequence[HistoryEntry]) -> bool:
        """True if some order of the instructions explains every answer."""
        beginning = tuple(self._begun(key) for key in self._keys)
        calls = [Call(_OpenRequest(each.request, each.answer), each.invoked, each.answered) for each in entries]
        return linearizable(calls, beginning, self._do)

    def _begun(self, key: int) -> ParameterRow:
        """The initial row: uniform, from the seed and the key."""
        seed, initial = int(self._options["seed"]), rounded(self._options["initial"])
        bits = [mixed(mixed(key) ^ mixed(seed + column & _ALL)) >> 40 for column in range(self._dim)]
        numbers = tuple(rounded((each / 2**23 - 1) * initial) if initial else 0.0 for each in bits)
        width = {"sgd": 0, "adagrad": self._dim, "rowwise_adagrad": 1}[self._options["optimizer"]]
        return ParameterRow(numbers, (0.0,) * width)

    def _do(self, rows: tuple[ParameterRow, ...], open_request: _OpenRequest) -> tuple[ParameterRow, ...] | None:
        request = open_request.request
        if request.instruction == Instruction.LOOKUP:
            found = b"".join(pack(LaneType.FLOAT32, rows[number].numbers) for number in request.path)
            return rows if open_request.answer in (None, found) else None
        if open_request.answer not in (None, b""):
            return None
        given = unpack(LaneType.FLOAT32, request.payload)
        summed: dict[int, Numbers] = {}
        for place, number in enumerate(request.path):
            gradient = given[place * self._dim : (place + 1) * self._dim]
            before = summed.get(number, (0.0,) * self._dim)
            summed[number] = tuple(rounded(a + b) for a, b in zip(before, gradient, strict=True))
        rate = rounded(request.settings[0] if request.settings else self._options["lr"])
        after = list(rows)
        for number, gradient in summed.items():
            after[number] = self._stepped(rows[number], gradient, rate)
        return tuple(after)

    def _stepped(self, row: ParameterRow, gradient: Numbers, rate: float) -> ParameterRow:
        moves = [rounded(rate * each) for each in gradient]
        sums = row.sums
        if sums:
            squares = [rounded(each * each) for each in gradient]
            if self._options["optimizer"] == "rowwise_adagrad":
                squares = [rounded(sum(squares) / self._dim)]
            sums = tuple(rounded(a + b) for a, b in zip(sums, squares, strict=True))
            eps = rounded(self._options["eps"])
            spread = [rounded(rounded(math.sqrt(each)) + eps) for each in sums]
            if len(spread) < self._dim:
                spread *= self._dim
            moves = [rounded(a / b) for a, b in zip(moves, spread, strict=True)]
        return ParameterRow(tuple(rounded(a - b) for a, b in zip(row.numbers, moves, strict=True)), sums)
