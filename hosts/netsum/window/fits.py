"""Checks whether a result can belong to a block."""

from __future__ import annotations

from netsum.window.block import Block
from netsum.wire.codec import Header
from netsum.wire.schema import AgeOp, Status


def is_of(block: Block, header: Header) -> bool:
    """Whether a packet is about this block's call, not one that another rank has made in its place."""
    return header.gen_id == block.gen and header.call == block.call


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


def ordinary(block: Block, header: Header, size: int, workers: int, degrade: bool, *, for_me: bool) -> bool:
    """Whether a result with ``size`` bytes after its header is this block's, OK, whole, and says nothing besides. ``for_me``:
    this member gets the payload."""
    return (
        is_of(block, header)
        and header.status == Status.OK
        and not header.degraded
        and header.age_op == AgeOp.NORMAL
        and not header.give_way
        and size == header.payload_bytes
        and (size > 0 or not header.data_cnt or not for_me)
        and fits(block, header, size, workers, degrade)
    )
