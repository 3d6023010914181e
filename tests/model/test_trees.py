"""A leaf of a tree, rule by rule: what a reader would check by hand. Two hosts below it, or a host and a switch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netsum.wire.codec import Header
from netsum.wire.schema import EVERYONE, AgeOp, BlockState, Hop, Lane, Op, Outcome, Status

from tests.model.rules import ALL_RULES, Job, Member, Packet, Reply, Rules, Step, SwitchModel, Uplink
from tests.model.test_rules import FIRST, JOB, LANES, packet

UPLINKS = (Uplink(9, 30000, 5), Uplink(8, 30001, 5))
HOSTS = (Member(0, 1, 20000, 0), Member(1, 2, 20001, 1))
SWITCH_BELOW = Member(6, 3, 20006, EVERYONE, workers=2, switch=True)


def leaf(*, rules: Rules = ALL_RULES, members: tuple[Member, ...] = HOSTS, **changes: Any) -> SwitchModel:
    job = Job(1, FIRST, 4, 0, members, window=2, uplinks=UPLINKS)
    return SwitchModel({JOB: job._replace(**changes)}, rules=rules)


def down(block: int, value: int | None = None, **fields: int) -> Packet:
    """What comes from the parent of a block: a result of one chunk, or without payload."""
    up = UPLINKS[block % 2]
    header = Header(JOB, FIRST + block, src_id=up.src_id, src_cnt=4, gen_id=7, hop=Hop.DOWN)
    if value is not None:
        header = header._replace(grad_cnt=LANES, data_cnt=2)
    return Packet(up.port, up.udp_port, header._replace(**fields), () if value is None else (value,))


def sent(model: SwitchModel, block: int = 0, **fields: int) -> Reply:
    """The partial of both hosts."""
    model.step(packet(0, block, 5, **fields))
    (reply,) = model.step(packet(1, block, 6, **fields)).replies
    return reply


def state(model: SwitchModel, block: int = 0) -> BlockState:
    return model.records[(FIRST + block) & 3].state


def statuses(step: Step) -> list[tuple[int, int, int]]:
    """Receiver, status and reason of answers, header only."""
    assert all(reply.payload == () for reply in step.replies)
    return [(reply.port, reply.header.status, reply.header.age_op) for reply in step.replies]


def test_a_complete_block_goes_up_as_one_contribution() -> None:
    model = leaf()
    reply = sent(model)
    h = reply.header
    assert (reply.port, reply.udp_port, reply.payload) == (9, 30000, (11,))
    assert (h.hop, h.src_id, h.src_cnt, h.data_cnt, h.grad_cnt, h.age_op) == (Hop.UP, 5, 2, 2, LANES, 0)
    assert state(model) == BlockState.SENT
    assert model.outcomes[JOB, Outcome.COMPLETED] == 1


def test_a_blocks_stripe_says_which_parent_it_has() -> None:
    model = leaf()
    assert [sent(model, block).port for block in range(4)] == [9, 8, 9, 8]


def test_who_asks_again_sends_the_partial_up_and_adds_nothing() -> None:
    model = leaf()
    reply = sent(model)
    step = model.step(packet(0, 0, 5))
    assert (step.outcome, step.replies) == (Outcome.RESENT, (reply,))
    assert model.step(packet(1, 0, 6, gen_id=9)).replies == (reply,)


def test_a_slot_under_way_is_not_opened_by_the_next_lap() -> None:
    model = leaf()
    sent(model)
    assert model.step(packet(0, 4)).outcome == Outcome.WINDOW
    model.step(down(0, 30))
    assert model.step(packet(0, 4)).outcome == Outcome.ACCEPTED


def test_the_parents_result_is_kept_and_sent_down() -> None:
    model = leaf(members=(*HOSTS[:1], SWITCH_BELOW))
    model.step(packet(0, 0, 5, dest=3))
    below = Packet(3, 20006, packet(6, 0, 6, dest=3, hop=Hop.UP, src_cnt=2).header, (6,))
    assert model.step(below).outcome == Outcome.COMPLETED
    step = model.step(down(0, 30, dest=3))
    assert (step.outcome, state(model)) == (Outcome.RETURNED, BlockState.DONE)
    host, switch = step.replies
    assert (host.header.hop, host.payload) == (Hop.HOST, ())  # not its destination
    assert (switch.header.hop, switch.payload, switch.udp_port) == (Hop.DOWN, (30,), 20006)
    replayed = model.step(below)
    assert (replayed.outcome, replayed.replies) == (Outcome.REPLAYED, (switch,))
    assert model.step(down(0, 31, dest=3)).outcome == Outcome.IGNORED


def test_without_room_whoever_completes_is_asked_for_it() -> None:
    model = leaf()
    model.step(packet(0, 0, 5))
    step = model.step(packet(1, 0, None, room=0))
    assert (step.outcome, state(model)) == (Outcome.COMPLETED, BlockState.SENT)
    assert statuses(step) == [(2, Status.AGAIN, 0)]
    assert step.replies[0].header.grad_cnt == LANES
    (reply,) = model.step(packet(1, 0, None, room=2)).replies
    assert (reply.port, reply.payload) == (9, (5,))


def test_a_partial_without_payload_keeps_its_packets_room() -> None:
    for first, last in (({}, {}), ({"status": Status.ABORT}, {}), ({}, {"status": Status.RANGE})):
        model = leaf()
        model.step(packet(0, 0, None, **first))
        (reply,) = model.step(packet(1, 0, None, room=3, **last)).replies
        assert (reply.port, len(reply.payload), reply.header.grad_cnt) == (9, 3, 0)
    model = leaf()
    sent(model)
    (reply,) = model.step(packet(0, 0, None, room=2, status=Status.MISMATCH)).replies
    assert (len(reply.payload), reply.header.status, reply.header.data_cnt) == (2, Status.MISMATCH, 0)


def test_a_notice_or_a_parent_without_room_asks_the_children() -> None:
    for said in (down(0, data_cnt=2), down(0, status=Status.AGAIN)):
        model = leaf()
        assert model.step(said).outcome == Outcome.IGNORED  # nobody has asked
        for rank, now in ((0, BlockState.OPEN), (1, BlockState.SENT)):
            model.step(packet(rank, 0, 5))
            step = model.step(said)
            assert (step.outcome, state(model)) == (Outcome.TOLD, now)
            assert statuses(step) == [(1, Status.AGAIN, 0), (2, Status.AGAIN, 0)]
            assert {reply.header.grad_cnt for reply in step.replies} == {LANES}


def test_stale_from_the_parent_ends_the_block_for_all_below() -> None:
    model = leaf()
    assert model.step(down(0, status=Status.STALE)).outcome == Outcome.IGNORED
    sent(model)
    step = model.step(down(0, status=Status.STALE))
    assert (step.outcome, state(model)) == (Outcome.TOLD, BlockState.DEAD)
    assert statuses(step) == [(1, Status.STALE, 0), (2, Status.STALE, 0)]
    assert model.step(down(0, 30)).outcome == Outcome.IGNORED
    assert model.step(packet(0, 0)).outcome == Outcome.STALE
    assert model.step(packet(0, 4)).outcome == Outcome.ACCEPTED


def test_a_refusal_is_passed_on_and_the_answer_to_it_goes_up() -> None:
    model = leaf()
    sent(model)
    step = model.step(down(0, status=Status.REFUSED, age_op=Outcome.SIGNATURE))
    assert (step.outcome, state(model)) == (Outcome.TOLD, BlockState.SENT)
    assert statuses(step) == [(port, Status.REFUSED, Outcome.SIGNATURE) for port in (1, 2)]
    (reply,) = model.step(packet(0, 0, None, room=0, status=Status.MISMATCH)).replies
    assert (reply.header.status, reply.payload) == (Status.MISMATCH, ())
    step = model.step(down(0, status=Status.MISMATCH, gen_id=99, op=int(Op.MAX)))
    assert [(reply.header.status, reply.header.gen_id) for reply in step.replies] == [(Status.MISMATCH, 99)] * 2


def test_a_parent_is_never_answered() -> None:
    model = leaf()
    wrong = {
        Outcome.UNKNOWN_JOB: down(0, job_id=4),
        Outcome.NOT_MEMBER: down(0, src_id=77),
        Outcome.WRONG_PORT: down(0)._replace(udp_port=30001),
        Outcome.MALFORMED: down(0, status=5),
        Outcome.IGNORED: down(0, 30),
    }
    for outcome, said in wrong.items():
        step = model.step(said)
        assert (step.outcome, step.replies) == (outcome, ())
    for said in (down(0, hop=Hop.UP), down(0, hop=Hop.HOST), down(0, 30, lane=Lane.L64)):
        assert model.step(said) == Step(Outcome.MALFORMED)
    assert model.step(packet(0, 0, hop=Hop.DOWN)) == Step(Outcome.MALFORMED)


def ageing(**changes: Any) -> SwitchModel:
    """A leaf whose blocks age out."""
    return leaf(**{"block_exp": 1000, **changes})


def test_a_late_contribution_is_not_added_to_a_partial_and_is_told_so() -> None:
    model = ageing()
    model.step(packet(0, 0, 5))
    (reply,) = model.step(packet(0, 0, 5), old=True).replies
    assert (reply.header.src_cnt, reply.header.degraded, reply.payload) == (1, 1, (5,))
    assert model.step(packet(1, 0, 6)) == Step(Outcome.RESENT, (reply,))
    step = model.step(down(0, 30, degraded=1, age_op=AgeOp.AGED))
    assert [each.header.age_op for each in step.replies] == [AgeOp.AGED, AgeOp.LATE]


def test_a_result_without_this_switch_is_without_everybody_below() -> None:
    for rank in (0, 1):
        model = ageing()
        model.step(packet(rank, 0, 5))
        step = model.step(down(0, 30, degraded=1, age_op=AgeOp.LATE))
        assert (step.outcome, state(model)) == (Outcome.RETURNED, BlockState.DONE)
        assert [each.header.age_op for each in step.replies] == [AgeOp.LATE] * 2


def test_a_sweep_asks_for_the_partial() -> None:
    model = ageing()
    model.step(packet(0, 0, 5))
    swept = model.sweep(JOB, old=True)
    assert (swept.closed, state(model)) == (1, BlockState.SENT)
    assert [(each.header.status, each.header.grad_cnt) for each in swept.replies] == [(Status.AGAIN, LANES)] * 2
    (reply,) = model.step(packet(0, 0, 5)).replies
    assert (reply.port, reply.payload) == (9, (5,))


def test_who_may_not_close_a_block_asks() -> None:
    """The leaf has one of the two that are its share; the parent has gone on with others."""
    model = ageing(quorum=2)
    model.step(packet(0, 0, 5))
    step = model.step(packet(0, 0, 5), old=True)
    (question,) = step.replies
    h = question.header
    assert (step.outcome, state(model), question.port, len(question.payload)) == (Outcome.ASKED, BlockState.OPEN, 9, 1)
    assert (h.hop, h.final, h.data_cnt, h.grad_cnt) == (Hop.UP, 1, 0, 0)
    assert model.step(down(0, status=Status.REFUSED)).outcome == Outcome.IGNORED
    step = model.step(down(0, 30, degraded=1, age_op=AgeOp.LATE))
    assert (step.outcome, [each.header.age_op for each in step.replies]) == (Outcome.RETURNED, [AgeOp.LATE] * 2)
    model.step(packet(0, 1, 5))
    assert model.step(down(1, status=Status.STALE)).outcome == Outcome.TOLD
    assert state(model, 1) == BlockState.DEAD


def test_a_question_adds_nothing_and_is_passed_on() -> None:
    """At a root it is answered when there is a result; a switch in between asks its own parent. A suspect stays one."""
    root = SwitchModel({JOB: Job(1, FIRST, 4, 0, (HOSTS[0], SWITCH_BELOW), 1000, 1, 2)})
    asked = Packet(3, 20006, packet(6, 0, None, hop=Hop.UP, final=1).header, (0,))
    assert root.step(asked) == Step(Outcome.ASKED)
    root.step(packet(0, 0, 5))
    assert root.step(asked) == Step(Outcome.ASKED)
    assert root.sweep(JOB, old=True).closed == 1
    (result,) = root.step(asked).replies
    assert (result.header.hop, result.header.age_op, result.payload) == (Hop.DOWN, AgeOp.LATE, (5,))
    assert root.frontiers[JOB].suspects == SWITCH_BELOW.source
    between = ageing(members=(HOSTS[0], SWITCH_BELOW))
    (passed_on,) = between.step(asked).replies
    assert (passed_on.port, passed_on.header.hop, passed_on.header.final) == (9, Hop.UP, 1)
    assert between.records == {}


def follow_the_root(rules: Rules) -> list[Outcome]:
    """The root waits for this switch no longer. Rank 1 is away; rank 0 is prompt, and each result finds its block open."""
    model = ageing(rules=rules)
    outcomes = []
    for block in range(3):
        outcomes.append(model.step(packet(0, block)).outcome)
        model.step(down(block, 30, degraded=1, age_op=AgeOp.LATE))
    return outcomes


def test_who_is_prompt_does_not_starve_beside_one_who_is_away() -> None:
    assert follow_the_root(ALL_RULES) == [Outcome.ACCEPTED, Outcome.AGED, Outcome.AGED]
    # Without the rule: nothing ever goes up, so the root never hears of this switch again.
    assert follow_the_root(replace(ALL_RULES, suspects_of_open=False)) == [Outcome.ACCEPTED] * 3


def test_an_evicted_member_of_a_leaf_is_not_waited_for() -> None:
    model = leaf()
    model.step(packet(0, 0, 5))
    job = model.jobs[JOB]
    model.jobs[JOB] = job._replace(members=job.members[:1])
    assert model.sweep(JOB, old=False).closed == 1
    (reply,) = model.step(packet(0, 0, 5)).replies
    assert (reply.header.src_cnt, reply.header.degraded) == (1, 0)


def test_a_root_takes_fewer_workers_of_a_switch_than_it_has() -> None:
    root = SwitchModel({JOB: Job(1, FIRST, 4, 0, (HOSTS[0], SWITCH_BELOW))})
    below = packet(6, 0, 6, hop=Hop.UP, src_cnt=1)
    step = root.step(Packet(3, 20006, below.header._replace(gen_id=8), (6,)))
    assert step.outcome == Outcome.ACCEPTED
    assert root.step(packet(0, 0, 5)).outcome == Outcome.SIGNATURE
    host, switch = root.step(packet(0, 0, 5, gen_id=8)).replies
    assert (host.header.src_cnt, switch.header.hop, switch.payload) == (2, Hop.DOWN, (11,))
    (told,) = root.step(Packet(3, 20006, below.header._replace(block_id=FIRST - 4), (6,))).replies
    assert (told.header.hop, told.header.status, told.port, told.udp_port) == (Hop.DOWN, Status.STALE, 3, 20006)
