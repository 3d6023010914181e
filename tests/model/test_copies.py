"""COPY blocks, rule by rule: what a reader would check by hand."""

from __future__ import annotations

from dataclasses import replace

from netsum.wire.schema import EVERYONE, AgeOp, BlockState, Hop, Op, Outcome, Status

from tests.model.rules import ALL_RULES, Job, Member, Packet, Step, SwitchModel
from tests.model.test_rules import FIRST, JOB, LANES, packet, switch
from tests.model.test_trees import HOSTS, SWITCH_BELOW, down, leaf, state, statuses


def copy(rank: int, value: int | None = None, **fields: int) -> Packet:
    """A contribution to block 0: the payload, or an empty without room."""
    return packet(rank, 0, value, room=0, op=Op.COPY, **fields)


def early(value: int = 5) -> Packet:
    """Block 0's payload, from the parent."""
    return down(0, value, op=Op.COPY, src_cnt=1, data_cnt=1, age_op=AgeOp.EARLY)


NOTICE = down(0, op=Op.COPY, src_cnt=4, data_cnt=1)


def seen_by_hosts(step: Step) -> list[tuple[int, int, tuple[int, ...]]]:
    """Port, ``age_op`` and payload of what leaves."""
    return [(reply.port, reply.header.age_op, reply.payload) for reply in step.replies]


def test_the_payload_goes_on_at_once_and_a_header_completes_the_block() -> None:
    model = switch(3)
    step = model.step(copy(0, 5))
    assert (step.outcome, seen_by_hosts(step)) == (
        Outcome.ACCEPTED,
        [(port, AgeOp.EARLY, (5,)) for port in (1, 2, 3)],
    )
    assert model.step(copy(0, 5)) == Step(Outcome.DUPLICATE)
    assert model.step(copy(1)) == Step(Outcome.ACCEPTED)
    step = model.step(copy(2))
    assert (step.outcome, seen_by_hosts(step)) == (Outcome.COMPLETED, [(port, 0, ()) for port in (1, 2, 3)])
    assert {(reply.header.data_cnt, reply.header.grad_cnt) for reply in step.replies} == {(1, 0)}
    lost = packet(1, 0, None, room=1, op=Op.COPY)
    assert seen_by_hosts(model.step(lost)) == [(2, 0, (5,))]


def test_a_payload_that_comes_last_is_in_the_result() -> None:
    model = switch()
    model.step(copy(1))
    step = model.step(copy(0, 5))
    assert (step.outcome, seen_by_hosts(step)) == (Outcome.COMPLETED, [(1, 0, (5,)), (2, 0, (5,))])


def test_only_the_destination_gets_a_payload_early() -> None:
    assert seen_by_hosts(switch(3).step(copy(0, 5, dest=2))) == [(3, AgeOp.EARLY, (5,))]


def test_after_an_abort_nobody_wants_the_payload() -> None:
    model = switch(3)
    model.step(copy(1, status=Status.ABORT))
    assert model.step(copy(0, 5)) == Step(Outcome.ACCEPTED)


def test_a_leafs_payload_goes_up_ahead_of_the_contribution_that_counts_it() -> None:
    model = leaf()
    (ahead,) = model.step(copy(0, 5)).replies
    h = ahead.header
    assert (ahead.port, ahead.payload, h.hop, h.final, h.src_cnt, h.data_cnt) == (9, (5,), Hop.UP, 1, 1, 1)
    (counts,) = model.step(copy(1)).replies
    h = counts.header
    assert (counts.port, counts.payload, h.final, h.src_cnt, h.data_cnt, h.grad_cnt) == (9, (), 0, 2, 1, 0)
    assert seen_by_hosts(model.step(early())) == [(1, AgeOp.EARLY, (5,)), (2, AgeOp.EARLY, (5,))]
    step = model.step(NOTICE)
    assert (step.outcome, seen_by_hosts(step)) == (Outcome.RETURNED, [(1, 0, ()), (2, 0, ())])


def test_a_payload_from_above_opens_the_slot() -> None:
    for rules, outcomes in (
        (ALL_RULES, [Outcome.BROUGHT, Outcome.RETURNED]),
        (replace(ALL_RULES, early_opens=False), [Outcome.IGNORED, Outcome.TOLD]),
    ):
        model = leaf(rules=rules)
        came = [model.step(early()).outcome]
        model.step(copy(0))
        (partial,) = model.step(copy(1)).replies
        assert (partial.header.data_cnt, partial.payload) == (0, ())
        assert [*came, model.step(NOTICE).outcome] == outcomes


def test_an_old_payload_opens_nothing() -> None:
    model = leaf()
    for packets in ((copy(0), copy(1), down(0, op=Op.COPY)), (packet(0, 4, 5),)):
        for each in packets:
            model.step(each)
    assert model.step(early()) == Step(Outcome.IGNORED)
    assert state(model) == BlockState.OPEN


def test_a_payload_that_may_not_be_the_results_is_asked_for_again() -> None:
    """The parent closed the block without this switch, and has another payload."""
    model = leaf(block_exp=1000)
    model.step(copy(0, 5))
    late = NOTICE._replace(header=NOTICE.header._replace(degraded=1, age_op=AgeOp.LATE))
    step = model.step(late)
    assert (step.outcome, statuses(step)) == (Outcome.TOLD, [(1, Status.AGAIN, 0), (2, Status.AGAIN, 0)])


def test_a_root_counts_a_payload_only_when_it_is_there() -> None:
    other = Member(8, 4, 20008, EVERYONE, workers=2, switch=True)
    model = SwitchModel({JOB: Job(1, FIRST, 4, 0, (HOSTS[0], SWITCH_BELOW, other))})

    def below(member: Member, value: int | None, **fields: int) -> Packet:
        header = packet(member.src_id, 0, None, op=Op.COPY, hop=Hop.UP, src_cnt=2, data_cnt=1).header
        payload = () if value is None else (value,)
        header = header._replace(grad_cnt=len(payload) * LANES, **fields)
        return Packet(member.port, member.udp_port, header, payload)

    counts = below(SWITCH_BELOW, None)
    step = model.step(counts)
    assert (step.outcome, statuses(step), model.records) == (Outcome.LACKING, [(3, Status.AGAIN, 0)], {})
    step = model.step(below(SWITCH_BELOW, 5, final=1, src_cnt=1))
    assert (step.outcome, seen_by_hosts(step)) == (
        Outcome.BROUGHT,
        [(port, AgeOp.EARLY, (5,)) for port in (1, 3, 4)],
    )
    assert model.step(below(other, 6, final=1, src_cnt=1)) == Step(Outcome.DUPLICATE)
    assert model.step(copy(0, 6)).outcome == Outcome.SIGNATURE
    assert model.step(counts) == Step(Outcome.ACCEPTED)
    assert model.step(below(other, None)).outcome == Outcome.SIGNATURE
    record = model.records[FIRST & 3]
    assert (record.src_cnt, record.data_cnt, record.buffer) == (2, 1, (5,))
