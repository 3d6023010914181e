"""What replies that are not OK mean to the caller."""

from __future__ import annotations

from typing import Final

from netsum.errors import (
    ForbiddenError,
    InstructionRejectedError,
    LaneTypeError,
    MemoryLostError,
    OutOfBoundsError,
    UnknownRegionError,
)
from netsum.wire.memory import MemoryStatus
from netsum.wire.names import MEMORY_NAMES

_ERRORS: Final[dict[int, type[InstructionRejectedError]]] = {
    MemoryStatus.NO_REGION: UnknownRegionError,
    MemoryStatus.FORBIDDEN: ForbiddenError,
    MemoryStatus.BOUNDS: OutOfBoundsError,
    MemoryStatus.LOST: MemoryLostError,
    MemoryStatus.TYPE: LaneTypeError,
    MemoryStatus.UNSUPPORTED: LaneTypeError,
}


def status_name(status: int) -> str:
    return MEMORY_NAMES["status"].get(status, f"status {status}")


def refusal(region: str, address: int, status: int, what: str) -> InstructionRejectedError:
    """The error for an instruction that was refused."""
    return _ERRORS.get(status, InstructionRejectedError)(region, address, status_name(status), what)
