"""An instruction on a place, as a packet's fields."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
from netsum.wire.memory import Instruction, MemoryHeader
from numpy.typing import NDArray

from tests.system.memory.model import MemoryRequest, shard_of
from tests.system.memory.places import Place, Theme
from tests.system.memory.plan import RegionPlan


class RequestFields(NamedTuple):
    """One instruction. ``fields``: those of a :class:`netsum.memory.run.InstructionRun` that are by row."""

    header: MemoryHeader
    addresses: NDArray[np.uint64]
    fields: dict[str, Any]


def request_of(request: MemoryRequest, place: Place, region: RegionPlan, base: int) -> RequestFields:
    """``base``: the region's first address."""
    instruction, data, length = request.instruction, request.payload, request.length
    fields: dict[str, Any] = {}
    if place.theme is Theme.ROWS:
        address = base + shard_of(place.pieces[0], region.shards) * region.granule
        data = struct.pack(f"<{len(request.path)}Q", *(place.pieces[row] for row in request.path)) + data
    else:
        address = base + place.offset(request.start)
    if data:
        fields["data"], length = np.frombuffer(data, np.uint8), len(data)
    if instruction == Instruction.COPY:
        fields["arguments"] = np.array([base + place.offset(request.source)], np.uint64)
    segments = [struct.unpack(">Q", struct.pack(">d", number))[0] for number in request.settings]
    if instruction == Instruction.SUM_FORWARD:
        segments = [base + place.offset(stop) for stop in request.path]
    if segments:
        fields["segments"] = np.array([segments], np.uint64)
    header = MemoryHeader(instruction, length=length, lane=request.lane, argument=request.argument)
    return RequestFields(header, np.array([address], np.uint64), fields)
