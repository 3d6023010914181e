# SPDX-License-Identifier: MIT
"""Invariants where results may lack a rank: in jobs that degrade, and after a member was evicted.

Values are digits (``scenario.digits``), so that a sum tells whose contributions are in it, and how often.
"""

from __future__ import annotations

from netsum.wire.schema import BlockState, Op, Status

from tests.model.host import EXCUSED, LOST, Call, Host, Result
from tests.model.rules import ID_MASK, Job, Record
from tests.model.scenario import Scenario

STUCK = "not every rank can finish"
"""What is said of a state from which no delivery and no timer brings every rank to the end."""


def _values(calls: list[Call], offset: int) -> dict[int, int]:
    """The payload of each rank that brings one to a block."""
    speaking = {rank: call.blocks[offset] for rank, call in enumerate(calls) if not (call.aborts or call.passes)}
    return {rank: value for rank, value in speaking.items() if value is not None}


def odd_result(scenario: Scenario, host: Host, index: int, result: Result) -> str:
    """The error in a result that a rank has taken, or nothing."""
    programs = scenario.replaced if host.run else scenario.programs
    todo = host.plan[index]
    calls = [program[todo.call] for program in programs]
    if scenario.calls_differ and scenario.expected(host, todo) is None:
        return ""
    if result == LOST:
        return "" if scenario.degrades else f"block {index} is lost"
    if sum(result.payload) & EXCUSED:
        return ""
    if result.status != Status.OK:
        return "" if any(call.aborts for call in calls) else f"block {index} is {result}"
    values = _values(calls, todo.offset)
    total = sum(result.payload)
    counted = {rank for rank, value in values.items() if total & value}
    if sum(values[rank] for rank in counted) != total or not len(counted) == result.data_cnt <= result.worker_cnt:
        return f"block {index}: a wrong sum, {result}"
    if host.rank in values and (host.rank in counted) == result.late:
        return f"block {index}: rank {host.rank} is told the wrong thing about its own contribution, {result}"
    missing = set(values) - counted - set(scenario.mortals)
    if missing and calls[0].no_aging:
        return f"block {index} is firm and lacks {missing}"
    if missing and not result.degraded:
        return f"block {index} is not said to be partial and lacks {missing}"
    excused = sum(call.passes for call in calls) + len(scenario.mortals if scenario.evicts else ())
    if result.degraded and result.worker_cnt + excused < scenario.quorum:
        return f"block {index} has a result below the quorum, {result}"
    if result.degraded and not scenario.degrades and not any(call.passes for call in calls):
        return f"block {index} is partial in a job that waits"
    return ""


def odd_record(scenario: Scenario, job: Job, record: Record) -> str:
    """The error in a block record of the first run, or nothing. Of switches that have hosts alone, since of others a
    source is no rank, and that have sent nothing up or got it back."""
    if scenario.calls_differ or any(member.switch for member in job.members) or record.state == BlockState.DEAD:
        return ""
    if job.uplinks and record.state == BlockState.DONE:
        return ""
    index = (record.block_id - scenario.first_block_id) & ID_MASK
    blocks = [(call, offset) for call, each in enumerate(scenario.programs[0]) for offset in range(len(each.blocks))]
    if record.state == BlockState.EMPTY or record.epoch != job.epoch or index >= len(blocks):
        return ""
    call, offset = blocks[index]
    if any(each.opens and each.aborts for program in scenario.programs for each in program[: call + 1]):
        return ""  # whose block it is depends on whether the others heard of it
    calls = [program[call] for program in scenario.programs]
    seen = [rank for rank in range(scenario.workers) if record.seen >> rank & 1]
    values = _values(calls, offset)
    right = (sum(not calls[rank].passes for rank in seen), sum(rank in values for rank in seen))
    if (record.worker_cnt, record.data_cnt) != right:
        return f"block {index} counts {record.worker_cnt} and {record.data_cnt}, right is {right}"
    if record.data_cnt and sum(record.buffer) != sum(values[rank] for rank in seen if rank in values):
        return f"block {index} holds a wrong sum"
    if record.state in (BlockState.DONE, BlockState.SENT) and job.all_sources & ~record.seen:
        if not job.uplinks and not 0 < job.quorum <= record.worker_cnt:
            return f"block {index} is closed below the quorum"
        if record.no_aging:
            return f"block {index} is firm and closed partially"
    return ""


def differ(one: Host, other: Host) -> str:
    """Of which block two ranks of a run hold different results, or nothing."""
    if one.run != other.run:
        return ""
    for index, (ours, theirs) in enumerate(zip(one.results, other.results, strict=False)):
        if None in (ours, theirs) or LOST in (ours, theirs):
            continue
        assert ours is not None
        assert theirs is not None
        if EXCUSED & (sum(ours.payload) | sum(theirs.payload)):
            continue
        if ours._replace(late=False) != theirs._replace(late=False):
            return f"ranks {one.rank} and {other.rank} hold different results of block {index}: {ours} and {theirs}"
    return ""


def changed(before: Record, after: Record) -> str:
    """True if a closed record was changed other than by the next block of its slot, or a partial that was sent other than by
    the parent or a higher status."""
    if (before.epoch, before.block_id) != (after.epoch, after.block_id):
        return ""
    if before.state in (BlockState.DONE, BlockState.DEAD) and before != after:
        return f"the closed record of id {before.block_id} changes"
    if before.state == after.state == BlockState.SENT:
        after = after._replace(status=before.status)
        if before.op == Op.COPY and not before.lane_cnt:  # its payload has come down
            after = after._replace(lane_cnt=0, buffer=before.buffer)
    if before.state == after.state == BlockState.SENT and before != after:
        return f"the partial of id {before.block_id} changes"
    return ""
