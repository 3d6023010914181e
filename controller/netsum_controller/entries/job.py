"""Stage ``job``: the job record."""

from __future__ import annotations

from dataclasses import dataclass

from netsum.wire.schema import Role

from netsum_controller.entries.entry import Entry


@dataclass(frozen=True)
class JobEntry(Entry, table="job", action="job_here", key=("job_id",)):
    """Job ``job_id`` in epoch ``epoch``. A block is complete when ``all_sources`` (a bit each) have contributed; block b lives
    in slot ``slot_base + (b & slot_mask)``; ``first_block_id`` is the epoch's first. A block older than ``block_exp``
    microseconds (0: never) may be closed if ``quorum`` workers are in it; at most ``window`` blocks are open at a time.
    ``role`` says what the switch does with a complete block. On a leaf, ``block_id & stripe_mask`` is the stripe, which
    determines a block's parent. ``priority`` is the class among competing jobs, or 0."""

    job_id: int
    epoch: int
    all_sources: int
    slot_base: int
    slot_mask: int
    first_block_id: int
    block_exp: int = 0
    quorum: int = 0
    window: int = 0
    role: int = int(Role.ROOT)
    stripe_mask: int = 0
    priority: int = 0
