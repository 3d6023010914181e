# SPDX-License-Identifier: MIT
"""Rejoining after the switch has restarted: who continues where, and who cannot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum_controller import Controller, JobSpec
from netsum_controller.entries import JobEntry
from netsum_controller.errors import BusyError, CannotResumeError, EvictedError, SwitchError
from netsum_controller.jobs.rejoin import Progress, lowest
from netsum_controller.state.model import SERIAL, IdRange, JobState, Rejoin

from tests.controller.fake_switch import FakeSwitch, pack_record
from tests.controller.items import items_on, job_entry
from tests.controller.killing import Killed, dying_after
from tests.controller.members import TOKEN, Member, busy, gone


@pytest.fixture
def members(controller: Controller, spec: JobSpec) -> list[Member]:
    controller.create_job(spec)
    return [Member(controller, rank, f"a{rank}") for rank in range(3)]


def restart(controller: Controller, switch: FakeSwitch) -> None:
    switch.restart()
    (report,) = controller.reconcile()
    assert report.program_pushed


def restart_and_rejoin(controller: Controller, switch: FakeSwitch, members: list[Member], *finished: int) -> None:
    """The switch restarts; the first members rejoin, each so many blocks further than before, and must wait."""
    restart(controller, switch)
    for member, more in zip(members, finished, strict=False):
        busy(member, more)


# -- going on


def test_nothing_has_changed(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    writes = len(switch.writes)
    assert members[1].rejoin(100) == controller.descriptor("resnet", 1)
    assert len(switch.writes) == writes


def test_after_a_restart_all_go_on_at_the_lowest(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    old = members[0].descriptor
    restart(controller, switch)
    assert items_on(controller, JobEntry) == []  # nothing may be added to a block before it is known where the epoch begins
    assert "ranks 0, 2 must still rejoin" in busy(members[1], 107)
    assert "rank 2 must still rejoin" in busy(members[0], 104)
    assert "rank 2 must still rejoin" in busy(members[0])
    new = members[2].rejoin(100)
    assert new.first_block_id == old.first_block_id + 100
    assert new.epoch > old.epoch
    entry = job_entry(controller)
    assert (entry.epoch, entry.first_block_id) == (new.epoch, new.first_block_id)
    assert {member.rejoin().epoch for member in members} == {new.epoch}
    ports = {member.descriptor.host.udp_port for member in members}
    assert len(ports) == 3
    assert old.host.udp_port not in ports
    assert not controller.reconcile()[0].changed


def test_a_needs_that_wraps(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    restart(controller, switch)
    ahead = SERIAL - members[0].needs  # to block 0 of the next lap of ids
    busy(members[0], ahead + 2)
    busy(members[1], ahead - 1)
    assert members[2].rejoin(ahead).first_block_id == SERIAL - 1


@pytest.mark.usefixtures("controller")
def test_a_window_apart_and_no_further(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    """A rank keeps the contributions of one window; a member that needs older ones cannot continue."""
    restart_and_rejoin(controller, switch, members, 108, 108)
    assert members[2].rejoin(100).first_block_id == members[0].descriptor.first_block_id + 100


def test_further_apart_than_a_window(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    restart_and_rejoin(controller, switch, members, 109, 100)
    for member in (members[2], *members):
        assert "further apart than 8 blocks" in gone(member)
    assert items_on(controller, JobEntry) == []
    anew = Member(controller, 0, "b0")
    assert Member(controller, 1, "b1").descriptor.epoch == anew.descriptor.epoch
    assert job_entry(controller).epoch == anew.descriptor.epoch
    assert "has begun since" in gone(members[2])


def test_a_second_restart_while_they_rejoin(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    restart_and_rejoin(controller, switch, members, 10, 12)
    epoch = controller.job("resnet").epoch
    restart(controller, switch)
    assert controller.job("resnet").epoch.number == epoch.number  # no member was in it, so it needs no successor
    new = members[2].rejoin(11)
    assert new.first_block_id == epoch.first_block_id + 10
    assert job_entry(controller).epoch == new.epoch


def test_a_second_restart_before_all_have_heard(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    """One rank knows of the second epoch, the others are still in the first: all go on in the third."""
    restart_and_rejoin(controller, switch, members, 10, 12)
    second = members[2].rejoin(11)
    restart(controller, switch)
    busy(members[2])
    busy(members[0])
    third = members[1].rejoin()
    assert third.epoch > second.epoch
    assert third.first_block_id == second.first_block_id
    assert [member.rejoin().epoch for member in members] == [third.epoch] * 3


def test_a_restart_before_everyone_had_joined(controller: Controller, spec: JobSpec, switch: FakeSwitch) -> None:
    """No block can have been finished: those who are there continue at once, without waiting for the others."""
    controller.create_job(spec)
    first = Member(controller, 0, "a0")
    before = first.descriptor.first_block_id
    restart(controller, switch)
    assert first.rejoin().first_block_id == before
    late = Member(controller, 1, "a1")
    assert late.descriptor.epoch == first.descriptor.epoch
    restart(controller, switch)
    last = Member(controller, 2, "a2")
    assert last.descriptor.resumes is None
    assert {member.rejoin().epoch for member in (first, late, last)} == {last.descriptor.epoch}
    assert last.descriptor.first_block_id == before


def test_who_did_not_get_the_answer_asks_again(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    """It joins with the instance that it had, and holds nothing: the epoch goes on at its first block."""
    restart_and_rejoin(controller, switch, members, 0, 0)
    again = controller.join("resnet", TOKEN, 2, "a2")
    assert again.first_block_id == members[0].descriptor.first_block_id
    assert (again.resumes, members[0].rejoin().epoch) == (None, again.epoch)


@pytest.mark.parametrize("asked", [False, True])
def test_who_did_not_get_the_answer_asks_again_when_another_has_left(
    controller: Controller, members: list[Member], switch: FakeSwitch, asked: bool
) -> None:
    """No member can resume the epoch, and it need not: it joins a new one, as the others must."""
    restart(controller, switch)
    if asked:
        with pytest.raises(BusyError):
            controller.join("resnet", TOKEN, 2, "a2")
    controller.leave("resnet", TOKEN, 0, "a0")
    again = controller.join("resnet", TOKEN, 2, "a2")
    assert (again.resumes, Member(controller, 0, "b0").descriptor.epoch) == (None, again.epoch)
    assert f"epoch {again.epoch} has begun since" in gone(members[1])


# -- not going on


def test_a_rank_that_is_replaced_meanwhile(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    restart(controller, switch)
    busy(members[0])
    first_block = members[0].descriptor.first_block_id
    new = Member(controller, 1, "b1")
    assert new.descriptor.first_block_id != first_block
    assert job_entry(controller).epoch == new.descriptor.epoch
    assert f"epoch {new.descriptor.epoch} has begun since" in gone(members[0])
    assert "has begun since" in gone(members[1])
    assert Member(controller, 0, "b0").descriptor.epoch == new.descriptor.epoch
    assert Member(controller, 2, "b2").descriptor.epoch == new.descriptor.epoch


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_leaves_meanwhile(controller: Controller, members: list[Member], switch: FakeSwitch, rank: int) -> None:
    """Rank 0 has rejoined, rank 1 has not."""
    restart(controller, switch)
    busy(members[0])
    assert controller.leave("resnet", TOKEN, rank, f"a{rank}")
    assert f"rank {rank} has left" in gone(members[2])
    new = Member(controller, rank, "b")
    assert new.descriptor.epoch > members[2].descriptor.epoch + 1
    assert "has begun since" in gone(members[2])


def test_a_rank_that_had_left(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    controller.leave("resnet", TOKEN, 0, "a0")
    restart(controller, switch)
    assert controller.job("resnet").epoch.rejoin is Rejoin.NONE
    assert "has begun since" in gone(members[1])


def test_a_rank_of_another_process(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    members[0].instance = "thief"
    assert "rank 0 is another process's" in gone(members[0])
    restart(controller, switch)
    assert "rank 0 is another process's" in gone(members[0])
    assert controller.job("resnet").epoch.seats[0].needs is None


def test_an_epoch_that_never_was(controller: Controller, members: list[Member], spec: JobSpec) -> None:
    with pytest.raises(CannotResumeError, match="epoch 12 cannot be continued"):
        controller.join("resnet", TOKEN, 0, "a0", progress=Progress(12, 0))
    controller.delete_job("resnet")
    controller.create_job(spec)
    assert "has begun since" in gone(members[0])


def test_degrade_jobs_begin_anew(controller: Controller, switch: FakeSwitch) -> None:
    """A partial result cannot be reproduced."""
    controller.create_job(JobSpec(name="resnet", members=("h1", "h2"), late="degrade", token=TOKEN))  # type: ignore[arg-type]
    members = [Member(controller, rank, f"a{rank}") for rank in range(2)]
    restart(controller, switch)
    assert "has begun since" in gone(members[0])
    assert len(items_on(controller, JobEntry)) == 1


def test_members_from_files_begin_anew(controller: Controller, spec: JobSpec, switch: FakeSwitch, tmp_path: Path) -> None:
    """They do not talk to the controller, so waiting for them would never end."""
    controller.create_job(spec)
    controller.write_descriptors("resnet", tmp_path)
    restart(controller, switch)
    assert len(items_on(controller, JobEntry)) == 1


def evict(controller: Controller, rank: int) -> None:
    job = controller.job("resnet")
    with controller.context.store.lock, controller.context.store.transaction():
        controller.context.store.set_evicted(job.epoch.number, rank)


def test_evicted_members(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    evict(controller, 1)
    with pytest.raises(EvictedError, match="rank 1 was evicted from job 'resnet'"):
        members[1].rejoin()
    with pytest.raises(EvictedError):
        Member(controller, 1, "b1")
    restart(controller, switch)
    assert "has begun since" in gone(members[0])  # some results have rank 1's part, and no member could make them again
    with pytest.raises(EvictedError):
        members[1].rejoin()
    # The next epoch was without it from the beginning, so that can be resumed.
    others = [Member(controller, rank, f"b{rank}") for rank in (0, 2)]
    restart(controller, switch)
    assert "rank 2 must still rejoin" in busy(others[0])
    assert others[1].rejoin(3).first_block_id == others[0].descriptor.first_block_id


# -- what the store and the switch hold


def test_ids_in_use(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    """A resumed epoch continues the id range of the one before; the next fresh one avoids both."""
    first = members[0].descriptor.first_block_id
    far = (1 << 28) + 12345  # beyond the range that is reserved anyway
    restart_and_rejoin(controller, switch, members, far, far + 3)
    assert members[2].rejoin(far).first_block_id == first + far
    job = controller.job("resnet")
    old, new = controller.context.store.used_ranges(["s1"], job.job_id)
    assert old == IdRange(first, far + 16)
    assert new.first == first + far
    second = Member(controller, 0, "b0").descriptor
    _, new = controller.context.store.used_ranges(["s1"], job.job_id)[:2]
    assert new == IdRange(first + far, 16 + 8)  # no block of it was opened
    fresh = IdRange(second.first_block_id, 1 << 28)
    assert not any(fresh.overlaps(used) for used in (old, new))


def test_ids_in_use_when_they_did_not_all_rejoin(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    first = members[0].descriptor.first_block_id
    far = 1 << 30
    restart(controller, switch)
    busy(members[0], far)
    second = Member(controller, 1, "b1").descriptor
    assert not IdRange(second.first_block_id, 1 << 28).overlaps(IdRange(first, far + 16))


def test_a_record_of_the_resumed_epoch_tells_how_far_it_got(
    controller: Controller, members: list[Member], switch: FakeSwitch
) -> None:
    restart_and_rejoin(controller, switch, members, 101, 101)
    resumed = members[2].rejoin(101)
    base = controller.job("resnet").slot_base
    switch.records[base] = pack_record(epoch=resumed.epoch, block_id=resumed.first_block_id + 160_000, state=2)
    fresh = Member(controller, 0, "b0").descriptor
    assert fresh.first_block_id > resumed.first_block_id + 160_000 + 16 + 8


@pytest.mark.parametrize("write", range(6))
@pytest.mark.parametrize("then", ["rejoin", *(pytest.param(then, marks=pytest.mark.full) for then in ("reconcile", "restart"))])
@pytest.mark.parametrize("when", ["reconcile", "agree"])
def test_killed_on_the_way(
    open_controller: Callable[[], Controller],
    controller: Controller,
    members: list[Member],
    switch: FakeSwitch,
    write: int,
    then: str,
    when: str,
) -> None:
    """It is killed before any write to the switch, while it restores the job or begins the epoch: all continue."""
    first = members[0].descriptor.first_block_id
    for member, finished in zip(members, (21, 20, 22), strict=True):
        member.needs += finished
    switch.restart()
    if when == "agree":
        controller.reconcile()
        busy(members[0])
        busy(members[1])
    with dying_after(write), suppress(Killed):
        if when == "agree":
            members[2].rejoin()
        else:
            controller.reconcile()
    other = open_controller()
    for member in members:
        member.controller = other
    if then == "restart":
        switch.restart()
    if then != "rejoin":
        other.reconcile()
    with suppress(BusyError, SwitchError):
        members[0].rejoin()
    other.reconcile()  # as a controller that serves does when it starts
    for _ in range(2):
        for member in members:
            with suppress(BusyError):
                member.rejoin()
    assert {member.descriptor.first_block_id for member in members} == {first + 20}
    (epoch,) = {member.descriptor.epoch for member in members}
    entry = job_entry(other)
    assert (entry.epoch, entry.first_block_id) == (epoch, first + 20)
    assert other.job("resnet").state is JobState.READY
    assert not other.reconcile()[0].changed


def test_the_switch_refuses_when_all_have_rejoined(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    restart_and_rejoin(controller, switch, members, 5, 5)
    switch.fail_update = lambda _: "no"
    for _ in range(2):
        with pytest.raises(SwitchError, match="insert job"):
            members[2].rejoin(5 if members[2].needs == members[2].descriptor.first_block_id else 0)
    switch.fail_update = lambda _: None
    assert {member.rejoin().first_block_id for member in members} == {members[0].needs}


def test_the_switch_is_gone_when_all_have_rejoined(controller: Controller, members: list[Member], switch: FakeSwitch) -> None:
    restart_and_rejoin(controller, switch, members, 5, 5)
    switch.restart()
    with pytest.raises(SwitchError, match="has no P4 program yet"):
        members[2].rejoin(5)
    epoch = controller.job("resnet").epoch
    controller.reconcile()
    assert {member.rejoin().epoch for member in members} == {epoch.number}
    assert job_entry(controller).first_block_id == epoch.first_block_id


@given(st.integers(0, SERIAL - 1), st.lists(st.integers(0, 40), min_size=1, max_size=9), st.integers(1, 20))
def test_lowest(base: int, ahead: list[int], window: int) -> None:
    needs = [(base + each) % SERIAL for each in ahead]
    first = lowest(needs, window)
    if max(ahead) - min(ahead) <= window:
        assert first == (base + min(ahead)) % SERIAL
    else:
        assert first is None
