"""Regions of kind "parameters": memory as any other, with OPTIMIZE. Its blocks are made when first pushed at."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
from netsum.wire.memory import Flag, Instruction, LaneType, MemoryStatus

from netsum_memory import validation
from netsum_memory.execute import Other, Outcome, Result
from netsum_memory.message import Message
from netsum_memory.optimizer import Answer, Block, Push
from netsum_memory.optimizer_options import Options
from netsum_memory.optimizer_state import load, save
from netsum_memory.region import Region
from netsum_memory.region_types import ArrayRegionType
from netsum_memory.store import Store

_NORMS: Final = 16
"""Bytes of the second phase: two norms squared, in float64."""
_SETTINGS: Final = 3
"""Learning rate, weight decay, trust coefficient."""


class ParametersKind(ArrayRegionType):
    def __init__(self, region: Region, shard: int, store: Store) -> None:
        super().__init__(region, shard, store)
        if region.dtype not in (None, "float32"):
            raise ValueError(f"region {region.name}: parameters are float32, not {region.dtype}")
        self.options = Options.of(region.options)
        self.blocks: dict[int, Block] = {}

    def check(self, message: Message) -> MemoryStatus:
        header = message.header
        if header.instruction != Instruction.OPTIMIZE:
            return super().check(message)
        return (
            validation.right(self._region, header)
            or validation.place(self._region, header.address, header.length)
            or self._check_push(message)
        )

    def _check_push(self, message: Message) -> MemoryStatus:
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

    def execute(self, message: Message, position: int) -> Outcome:
        header = message.header
        if header.instruction != Instruction.OPTIMIZE:
            return super().execute(message, position)
        block = self.blocks.setdefault(header.address, Block())
        if header.lane == LaneType.FLOAT32:
            block.length = block.length or header.length
            if block.length != header.length:
                return Outcome(Result(MemoryStatus.MALFORMED))
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


def _outcome(push: Push, answers: Sequence[Answer]) -> Outcome:
    own, others = None, []
    for answer in answers:
        result = Result(answer.status, answer.payload, answer.argument, answer.lane, answer.shared)
        if (answer.client, answer.sequence) == (push.client, push.sequence):
            own = result
        else:
            others.append(Other(answer.client, answer.sequence, result))
    return Outcome(own, tuple(others))


def settings_of(segments: Sequence[int]) -> tuple[float, ...]:
    """Segments as the numbers whose bits they are."""
    return struct.unpack(f">{len(segments)}d", struct.pack(f">{len(segments)}Q", *segments))


def settings_valid(segments: Sequence[int], most: int = _SETTINGS) -> bool:
    """Whether the segments are settings of a step: finite, not negative, and not too many."""
    return len(segments) <= most and all(math.isfinite(value) and value >= 0 for value in settings_of(segments))
