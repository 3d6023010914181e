# SPDX-License-Identifier: MIT
"""Regions of kind "parameters": memory as any other, with OPTIMIZE, whose optimizers step when gradients are pushed."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from netsum.wire.memory import Flag, Instruction, LaneType, MemoryStatus

from netsum_memory import execute
from netsum_memory.execute import Execution, Other, Result
from netsum_memory.message import MemoryMessage
from netsum_memory.optimizer_rules import Floats, OptimizerOptions, State, combined, direction, finish, square_sum
from netsum_memory.region import Region
from netsum_memory.region_types import ArrayRegionType
from netsum_memory.store import Store

# The optimizer at the memory: a step of one block of parameters is made here, of the gradients that workers push, pure.
#
# A block is what one instruction carries. Pushes come in the order of the shard's log, and what follows from them
# depends on nothing else, so a block's replicas are bit-equal. A step's gradients are summed in the order of the
# workers' numbers: in mode synchronous the bits do not depend on the order of arrival either.
#
# LARS and LAMB scale the step of a layer by norms of the whole layer, whose blocks lie on many devices. So their steps
# have two phases: a block answers a step's gradients with its share of the two norms squared; each worker adds up the
# layer's shares, in the order of the addresses, and sends the totals, of which all have the same bits. The first that
# comes makes the step.


QUERY: Final = 0
"""As the step of a push without payload: how far is the block (mode synchronous), or the worker? The reply has as payload how
many steps were made of any gradients, in 8 bytes. The last step's number asks for the block's shares of the norms."""
LEAVE: Final = 2**32 - 1
"""As the step of a push without payload: the worker pushes no more."""


class Push(NamedTuple):
    """An OPTIMIZE instruction. ``values``: gradient (of mode elastic: parameters) in float32 lanes, norms squared in float64
    lanes, nothing in lanes of bytes."""

    client: int
    sequence: int
    step: int
    worker: int
    lane: LaneType
    values: bytes
    settings: tuple[float, ...] = ()
    shared: bool = False


class Answer(NamedTuple):
    """The reply to a push. ``argument``: step << 32 | gradients in it; 0 gradients: this one is not. ``shared``: the answers to
    others are the same, and one packet is enough for all."""

    client: int
    sequence: int
    status: MemoryStatus
    lane: LaneType
    argument: int
    payload: bytes
    shared: bool = False


class Waiter(NamedTuple):
    """The client that waits for the step; ``counted``: its gradient is in it; ``shared``: it takes an answer that goes to
    many."""

    client: int
    sequence: int
    worker: int
    step: int
    counted: bool
    shared: bool = False


@dataclass
class ParameterBlock:
    """The state of a block beside its parameters, which lie in the region's memory.

    Attributes:
        length: bytes of its parameters, which all pushes are as long as; 0 before the first.
        applied: steps made.
        gradients: of the step to come, by worker.
        clocks: modes stale and elastic: the last step of each worker.
        left: workers that push no more.
        settings: of the step to come, alike from all workers.
        towards: between the two phases of a layer-wise step, its direction.
        shares: the block's shares of the norms squared, of the last step that took two phases.
        counted: how many gradients the last step is made of.
    """

    length: int = 0
    applied: int = 0
    state: State = field(default_factory=dict)
    gradients: dict[int, Floats] = field(default_factory=dict)
    waiting: list[Waiter] = field(default_factory=list)
    clocks: dict[int, int] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    settings: tuple[float, ...] | None = None
    towards: Floats | None = None
    shares: tuple[float, float] | None = None
    counted: int = 0

    def take(self, options: OptimizerOptions, parameters: Floats, push: Push) -> list[Answer]:
        """Do the instruction; ``parameters`` are the block's, changed in place. Returns answers to this push and to those that it
        releases; none to this one if it has to wait."""
        if push.lane == LaneType.BYTES:
            return self._without_payload(options, parameters, push)
        if push.lane == LaneType.FLOAT64:
            return [self._second_phase(options, parameters, push)]
        values = np.frombuffer(push.values, np.float32)
        if options.mode == "elastic":
            return [self._attract(options, parameters, push, values)]
        if options.mode == "stale":
            return self._at_once(options, parameters, push, values)
        return self._gather(options, parameters, push, values)

    def _without_payload(self, options: OptimizerOptions, parameters: Floats, push: Push) -> list[Answer]:
        step = self.applied if options.mode == "synchronous" else self.clocks.get(push.worker, 0)
        made = self.applied.to_bytes(8, "little")
        answer = Answer(push.client, push.sequence, MemoryStatus.OK, LaneType.BYTES, step << 32, made)
        if push.step == self.applied + (self.towards is not None) and push.step != QUERY and self.shares is not None:
            return [self._norms(push, 0, push.step)]
        if push.step != LEAVE:
            return [answer]
        self.left.add(push.worker)
        return [answer, *self._released(options, parameters)]

    def _released(self, options: OptimizerOptions, parameters: Floats) -> list[Answer]:
        """Answers to whom the present state lets go on."""
        if options.mode == "synchronous":
            return self._complete(options, parameters)
        steps = [step for worker, step in self.clocks.items() if worker not in self.left]
        slowest = min(steps, default=LEAVE) if len(self.clocks.keys() | self.left) == options.workers else 0
        ready = [waiter for waiter in self.waiting if waiter.step - slowest <= options.staleness]
        self.waiting = [waiter for waiter in self.waiting if waiter not in ready]
        return [_parameters(waiter, parameters, waiter.step, 1) for waiter in ready]

    # Synchronous

    def _gather(self, options: OptimizerOptions, parameters: Floats, push: Push, gradient: Floats) -> list[Answer]:
        if push.step <= self.applied:
            return [_parameters(push, parameters, self.applied, 0)]
        if push.step > self.applied + 1:
            return [_refusal(push, MemoryStatus.MISMATCH, self.applied)]
        if self.towards is not None:
            return [self._norms(push, 0, push.step)]
        if self.settings is None:
            self.settings = push.settings
        elif self.settings != push.settings:
            return [_refusal(push, MemoryStatus.MALFORMED, self.applied)]
        counted = push.worker not in self.gradients
        if counted:
            self.gradients[push.worker] = gradient
        self.left.discard(push.worker)
        self.waiting.append(Waiter(push.client, push.sequence, push.worker, push.step, counted, counted and push.shared))
        return self._complete(options, parameters)

    def _complete(self, options: OptimizerOptions, parameters: Floats) -> list[Answer]:
        """Make the step, or its first phase, if enough gradients are there."""
        wanted = min(options.needed, options.workers - len(self.left - self.gradients.keys()))
        if not self.gradients or len(self.gradients) < wanted:
            return []
        of_step = options.with_settings(self.settings or ())
        gradient = combined([self.gradients[worker] for worker in sorted(self.gradients)], options.mean)
        self.counted = len(self.gradients)
        towards = direction(of_step, parameters, gradient, self.state, self.applied + 1)
        waiting, self.waiting, self.gradients = self.waiting, [], {}
        if of_step.layers:
            self.towards, self.shares = towards, (square_sum(parameters), square_sum(towards))
            return [self._norms(waiter, self.counted * waiter.counted, waiter.step) for waiter in waiting]
        self._move(of_step, parameters, towards, None)
        answers = [_parameters(waiter, parameters, self.applied, self.counted * waiter.counted) for waiter in waiting]
        if sum(waiter.shared for waiter in waiting) < 2:
            return answers
        return [answer._replace(shared=waiter.shared) for waiter, answer in zip(waiting, answers, strict=True)]

    def _move(self, options: OptimizerOptions, parameters: Floats, towards: Floats, norms: tuple[float, float] | None) -> None:
        finish(options, parameters, towards, self.state, norms)
        self.applied += 1
        self.towards = self.settings = None

    def _norms(self, push: Push | Waiter, counted: int, step: int) -> Answer:
        payload = np.array(self.shares, np.float64).tobytes()
        argument = step << 32 | counted
        return Answer(push.client, push.sequence, MemoryStatus.OK, LaneType.FLOAT64, argument, payload)

    def _second_phase(self, options: OptimizerOptions, parameters: Floats, push: Push) -> Answer:
        if push.step <= self.applied:
            return _parameters(push, parameters, self.applied, self.counted)
        if push.step > self.applied + 1 or self.towards is None:
            return _refusal(push, MemoryStatus.MISMATCH, self.applied)
        norms = np.frombuffer(push.values, np.float64)
        of_step = options.with_settings(self.settings or ())
        self._move(of_step, parameters, self.towards, (float(norms[0]), float(norms[1])))
        return _parameters(push, parameters, self.applied, self.counted)

    # Downpour: each gradient is applied when it comes

    def _at_once(self, options: OptimizerOptions, parameters: Floats, push: Push, gradient: Floats) -> list[Answer]:
        if push.step <= self.clocks.get(push.worker, 0):
            return [_parameters(push, parameters, self.clocks[push.worker], 0)]
        self.clocks[push.worker] = push.step
        self.left.discard(push.worker)
        of_step = options.with_settings(push.settings)
        towards = direction(of_step, parameters, gradient, self.state, self.applied + 1)
        self._move(of_step, parameters, towards, None)
        self.waiting.append(Waiter(push.client, push.sequence, push.worker, push.step, counted=True))
        return self._released(options, parameters)

    # Elastic averaging: worker and center attract each other

    def _attract(self, options: OptimizerOptions, center: Floats, push: Push, pushed: Floats) -> Answer:
        self.clocks[push.worker] = max(push.step, self.clocks.get(push.worker, 0))
        self.applied += 1
        difference = np.float32(options.moving_rate) * (pushed - center)
        center += difference
        return _parameters(push, pushed - difference, push.step, 1)


def _parameters(push: Push | Waiter, parameters: Floats, step: int, counted: int) -> Answer:
    argument = step << 32 | counted
    return Answer(push.client, push.sequence, MemoryStatus.OK, LaneType.FLOAT32, argument, parameters.tobytes())


def _refusal(push: Push, status: MemoryStatus, step: int) -> Answer:
    return Answer(push.client, push.sequence, status, push.lane, step << 32, b"")


# Saves and restores the blocks of one shard: for a backup that catches up, and for checkpoints.


_LENGTH: Final = struct.Struct(">Q")


def save(blocks: Mapping[int, ParameterBlock]) -> bytes:
    """The state of the blocks, by address: JSON, followed by the arrays' bytes."""
    arrays: list[bytes] = []
    described = [[address, _described(block, arrays)] for address, block in sorted(blocks.items())]
    text = json.dumps(described, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text + b"".join(arrays)


def load(saved: bytes) -> dict[int, ParameterBlock]:
    """The inverse of :func:`save`."""
    (length,) = _LENGTH.unpack_from(saved)
    described = json.loads(saved[_LENGTH.size : _LENGTH.size + length])
    reader = _Reader(saved, _LENGTH.size + length)
    return {address: _block(each, reader) for address, each in described}


class _Reader:
    """Takes arrays from the bytes, in the order in which they were written."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, length: int) -> bytes:
        start, self.at = self.at, self.at + length
        if self.at > len(self.data):
            raise ValueError(f"saved parameters end after {len(self.data)} bytes; {self.at} are described")
        return self.data[start : self.at]

    def floats(self, length: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.frombuffer(self.take(length), np.float32).copy()


def _described(block: ParameterBlock, arrays: list[bytes]) -> dict[str, Any]:
    def put(data: bytes) -> int:
        arrays.append(data)
        return len(data)

    return {
        "length": block.length,
        "applied": block.applied,
        "state": [[name, put(array.tobytes())] for name, array in sorted(block.state.items())],
        "gradients": [[worker, put(array.tobytes())] for worker, array in sorted(block.gradients.items())],
        "waiting": [waiter._replace(shared=False) for waiter in block.waiting],  # how they are told is no state
        "clocks": sorted(block.clocks.items()),
        "left": sorted(block.left),
        "settings": block.settings,
        "towards": None if block.towards is None else put(block.towards.tobytes()),
        "shares": block.shares,
        "counted": block.counted,
    }


def _block(described: dict[str, Any], reader: _Reader) -> ParameterBlock:
    state = {name: reader.floats(length) for name, length in described["state"]}
    gradients = {worker: reader.floats(length) for worker, length in described["gradients"]}
    towards = described["towards"]
    return ParameterBlock(
        length=described["length"],
        applied=described["applied"],
        state=state,
        gradients=gradients,
        waiting=[Waiter(*waiter) for waiter in described["waiting"]],
        clocks=dict(described["clocks"]),
        left=set(described["left"]),
        settings=None if described["settings"] is None else tuple(described["settings"]),
        towards=None if towards is None else reader.floats(towards),
        shares=None if described["shares"] is None else tuple(described["shares"]),
        counted=described["counted"],
    )


# Regions of kind "parameters": memory as any other, with OPTIMIZE. Its blocks are made when first pushed at.


_NORMS: Final = 16
"""Bytes of the second phase: two norms squared, in float64."""
_SETTINGS: Final = 3
"""Learning rate, weight decay, trust coefficient."""


class ParametersKind(ArrayRegionType):
    def __init__(self, region: Region, shard: int, store: Store) -> None:
        super().__init__(region, shard, store)
        if region.dtype not in (None, "float32"):
            raise ValueError(f"region {region.name}: parameters are float32, not {region.dtype}")
        self.options = OptimizerOptions.of(region.options)
        self.blocks: dict[int, ParameterBlock] = {}

    def check(self, message: MemoryMessage) -> MemoryStatus:
        header = message.header
        if header.instruction != Instruction.OPTIMIZE:
            return super().check(message)
        return (
            execute.right(self._region, header)
            or execute.place(self._region, header.address, header.length)
            or self._check_push(message)
        )

    def _check_push(self, message: MemoryMessage) -> MemoryStatus:
        header = message.header
        gradient = header.lane == LaneType.FLOAT32
        if not gradient and header.length != {LaneType.BYTES: 0, LaneType.FLOAT64: _NORMS}.get(LaneType(header.lane)):
            return MemoryStatus.TYPE
        if header.address % self.options.block or header.length % 4 or (gradient and not header.length):
            return MemoryStatus.ALIGNMENT
        if gradient and header.length > self.options.block:
            return MemoryStatus.CROSSES
        if header.argument & 0xFFFFFFFF >= self.options.workers:
            return MemoryStatus.BOUNDS
        if (gradient and header.argument >> 32 == 0) or not settings_valid(message.segments):
            return MemoryStatus.MALFORMED
        return MemoryStatus.OK

    def execute(self, message: MemoryMessage, position: int) -> Execution:
        header = message.header
        if header.instruction != Instruction.OPTIMIZE:
            return super().execute(message, position)
        block = self.blocks.setdefault(header.address, ParameterBlock())
        if header.lane == LaneType.FLOAT32:
            block.length = block.length or header.length
            if block.length != header.length:
                return Execution(Result(MemoryStatus.MALFORMED))
        step, worker = header.argument >> 32, header.argument & 0xFFFFFFFF
        lane, settings = LaneType(header.lane), settings_of(message.segments)
        shared = bool(header.flags & Flag.SHARED)
        push = Push(header.client, header.sequence, step, worker, lane, message.payload, settings, shared)
        parameters = self._store.change(header.address, block.length, "<f4")
        # Infinities pass as IEEE 754 has it.
        with np.errstate(all="ignore"):
            return _outcome(push, block.take(self.options, parameters, push))

    def save(self, elsewhere: bool) -> bytes:  # noqa: ARG002 - the same for both
        return save(self.blocks)

    def load(self, saved: bytes) -> None:
        self.blocks = load(saved)


def _outcome(push: Push, answers: Sequence[Answer]) -> Execution:
    own, others = None, []
    for answer in answers:
        result = Result(answer.status, answer.payload, answer.argument, answer.lane, answer.shared)
        if (answer.client, answer.sequence) == (push.client, push.sequence):
            own = result
        else:
            others.append(Other(answer.client, answer.sequence, result))
    return Execution(own, tuple(others))


def settings_of(segments: Sequence[int]) -> tuple[float, ...]:
    """Segments as the numbers whose bits they are."""
    return struct.unpack(f">{len(segments)}d", struct.pack(f">{len(segments)}Q", *segments))


def settings_valid(segments: Sequence[int], most: int = _SETTINGS) -> bool:
    """True if the segments are settings of a step: finite, not negative, and not too many."""
    return len(segments) <= most and all(math.isfinite(value) and value >= 0 for value in settings_of(segments))
