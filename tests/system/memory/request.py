"""An instruction on a place, as a packet's fields."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
from netsum.wire.memory import Instruction, MemoryHeader
from numpy.typing import NDArray

from tests.system.memory.model import Asked, shard_of
from tests.system.memory.places import Place, Theme
from tests.system.memory.plan import RegionPlan


class Request(NamedTuple):
    """One instruction. ``fields``: those of a :class:`netsum.memory.run.InstructionRun` that are by row."""

    header: MemoryHeader
    addresses: NDArray[np.uint64]
    fields: dict[str, Any]


def request_of(asked: Asked, place: Place, region: RegionPlan, base: int) -> Request:
    """``base``: the region's first address."""
    instruction, data, length = asked.instruction, asked.payload, asked.length
    fields: dict[str, Any] = {}
    if place.theme is Theme.ROWS:
        address = base + shard_of(place.pieces[0], region.shards) * region.granule
        data = struct.pack(f"<{len(asked.path)}Q", *(place.pieces[row] for row in asked.path)) + data
    else:
        address = base + place.offset(asked.start)
    if data:
        fields["data"], length = np.frombuffer(data, np.uint8), len(data)
    if instruction == Instruction.COPY:
        fields["arguments"] = np.array([base + place.offset(asked.source)], np.uint64)
    segments = [struct.unpack(">Q", struct.pack(">d", number))[0] for number in asked.settings]
    if instruction == Instruction.SUM_FORWARD:
        segments = [base + place.offset(stop) for stop in asked.path]
    if segments:
        fields["segments"] = np.array([segments], np.uint64)
    header = MemoryHeader(instruction, length=length, lane=asked.lane, argument=asked.argument)
    return Request(header, np.array([address], np.uint64), fields)
