# SPDX-License-Identifier: MIT
"""Blocks that do not wait, on the model and on the program: closed by scans, by members that ask again, without stragglers and
without the evicted. No test waits: ``block_exp`` is one microsecond or an hour."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pytest
from netsum.wire.codec import Header
from netsum.wire.schema import AgeOp, BlockState, Outcome, Status

from tests.protocol import star
from tests.protocol.frame_model import NEVER, FrameModel, Sent
from tests.protocol.frames import Datagram
from tests.protocol.replay import Change, Event, Scan, Step, contribute, replay
from tests.protocol.targets import InProcess, Target

JOB = star.JOBS[star.LATE]
AT_ONCE, HELD_BACK = (Change(star.LATE, JOB._replace(block_exp=block_exp)) for block_exp in (1, NEVER))
SCAN = Scan(star.LATE)
say = partial(contribute, star.LATE, JOB)


def heads(sent: Sent) -> list[tuple[int, Header]]:
    """Ports and netsum headers of results, by port."""
    return sorted((port, Datagram.parse(frame).header) for port, frame in sent)


def told(sent: Sent) -> list[tuple[int, AgeOp, int, int, int]]:
    """Fields of the results: port, age_op, degraded, workers, lanes."""
    return [(port, AgeOp(h.age_op), h.degraded, h.worker_cnt, h.lane_cnt) for port, h in heads(sent)]


def counted(model: FrameModel, outcome: Outcome) -> int:
    return model.switch.outcomes.get((star.LATE, outcome), 0)


def state(model: FrameModel, block: int) -> BlockState:
    return model.switch.records[JOB.slot_of(JOB.first_block_id + block)].state


def after(events: Iterable[Event], target: Target) -> FrameModel:
    """The model after these events, which the target took the same way."""
    return replay([HELD_BACK, *events], target)


def test_a_scan_closes_an_old_block_and_members_fetch_it(target: Target) -> None:
    model = after([say(0, 0, 5), say(1, 0, 6), SCAN], target)
    assert counted(model, Outcome.AGED) == 0
    replay([AT_ONCE], target, model)
    closed, notices = target.scan(star.scan_frame(star.LATE))
    assert (closed, sorted(notices)) == (1, sorted(model.scan(star.scan_frame(star.LATE))[1]))
    aged, late = (AgeOp.AGED, 1, 4, 0), (AgeOp.LATE, 1, 4, 0)
    assert told(notices) == [(1, *late), (2, *aged), (3, *aged)]
    replay([say(0, 0, 5), say(1, 0, 6), say(2, 0, 7), say(2, 0, 8), SCAN], target, model)
    assert counted(model, Outcome.REPLAYED) == 4
    assert state(model, 0) == BlockState.DONE


def test_who_asks_again_closes_an_old_block(target: Target) -> None:
    model = after([say(0, 0, 5), say(0, 0, 5), AT_ONCE, say(0, 0, 5)], target)
    assert counted(model, Outcome.DUPLICATE) == 2  # not old, and no quorum
    replay([HELD_BACK, say(1, 0, 6), AT_ONCE, say(1, 0, 6), say(2, 0, 7)], target, model)
    assert (counted(model, Outcome.AGED), counted(model, Outcome.REPLAYED)) == (1, 1)
    replay([HELD_BACK, say(0, 1), say(1, 1, 6), AT_ONCE, say(0, 1, room=0), say(2, 1, 6)], target, model)
    assert counted(model, Outcome.AGED) == 2


def test_a_result_says_who_is_in_it(target: Target) -> None:
    model = after([say(0, 0, 5), say(1, 0, 6), AT_ONCE], target)
    for event, right in (
        (say(0, 0, 5), [(1, AgeOp.LATE, 1, 4, 64), (2, AgeOp.AGED, 1, 4, 64), (3, AgeOp.AGED, 1, 4, 64)]),
        (say(2, 0, 7), [(1, AgeOp.LATE, 1, 4, 64)]),
        (say(1, 0, 7), [(3, AgeOp.AGED, 1, 4, 64)]),
    ):
        sent = target.exchange(event.port, event.frame)
        assert sorted(sent) == sorted(model.process(event.port, event.frame))
        assert told(sent) == right
        assert {frame[-1] for _, frame in sent} == {11}


def test_firm_blocks_wait(target: Target) -> None:
    model = after([say(0, 0, 5, no_aging=1), say(1, 0, 6), AT_ONCE, SCAN, say(0, 0, 5), say(1, 0, 6)], target)
    assert counted(model, Outcome.AGED) == 0
    replay([HELD_BACK, say(0, 1, 5), say(1, 1, 6, no_aging=1), AT_ONCE, SCAN, say(2, 0, 7)], target, model)
    assert (counted(model, Outcome.AGED), counted(model, Outcome.COMPLETED)) == (1, 1)
    assert (state(model, 0), state(model, 1)) == (BlockState.DONE, BlockState.DONE)


def test_an_abort_does_not_make_a_block_firm(target: Target) -> None:
    abort = say(0, 0, None, status=Status.ABORT, no_aging=1)
    model = after([abort, say(1, 0, 6), AT_ONCE, SCAN, say(2, 0, 5)], target)
    assert counted(model, Outcome.AGED) == 1


def test_who_passes_is_not_counted(target: Target) -> None:
    nothing = {"worker_cnt": 0, "degraded": 1}
    model = after([say(0, 0, None, **nothing), say(2, 0, 5), AT_ONCE, SCAN, say(0, 0, None, **nothing)], target)
    assert counted(model, Outcome.AGED) == 0  # one worker
    replay([say(1, 0, 6)], target, model)
    assert counted(model, Outcome.COMPLETED) == 1
    sent = target.exchange(2, say(0, 0, None, **nothing).frame)
    assert told(sent) == [(2, AgeOp.AGED, 1, 4, 64)]


@pytest.mark.parametrize("worker_cnt", [0, 1, 2])
def test_a_source_may_stand_for_fewer_workers_than_it_has(target: Target, worker_cnt: int) -> None:
    fewer = say(1, 0, None, worker_cnt=worker_cnt, degraded=1)
    model = after([say(0, 0, 5), fewer, say(2, 0, 7)], target)
    assert model.switch.records[JOB.slot_of(JOB.first_block_id)].worker_cnt == 2 + worker_cnt
    sent = target.exchange(2, say(0, 0, 5).frame)
    assert told(sent) == [(2, AgeOp.AGED, 1, 2 + worker_cnt, 64)]


def test_only_suspects_are_missing(target: Target) -> None:
    """Ids wrap on the way. Member 2 sleeps, is waited for once, catches up, and is waited for again."""
    model = after([say(0, 0, 1), say(1, 0, 1), AT_ONCE, SCAN, HELD_BACK], target)
    for block in range(1, 12):
        replay([say(1, block, 1), say(0, block, 1)], target, model)
        assert (counted(model, Outcome.AGED), state(model, block)) == (block + 1, BlockState.DONE)
    replay([say(2, block, 1) for block in range(8)], target, model)
    replay([say(1, 12, 1), say(0, 12, 1)], target, model)
    assert state(model, 12) == BlockState.DONE  # it was more than a window behind
    replay([say(2, 11, 1), say(1, 13, 1), say(0, 13, 1), SCAN], target, model)
    assert state(model, 13) == BlockState.OPEN
    replay([AT_ONCE, SCAN], target, model)
    assert state(model, 13) == BlockState.DONE


def test_the_evicted_are_not_waited_for(target: Target) -> None:
    """In a job that waits: more blocks than a pass of the scan looks at, the evicted one in some of them."""
    waits = JOB._replace(block_exp=0, quorum=0)
    blocks = range(JOB.slots)
    events: list[Event] = [Change(star.LATE, waits)]
    events += [say(member, block, 1) for block in blocks for member in ((0, 2) if block % 3 else (0, 1))]
    model = replay([*events, SCAN, Change(star.LATE, waits._replace(members=JOB.members[::2]))], target)
    closed, notices = target.scan(star.scan_frame(star.LATE))
    expected = model.scan(star.scan_frame(star.LATE))
    assert (closed, sorted(notices)) == (expected[0], sorted(expected[1]))
    assert closed == sum(block % 3 != 0 for block in blocks)
    assert {line[1:4] for line in told(notices)} == {(AgeOp.NORMAL, 0, 2)}
    replay([*(say(member, block, 1) for block in blocks for member in (1, 0, 2)), SCAN], target, model)
    assert counted(model, Outcome.NOT_MEMBER) == JOB.slots
    assert {state(model, block) for block in blocks} == {BlockState.DONE}


def test_who_asks_again_closes_what_only_the_evicted_lack(target: Target) -> None:
    waits = JOB._replace(block_exp=0, quorum=0)
    model = replay([Change(star.LATE, waits), say(0, 0, 1), say(2, 0, 1), say(0, 0, 1)], target)
    replay([Change(star.LATE, waits._replace(members=JOB.members[::2])), say(0, 0, 1)], target, model)
    assert (counted(model, Outcome.DUPLICATE), counted(model, Outcome.AGED)) == (1, 1)


def test_aging_begins_with_blocks_open(target: Target) -> None:
    model = replay([Change(star.LATE, JOB._replace(block_exp=0, quorum=0)), *(say(1, block, 1) for block in range(4))], target)
    replay([AT_ONCE, SCAN], target, model)
    assert counted(model, Outcome.AGED) == 4


def test_a_new_epoch_has_no_suspects(target: Target) -> None:
    model = after([say(0, 0, 1), say(1, 0, 1), AT_ONCE, SCAN], target)
    new = JOB._replace(epoch=30, first_block_id=JOB.first_block_id + 64 & 0xFFFFFFFF, block_exp=NEVER)
    replay([Change(star.LATE, new), say(0, 64, 1), say(1, 64, 1), SCAN], target, model)
    assert state(model, 64) == BlockState.OPEN
    replay([Change(star.LATE, new._replace(block_exp=1)), SCAN], target, model)
    assert state(model, 64) == BlockState.DONE


def test_a_scan_of_an_unknown_job_is_answered(target: Target) -> None:
    model = replay([Scan(77)], target)
    assert model.switch.outcomes == {(77, Outcome.SCANNED): 1}


def test_a_broken_scan_closes_nothing(target: Target) -> None:
    model = after([say(0, 0, 5), say(1, 0, 6), AT_ONCE], target)
    good = Datagram.parse(star.scan_frame(star.LATE))
    for wrong in (good.but(ip_checksum=0x1234), good.but(udp_length=25), good.but(total_length=60)):
        assert target.scan(wrong.to_bytes()) == (0, [])
        model.switch.outcomes[star.LATE, Outcome.SCANNED] = counted(model, Outcome.SCANNED) + 1
    replay([SCAN], target, model)
    assert counted(model, Outcome.AGED) == 1


def test_a_scan_for_another_address_goes_nowhere() -> None:
    target = InProcess(star.items())
    frame = Datagram.parse(star.scan_frame(star.LATE)).but(ip_dst=star.station(2).ip, ip_checksum=-1).to_bytes()
    assert target.pipeline.process(510, b"\1\0\0\0\0\0\0" + frame) == []


def test_members_cannot_scan(target: Target) -> None:
    """A frame is a scan because of the CPU port, not of its bytes."""
    model = after([say(0, 0, 5), say(1, 0, 6), AT_ONCE], target)
    frame = star.scan_frame(star.LATE)
    replay([Step(1, frame), Step(2, b"\1\0\0\0\0\0\0" + frame)], target, model)
    assert state(model, 0) == BlockState.OPEN
