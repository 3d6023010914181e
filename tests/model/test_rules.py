# SPDX-License-Identifier: MIT
"""Rules that spare waiting: without them the explorer finds no violation, so what they are for is shown here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from netsum.wire.codec import Header
from netsum.wire.schema import SWITCH_SOURCE, AgeOp, Hop, Op, Outcome

from tests.model.rules import ALL_RULES, Job, Member, Packet, Rules, SwitchModel, Uplink

JOB, FIRST = 3, 0xFFFFFFFE  # ids wrap
LANES = 64  # lanes of one chunk at 32 bits
UP = Uplink(9, 30000, 5)
OUT = {
    rule: replace(ALL_RULES, **{rule: False}) for rule in ("stragglers_close", "hears_again", "stragglers_of_open", "early_opens")
}


def switch(rules: Rules, workers: int, **changes: object) -> SwitchModel:
    """A switch whose blocks age out, with a quorum of two."""
    members = tuple(Member(rank, rank + 1, 20000 + rank, rank) for rank in range(workers))
    job = Job(1, FIRST, 8, 0, members, block_exp=1000, quorum=2, window=2)
    return SwitchModel({JOB: job._replace(**changes)}, rules=rules)  # type: ignore[arg-type]


def packet(rank: int, block: int, **fields: int) -> Packet:
    """A contribution of one chunk."""
    header = Header(JOB, FIRST + block & 0xFFFFFFFF, src_id=rank, gen_id=7, lane_cnt=LANES, data_cnt=1)
    return Packet(rank + 1, 20000 + rank, header._replace(**fields), (1,))


def down(block: int, **fields: int) -> Packet:
    """A result of one chunk, from the parent."""
    header = packet(SWITCH_SOURCE, block).header._replace(worker_cnt=4, data_cnt=2, hop=Hop.DOWN)
    return Packet(UP.port, UP.udp_port, header._replace(**fields), (30,))


@pytest.mark.parametrize(
    ("rules", "sleep", "last"),
    [
        (ALL_RULES, Outcome.AGED, [Outcome.ACCEPTED, Outcome.COMPLETED]),
        (OUT["stragglers_close"], Outcome.ACCEPTED, [Outcome.ACCEPTED, Outcome.COMPLETED]),  # every block is waited for
        (OUT["hears_again"], Outcome.AGED, [Outcome.AGED, Outcome.REPLAYED]),  # no rank is, ever after
    ],
    ids=["all", "stragglers_close", "hears_again"],
)
def test_one_sleep_is_waited_for_once(rules: Rules, sleep: Outcome, last: list[Outcome]) -> None:
    """Rank 2 sleeps through blocks 0 to 3 and comes back for 3; then every rank contributes to 4, rank 2 last."""
    model = switch(rules, 3)
    outcomes = []
    for block in range(4):
        model.step(packet(0, block))
        outcomes.append(model.step(packet(1, block)).outcome)
        model.scan(JOB, old=block == 0)
    model.step(packet(2, 3))
    outcomes += [model.step(packet(rank, 4)).outcome for rank in range(3)]
    assert outcomes == [Outcome.ACCEPTED, sleep, sleep, sleep, Outcome.ACCEPTED, *last]


@pytest.mark.parametrize(("rules", "then"), [(ALL_RULES, Outcome.AGED), (OUT["stragglers_of_open"], Outcome.ACCEPTED)])
def test_fast_rank_not_starved_by_absent_rank(rules: Rules, then: Outcome) -> None:
    """The root waits for this leaf no longer. Rank 1 is away; rank 0 is prompt, and each result finds its block open. Without
    the rule nothing ever goes up, so the root never hears of this switch again."""
    model = switch(rules, 2, quorum=0, uplinks=(UP,))
    outcomes = []
    for block in range(3):
        outcomes.append(model.step(packet(0, block)).outcome)
        model.step(down(block, degraded=1, age_op=AgeOp.LATE))
    assert outcomes == [Outcome.ACCEPTED, then, then]


@pytest.mark.parametrize(
    ("rules", "outcomes"),
    [
        (ALL_RULES, [Outcome.EARLY_PAYLOAD, Outcome.PARENT_RESULT]),
        (OUT["early_opens"], [Outcome.IGNORED, Outcome.PARENT_STATUS]),
    ],
)
def test_a_payload_from_above_opens_the_slot(rules: Rules, outcomes: list[Outcome]) -> None:
    """Without the rule, a rank that comes to the block later must ask for the payload again."""
    model = switch(rules, 2, block_exp=0, quorum=0, uplinks=(UP,))
    came = model.step(down(0, op=Op.COPY, worker_cnt=1, data_cnt=1, early=1)).outcome
    for rank in range(2):
        empty = packet(rank, 0, op=Op.COPY, lane_cnt=0, data_cnt=0)
        (*_, partial) = model.step(empty._replace(payload=())).replies or (None,)
    assert partial is not None
    assert (partial.header.data_cnt, partial.payload) == (0, ())
    notice = down(0, op=Op.COPY, data_cnt=1, lane_cnt=0)._replace(payload=())
    assert [came, model.step(notice).outcome] == outcomes


@pytest.mark.parametrize("rules", [ALL_RULES, replace(ALL_RULES, address_of_this_epoch=False)], ids=["all", "another epoch's"])
def test_results_do_not_go_to_a_member_of_another_epoch(rules: Rules) -> None:
    """A new epoch gives rank 1's place to another process, from which nothing has come when a block is closed without it."""

    def of_epoch(number: int) -> Job:
        members = tuple(Member(rank, 1, 0, rank, key=100 * number + rank) for rank in range(3))
        return Job(number, FIRST, 8, 0, members, block_exp=1000, quorum=2, window=2)

    model = SwitchModel({JOB: of_epoch(1)}, rules=rules)
    for rank in range(3):
        step = model.step(packet(rank, 0, key=100 + rank)._replace(port=1))
    assert [(reply.udp_port, reply.header.key) for reply in step.replies] == [(20000 + rank, 100 + rank) for rank in range(3)]
    model.jobs[JOB] = of_epoch(2)
    for rank in (0, 2):
        moved = packet(rank, 0, key=200 + rank)._replace(port=1, udp_port=21000 + rank)
        assert model.step(moved).outcome == Outcome.ACCEPTED
    (closed,) = [model.scan(JOB, old=True)]
    reached = {reply.udp_port for reply in closed.replies}
    assert reached == ({21000, 21002} if rules == ALL_RULES else {21000, 21002, 20001})
