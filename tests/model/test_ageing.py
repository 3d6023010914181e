"""Ageing, rule by rule, on the model's switch: what a reader would check by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netsum.wire.codec import Header
from netsum.wire.schema import AgeOp, BlockState, Outcome, Status

from tests.model.rules import ALL_RULES, Job, Member, Packet, Rules, SwitchModel

JOB = 3
FIRST = 0xFFFFFFFE  # ids wrap
LANES = 64  # lanes of one chunk at 32 bits
WINDOW = 2


def switch(workers: int = 3, quorum: int = 2, slots: int = 8, rules: Rules = ALL_RULES, **changes: Any) -> SwitchModel:
    members = tuple(Member(rank, rank + 1, 20000 + rank, rank) for rank in range(workers))
    job = Job(1, FIRST, slots, 0, members, block_exp=1000, quorum=quorum, window=WINDOW)
    return SwitchModel({JOB: job._replace(**changes)}, rules=rules)


def packet(rank: int, block: int, value: int | None = 1, **fields: int) -> Packet:
    """A contribution of one chunk; value None: an empty one with room for one."""
    header = Header(
        JOB, FIRST + block & 0xFFFFFFFF, src_id=rank, gen_id=7, grad_cnt=LANES * (value is not None),
        data_cnt=int(value is not None),
    )  # fmt: skip
    return Packet(rank + 1, 20000 + rank, header._replace(**fields), (value or 0,))


def pass_of(rank: int, block: int) -> Packet:
    return packet(rank, block, None, src_cnt=0, degraded=1)


def record(model: SwitchModel, block: int) -> tuple[BlockState, int, int]:
    """State, degraded and workers of a block's slot."""
    found = model.records[model.jobs[JOB].slot_of(FIRST + block)]
    return found.state, found.degraded, found.src_cnt


def test_who_asks_again_closes_an_old_block() -> None:
    model = switch()
    model.step(packet(0, 0, 5))
    assert model.step(packet(0, 0, 5), old=True).outcome == Outcome.DUPLICATE  # below the quorum
    model.step(packet(1, 0, 6))
    assert model.step(packet(0, 0, 5)).outcome == Outcome.DUPLICATE  # not old
    step = model.step(packet(0, 0, 5), old=True)
    assert step.outcome == Outcome.AGED
    assert [reply.payload for reply in step.replies] == [(11,)] * 3
    assert [reply.header.age_op for reply in step.replies] == [AgeOp.AGED, AgeOp.AGED, AgeOp.LATE]
    assert {(h.degraded, h.src_cnt, h.data_cnt) for h in (reply.header for reply in step.replies)} == {(1, 2, 2)}
    late = model.step(packet(2, 0, 7))
    assert (late.outcome, late.replies) == (Outcome.REPLAYED, step.replies[2:])


def test_a_sweep_closes_old_blocks_with_notices() -> None:
    model = switch()
    for block in range(WINDOW):
        model.step(packet(0, block))
        model.step(packet(1, block))
    assert model.sweep(JOB, old=False) == (0, 8, ())
    swept = model.sweep(JOB, old=True)
    assert (swept.closed, len(swept.replies)) == (2, 6)
    assert {(reply.payload, reply.header.status) for reply in swept.replies} == {((), Status.OK)}
    assert model.step(packet(0, 0)).replies[0].payload == (2,)
    assert model.sweep(JOB, old=True).closed == 0


def test_a_job_that_waits_is_never_closed_by_time() -> None:
    model = switch(block_exp=0)
    model.step(packet(0, 0))
    model.step(packet(1, 0))
    assert model.step(packet(0, 0), old=True).outcome == Outcome.DUPLICATE
    assert model.sweep(JOB, old=True).closed == 0


def test_a_firm_block_waits_and_its_first_signing_packet_says_so() -> None:
    for first, state in ((1, BlockState.OPEN), (0, BlockState.DONE)):
        model = switch()
        model.step(packet(0, 0, firm=first))
        model.step(packet(1, 0, firm=1 - first))
        model.sweep(JOB, old=True)
        assert record(model, 0)[0] == state
    model = switch()
    model.step(packet(0, 0, None, status=Status.ABORT, firm=1))
    model.step(packet(1, 0, firm=0))
    assert model.sweep(JOB, old=True).closed == 1


def test_a_pass_answers_and_is_not_counted() -> None:
    model = switch()
    model.step(pass_of(0, 0))
    model.step(packet(1, 0, 6))
    assert model.sweep(JOB, old=True).closed == 0  # one worker is no quorum
    step = model.step(packet(2, 0, 7))
    assert step.outcome == Outcome.COMPLETED
    assert record(model, 0) == (BlockState.DONE, 1, 2)
    assert {reply.header.age_op for reply in step.replies} == {AgeOp.AGED}


