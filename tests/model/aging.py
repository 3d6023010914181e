# SPDX-License-Identifier: MIT
"""The time at which a block need not wait any longer, and the members that the switch takes for late: the rules of degrade jobs
and of eviction, as in ``p4src/state.p4`` and in ``p4src/control/aging_scan.p4``.

There is no clock: ``old`` says whether the block began at least ``block_exp`` ago.
"""

from __future__ import annotations

from tests.model.flags import Rules
from tests.model.state import ID_MASK, Job, Member, Progress, Record


def all_in(job: Job, seen: int, rules: Rules) -> bool:
    """True if every source that the job has now has contributed."""
    return seen & job.all_sources == job.all_sources if rules.evicted_do_not_count else seen == job.all_sources


def may_close(job: Job, record: Record, rules: Rules) -> bool:
    """True if a block may be closed without a rank."""
    enough = record.worker_cnt >= job.quorum or not rules.quorum
    return job.block_exp != 0 and enough and not (record.no_aging and rules.no_aging_waits)


def all_but_stragglers(job: Job, record: Record, progress: Progress, rules: Rules) -> bool:
    """True if a block lacks no rank but stragglers, and may be closed without them."""
    if not rules.stragglers_close or not may_close(job, record, rules):
        return False
    return (record.seen | progress.stragglers) & job.all_sources == job.all_sources


def closed(record: Record, rules: Rules, *, late: bool) -> Record:
    """The record of a block that is closed; ``late``: without a rank that is late, not without all."""
    return record._replace(degraded=record.degraded | int(late and rules.marks_partial))


def close_waiting(job: Job, record: Record, progress: Progress, rules: Rules, *, old: bool) -> tuple[Record, Progress] | None:
    """The state in which a scan, or a member that asks again, leaves an open block, still to be finished; None: it has to
    wait."""
    if all_in(job, record.seen, rules):
        return closed(record, rules, late=False), progress
    if old and may_close(job, record, rules):
        missing = job.all_sources & ~record.seen
        return closed(record, rules, late=True), progress._replace(stragglers=progress.stragglers | missing)
    return None


def current(job: Job, progress: Progress, rules: Rules) -> Progress:
    """Progress of a job whose blocks age: nothing from another epoch. Every block of the first window may be open."""
    if job.block_exp == 0 or (progress.epoch == job.epoch or (progress.epoch and not rules.progress_of_this_epoch)):
        return progress
    return Progress(0, job.epoch, (job.first_block_id + job.window - 1) & ID_MASK)


def heard(job: Job, member: Member, progress: Progress, block_id: int, rules: Rules) -> Progress:
    """A contribution of a member has come, whatever becomes of it: a straggler that is less than a window behind is none."""
    behind = (progress.newest_block - block_id) & ID_MASK
    if job.block_exp == 0 or not rules.hears_again or job.window <= behind < 1 << 31:
        return progress
    return progress._replace(stragglers=progress.stragglers & ~member.source)


def moved(job: Job, progress: Progress, block_id: int, rules: Rules) -> Progress:
    """A contribution to a block was accepted: the newest_block may be this one."""
    ahead = ((progress.newest_block - block_id) & ID_MASK) >> 31
    return progress._replace(newest_block=block_id) if job.block_exp and ahead and rules.newest_block_moves else progress


def scanned_slots(job: Job, progress: Progress) -> list[int]:
    """The slots that a scan looks at, in its order: those that blocks may be open in."""
    first, count = (progress.newest_block + 1 - job.window, job.window) if job.block_exp else (0, job.slots)
    return [job.slot_of(first + offset) for offset in range(count)]
