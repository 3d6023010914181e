"""What replies that are not OK mean to the caller."""

from __future__ import annotations

from typing import Final

from netsum.errors import Forbidden, InstructionRefused, MemoryLost, NoRegion, OutOfBounds, WrongType
from netsum.wire.memory import MemoryStatus
from netsum.wire.names import MEMORY_NAMES

_ERRORS: Final[dict[int, type[InstructionRefused]]] = {
    MemoryStatus.NO_REGION: NoRegion,
    MemoryStatus.FORBIDDEN: Forbidden,
    MemoryStatus.BOUNDS: OutOfBounds,
    MemoryStatus.LOST: MemoryLost,
    MemoryStatus.TYPE: WrongType,
    MemoryStatus.UNSUPPORTED: WrongType,
}


def status_name(status: int) -> str:
    return MEMORY_NAMES["status"].get(status, f"status {status}")


def refusal(region: str, address: int, status: int, what: str) -> InstructionRefused:
    """The error for an instruction that was refused."""
    return _ERRORS.get(status, InstructionRefused)(region, address, status_name(status), what)