def test_a_worker_that_passes_says_so_and_a_switch_may_have_lost_workers() -> None:
    model = switch()
    model.jobs[JOB] = model.jobs[JOB]._replace(
        members=(Member(0, 1, 20000, 0, workers=3), *model.jobs[JOB].members[1:])
    )
    bad = [
        packet(1, 0, degraded=1),
        packet(1, 0, None, src_cnt=0),
        packet(0, 0, src_cnt=4),
        packet(0, 0, None, src_cnt=4, degraded=1),
    ]
    for wrong in bad:
        assert model.step(wrong).outcome == Outcome.MALFORMED
    assert model.step(packet(0, 0, src_cnt=2, degraded=1)).outcome == Outcome.ACCEPTED
    assert record(model, 0) == (BlockState.OPEN, 1, 2)
    assert model.step(packet(0, 1, src_cnt=2)).outcome == Outcome.ACCEPTED
    assert record(model, 1) == (BlockState.OPEN, 0, 2)


def play(rules: Rules) -> list[Outcome]:
    """Rank 2 sleeps through blocks 0 to 3 and comes back for 3; then everybody contributes to 4, rank 2 last."""
    model = switch(rules=rules)
    outcomes = []
    for block in range(4):
        model.step(packet(0, block))
        outcomes.append(model.step(packet(1, block)).outcome)
        model.sweep(JOB, old=block == 0)
    model.step(packet(2, 3))
    return outcomes + [model.step(packet(rank, 4)).outcome for rank in range(3)]


def test_one_sleep_is_waited_for_once() -> None:
    accepted, completed, aged = Outcome.ACCEPTED, Outcome.COMPLETED, Outcome.AGED
    assert play(ALL_RULES) == [accepted, aged, aged, aged, accepted, accepted, completed]
    # Without the rules: every block of the sleep is waited for; or nobody is, ever after.
    assert play(replace(ALL_RULES, suspects_close=False)) == [accepted] * 4 + [accepted, accepted, completed]
    assert play(replace(ALL_RULES, hears_again=False)) == [accepted, aged, aged, aged, accepted, aged, Outcome.REPLAYED]


def test_who_is_a_window_behind_is_still_a_suspect() -> None:
    model = switch()
    model.step(packet(0, 0))
    model.step(packet(1, 0))
    model.sweep(JOB, old=True)
    for block in range(1, 4):
        model.step(packet(0, block))
        model.step(packet(1, block))
    assert model.step(packet(2, 1)).outcome == Outcome.REPLAYED
    assert model.frontiers[JOB].suspects == 1 << 2
    assert model.step(packet(2, 2)).outcome == Outcome.REPLAYED
    assert model.frontiers[JOB].suspects == 0


def test_an_evicted_member_is_not_waited_for() -> None:
    for block_exp in (0, 1000):
        model = switch(block_exp=block_exp, quorum=2)
        model.step(packet(0, 0, 5))
        model.step(packet(2, 0, 7))
        model.step(packet(0, 1, 5))
        job = model.jobs[JOB]
        model.jobs[JOB] = job._replace(members=job.members[:1] + job.members[2:])
        swept = model.sweep(JOB, old=False)
        assert (swept.closed, len(swept.replies)) == (1, 2)
        assert record(model, 0) == (BlockState.DONE, 0, 2)
        assert model.step(packet(1, 1)).outcome == Outcome.NOT_MEMBER
        assert model.step(packet(2, 1, 7)).outcome == Outcome.COMPLETED


def test_a_contribution_of_one_who_is_evicted_then_counts() -> None:
    model = switch()
    for rank in (0, 1):
        model.step(packet(rank, 0, 5))
    job = model.jobs[JOB]
    model.jobs[JOB] = job._replace(members=job.members[:1])
    step = model.step(packet(0, 0, 5))
    assert (step.outcome, len(step.replies)) == (Outcome.AGED, 1)
    assert record(model, 0) == (BlockState.DONE, 0, 2)


def test_a_sweep_looks_at_the_window_or_at_all_slots() -> None:
    model = switch(slots=16, window=8)
    assert model.swept_slots(JOB) == [14, 15, 0, 1, 2, 3, 4, 5]
    model.step(packet(0, 24))  # not accepted: two laps ahead of its slot
    model.step(packet(0, 8))
    assert model.swept_slots(JOB) == [15, 0, 1, 2, 3, 4, 5, 6]
    model.jobs[JOB] = model.jobs[JOB]._replace(block_exp=0)
    assert model.swept_slots(JOB) == list(range(16))
    model.outcomes.clear()
    assert model.sweep(JOB, old=False).end == 16
    assert model.sweep(77, old=False) == (0, 0, ())
    assert model.outcomes == {(JOB, Outcome.SWEPT): 2, (77, Outcome.SWEPT): 1}
