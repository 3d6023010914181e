# SPDX-License-Identifier: MIT
"""`netsum job diagnose`: the sources that open blocks wait for, how far they are, and the likely cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from netsum.wire.schema import BlockState, Outcome
from netsum_controller import Controller, JobSpec
from netsum_controller.entries.aggregation import COUNTER, indices
from netsum_controller.monitoring.collector import NEIGHBORS
from netsum_controller.state.model import Job, Late

from tests.controller.fake_switch import FakeSwitch
from tests.controller.members import TOKEN, join_all
from tests.controller.watched import put_record

Write = Callable[..., int]


@pytest.fixture
def job(controller: Controller, spec: JobSpec) -> Job:
    """A job of three that rank 0 and 2 have joined."""
    controller.create_job(spec)
    for rank in (0, 2):
        controller.join("resnet", TOKEN, rank, "a")
    return controller.job("resnet")


@pytest.fixture
def write(switch: FakeSwitch, controller: Controller, job: Job) -> Write:
    """Puts a record of block ``first + ahead`` on the switch; returns the block's id."""

    def put(ahead: int, seen: int, state: BlockState = BlockState.OPEN, **fields: Any) -> int:
        return put_record(switch, controller.job(job.name), ahead, seen, state, **fields)

    return put


def test_how_far_each_is(controller: Controller, switch: FakeSwitch, write: Write) -> None:
    controller.join("resnet", TOKEN, 1, "a")
    switch.let_in({0: 9, 1: 3, 2: 8})
    last = write(2, 0b111, BlockState.DONE)
    oldest = write(3, 0b001)
    write(4, 0b101)
    write(8, 0b101)
    why = controller.diagnose("resnet")
    assert [(report.block, report.seen) for report in why.blocks] == [
        (oldest, (0,)), (oldest + 1, (0, 2)), (oldest + 5, (0, 2)),
    ]  # fmt: skip
    slow, lossy = why.waiting_for
    assert (slow.rank, slow.host, slow.behind, slow.packets) == (1, "h2", 6, 3)
    assert (slow.block, slow.last_block) == (oldest, last)
    assert slow.cause == f"is 6 blocks behind: it is slow, or has stopped after block {last}"
    assert (lossy.rank, lossy.block, lossy.behind) == (2, oldest, 0)
    assert lossy.cause == "has gone on to later blocks: its packet was lost, and it will send it again"
    assert why.hints == tuple(f"rank {one.rank} ({one.host}) {one.cause}" for one in why.waiting_for)


def test_block_ids_wrap(controller: Controller, switch: FakeSwitch, write: Write) -> None:
    """The newest block does not have the largest number."""
    controller.join("resnet", TOKEN, 1, "a")
    store, epoch = controller.context.store, controller.job("resnet").epoch
    with store.transaction():
        store.set_rejoin(epoch.number, epoch.rejoin, (1 << 32) - 4)
    for ahead in range(8):
        write(ahead, *((0b111, BlockState.DONE) if ahead < 5 else (0b011, BlockState.OPEN)))
    switch.let_in({2: 1})
    why = controller.diagnose("resnet")
    assert [report.block for report in why.blocks] == [1, 2, 3]
    (straggler,) = why.waiting_for
    assert (straggler.rank, straggler.last_block, straggler.behind) == (2, 0, 3)


@pytest.mark.parametrize(
    ("packets", "refused", "cause"),
    [
        (0, {}, "has joined, and none of its packets has come"),
        (0, {Outcome.NOT_MEMBER: 5}, "at the port where the topology has h2; 5 came from a source at a port where"),
        (7, {Outcome.WRONG_PORT: 7}, "still sends as in an earlier epoch, from another UDP port than "),
        (7, {}, "is connected (7 packets), and has contributed to no block"),
    ],
)
def test_who_was_never_heard_of(
    controller: Controller, switch: FakeSwitch, write: Write, packets: int, refused: dict[Outcome, int], cause: str
) -> None:
    controller.join("resnet", TOKEN, 1, "a")
    write(0, 0b101)
    switch.let_in({0: 1, 1: packets, 2: 1})
    counter, own = controller.context.program.object_id("counters", COUNTER), indices(controller.job("resnet").job_id)
    for outcome, count in refused.items():
        switch.counters[counter, own[outcome]] = count
    why = controller.diagnose("resnet")
    (straggler,) = why.waiting_for
    assert cause in straggler.cause
    assert (straggler.last_block, straggler.behind, straggler.packets) == (None, None, packets)
    assert why.hints[0] == f"rank 1 (h2) {straggler.cause}"


def test_who_is_not_there(controller: Controller, write: Write) -> None:
    write(0, 0b001)
    controller.leave("resnet", TOKEN, 2, "a")
    causes = {one.rank: one.cause for one in controller.diagnose("resnet").waiting_for}
    assert causes == {1: "has not joined", 2: "has left"}


