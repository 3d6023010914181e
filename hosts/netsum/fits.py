"""Checks whether a result can belong to a block."""

from __future__ import annotations

from netsum.block import Block
from netsum.wire.codec import Header
from netsum.wire.schema import AgeOp


def fits(block: Block, header: Header, room: int, workers: int, degrade: bool) -> bool:
    """Whether a result with status OK and ``room`` bytes after its header can be this block's: the same operation, a plausible
    number of workers (fewer in a job that ``degrade``s), and not cut off."""
    size = header.payload_bytes
    return (
        header.op == block.op
        and header.lane == block.lane
        and header.dest == block.dest
        and header.src_cnt <= workers
        and (degrade or not header.degraded)
        and (size in (0, len(block.payload)) or not block.payload)
        and size <= room
        and (header.age_op == AgeOp.LATE or header.data_cnt >= bool(block.payload))
        and (header.data_cnt > 0 or size == 0)
    )