def test_who_was_evicted_is_not_waited_for(controller: Controller, write: Write) -> None:
    block = write(0, 0b001)
    controller.evict("resnet", 1)
    why = controller.diagnose("resnet")
    assert [one.rank for one in why.waiting_for] == [2]
    assert [person["rank"] for person in why.blocks[0].missing] == [2]
    assert "rank 1 (h2) was evicted" in why.hints
    assert controller.stats("resnet").members[1].evicted
    write(0, 0b111, BlockState.DONE)
    (done,) = controller.diagnose("resnet", block).blocks
    assert (done.state, done.seen, done.missing) == ("done", (0, 1, 2), ())  # its part was kept


def test_a_partial_result_tells_who_is_not_in_it(controller: Controller, write: Write) -> None:
    block = write(0, 0b101, BlockState.DONE, degraded=1)
    why = controller.diagnose("resnet", block)
    assert [person["rank"] for person in why.blocks[0].missing] == [1]
    assert why.waiting_for == ()  # no rank waits any more


def test_a_member_entry_that_is_gone(controller: Controller, switch: FakeSwitch, write: Write) -> None:
    write(0, 0b001)
    table = controller.context.program.object_id("tables", "member")
    source = controller.context.program._key("member")["src_id"].id
    key = next(key for key in switch.rows if key[0] == table and dict(key[1:])[source] == b"\x02")
    del switch.rows[key]
    causes = {one.rank: one.cause for one in controller.diagnose("resnet").waiting_for}
    assert causes[2] == "is missing in the tables of switch s1: `netsum reconcile` puts it back"


def test_a_switch_that_lost_the_job(controller: Controller, switch: FakeSwitch, job: Job) -> None:
    controller.join("resnet", TOKEN, 1, "a")
    table = controller.context.program.object_id("tables", "job")
    (key,) = [key for key in switch.rows if key[0] == table]
    del switch.rows[key]
    assert "switch s1 does not have the job as it is: `netsum reconcile` installs it" in controller.diagnose("resnet").hints
    switch.restart()
    for why in (controller.diagnose("resnet"), controller.diagnose("resnet", 3)):
        assert why.waiting_for == ()
        assert why.hints[0].startswith("switch s1 has restarted, or runs another program: `netsum serve` restores it")
    controller.reconcile()
    hints = controller.diagnose("resnet").hints
    assert hints[0] == ("switch s1 had restarted: the job goes on when all have joined again (missing: rank 0, 1, 2)")
    assert job.epoch.number == controller.job("resnet").epoch.resumes


def test_a_block_that_should_have_aged_out(controller: Controller, switch: FakeSwitch, job: Job, write: Write) -> None:
    controller.delete_job("resnet")
    controller.create_job(JobSpec(name="resnet", members=job.members, window=8, token=TOKEN, late=Late.DEGRADE, quorum=2))
    controller.join("resnet", TOKEN, 0, "b")
    block = write(0, 0b011)
    switch.age = 100
    assert "no block ages out before everyone has joined (missing: rank 1, 2)" in controller.diagnose("resnet").hints
    for rank in (1, 2):
        controller.join("resnet", TOKEN, rank, "b")
    why = controller.diagnose("resnet")
    assert why.blocks[0].age_ms == pytest.approx(102.4)
    assert not any("aged out" in hint or "age out" in hint for hint in why.hints)  # it is still in time
    switch.age = 1000
    told = f"block {block} should have aged out: `netsum serve` sends the scans; is it running?"
    assert told in controller.diagnose("resnet").hints
    write(0, 0b010)
    told = f"block {block} has 1 of the 2 workers that the quorum asks for: it does not age out"
    assert told in controller.diagnose("resnet").hints
    write(0, 0b011, no_aging=1)
    assert any("every source was asked for" in hint for hint in controller.diagnose("resnet").hints)


def test_one_block_of_a_large_job(controller: Controller, switch: FakeSwitch, job: Job) -> None:
    """Only the slots around it are read."""
    controller.delete_job("resnet")
    job = controller.create_job(JobSpec(name="resnet", members=job.members, window=4096, token=TOKEN))
    assert job.slots > 2 * NEIGHBORS
    join_all(controller, "b")
    first = job.epoch.first_block_id
    for ahead, seen in ((0, 0b111), (4000, 0b011)):
        put_record(switch, job, ahead, seen)
    for block, last in ((first + 4000, None), (first + 100, first)):
        (straggler,) = [one for one in controller.diagnose("resnet", block).waiting_for if one.rank == 2]
        assert (straggler.block, straggler.last_block) == (block, last)
