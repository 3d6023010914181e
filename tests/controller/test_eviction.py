# SPDX-License-Identifier: MIT
"""Evicting and admitting members: what changes on the switch and in the state file, and what does not."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from netsum.wire import parse_header
from netsum.wire.schema import CPU_PORT, SCAN_GROUPS, SCAN_REPLICA
from netsum_controller import Controller, JobSpec
from netsum_controller.entries import JobEntry, MemberEntry, MulticastGroup, RewriteEntry
from netsum_controller.errors import (
    BusyError,
    EvictedError,
    RejectedError,
    SwitchError,
    UnknownJobError,
    UnknownRankError,
)
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.state.model import Job, JobState, Late

from tests.controller.fake_switch import FakeSwitch, pack_record, touches
from tests.controller.items import items_on, job_entry
from tests.controller.members import TOKEN, join_all, rejoin


@pytest.fixture
def job(controller: Controller, spec: JobSpec) -> Job:
    """A job that all have joined."""
    controller.create_job(spec)
    join_all(controller)
    return controller.job("resnet")


def test_an_evicted_rank_is_gone_from_the_switch(controller: Controller, switch: FakeSwitch, job: Job) -> None:
    switch.scans_close = 4
    done = controller.evict("resnet", 1)
    assert (done.changed, done.closed, done.new_epoch, done.seat.host) == (True, 4, None, "h2")
    assert {item.src_id for item in items_on(controller, MemberEntry)} == {0, 2}
    assert {item.replica for item in items_on(controller, RewriteEntry)} == {0, 2}
    groups = {item.group_id: item.replicas for item in items_on(controller, MulticastGroup)}
    assert groups[job.job_id] == {(1, 0), (4, 2)}
    assert groups[SCAN_GROUPS + job.job_id] == {(1, 0), (4, 2), (CPU_PORT, SCAN_REPLICA)}
    entry = job_entry(controller)
    assert (entry.epoch, entry.all_sources) == (job.epoch.number, 0b101)  # in place
    assert [parse_header(frame[42:]).job_id for frame in switch.scans] == [job.job_id]
    now = controller.job("resnet")
    assert (now.epoch.evicted, [seat.rank for seat in now.epoch.members]) == ((1,), [0, 2])
    assert controller.descriptor("resnet", 0).evicted == (1,)
    assert not controller.reconcile()[0].changed


@pytest.mark.usefixtures("job")
def test_evicting_again_changes_nothing(controller: Controller, switch: FakeSwitch) -> None:
    controller.evict("resnet", 1)
    writes = len(switch.writes)
    assert not controller.evict("resnet", 1).changed
    assert len(switch.writes) == writes


@pytest.mark.usefixtures("job")
def test_the_last_member_stays(controller: Controller, switch: FakeSwitch) -> None:
    controller.evict("resnet", 1)
    controller.evict("resnet", 0)
    installed = switch.installed
    with pytest.raises(RejectedError, match="rank 2 is its last member; `netsum job delete resnet` ends the job"):
        controller.evict("resnet", 2)
    assert switch.installed == installed
    assert controller.job("resnet").epoch.evicted == (0, 1)


@pytest.mark.usefixtures("job")
def test_who_is_not_there(controller: Controller) -> None:
    for call in (controller.evict, controller.admit):
        for rank in (3, -1):
            with pytest.raises(UnknownRankError, match=r"its ranks are 0\.\.2"):
                call("resnet", rank)
        with pytest.raises(UnknownJobError):
            call("vgg", 0)


def test_an_evicted_rank_cannot_join(controller: Controller, job: Job) -> None:
    controller.evict("resnet", 1)
    with pytest.raises(EvictedError, match="rank 1 was evicted"):
        controller.join("resnet", TOKEN, 1, "b")
    # Nor in a later epoch.
    assert controller.join("resnet", TOKEN, 0, "b").epoch > job.epoch.number
    with pytest.raises(EvictedError):
        controller.join("resnet", TOKEN, 1, "b")
    assert {item.src_id for item in items_on(controller, MemberEntry)} == {0, 2}


def test_descriptor_files_leave_evicted_ranks_out(controller: Controller, job: Job, tmp_path: Path) -> None:
    controller.evict("resnet", 1)
    paths = controller.write_descriptors("resnet", tmp_path)
    assert [path.name for path in paths] == ["resnet.0.json", "resnet.2.json"]
    seats = controller.job("resnet").epoch.seats
    assert controller.job("resnet").epoch.number > job.epoch.number
    assert [seat.joined for seat in seats] == [True, False, True]


def test_who_left_after_its_eviction_ends_nothing(controller: Controller, spec: JobSpec) -> None:
    epoch = controller.create_job(spec).epoch.number
    for rank in (0, 1):
        controller.join("resnet", TOKEN, rank, "a")
    controller.evict("resnet", 1)
    controller.leave("resnet", TOKEN, 1, "a")
    assert controller.join("resnet", TOKEN, 2, "a").epoch == epoch


def test_admitting_is_a_new_epoch_for_all(controller: Controller, job: Job) -> None:
    assert not controller.admit("resnet", 1).changed  # it is in
    controller.evict("resnet", 1)
    done = controller.admit("resnet", 1)
    assert done.changed
    assert done.new_epoch is not None
    assert done.new_epoch > job.epoch.number
    now = controller.job("resnet")
    assert (now.epoch.number, now.epoch.evicted, now.state) == (done.new_epoch, (), JobState.READY)
    assert not any(seat.joined for seat in now.epoch.seats)
    entry = job_entry(controller)
    assert (entry.epoch, entry.all_sources) == (done.new_epoch, 0b111)
    assert {controller.join("resnet", TOKEN, rank, "b").epoch for rank in range(3)} == {done.new_epoch}


@pytest.mark.usefixtures("job")
def test_a_failed_step_takes_everything_back(controller: Controller, switch: FakeSwitch) -> None:
    for command, evicted in ((controller.evict, ()), (controller.admit, (1,))):
        installed = switch.installed
        switch.fail_update = lambda update: "no room" if touches(update, "job") else None
        with pytest.raises(SwitchError, match="no room"):
            command("resnet", 1)
        assert switch.installed == installed
        assert controller.job("resnet").epoch.evicted == evicted
        switch.fail_update = lambda _: None
        controller.evict("resnet", 1)


@pytest.mark.usefixtures("job")
def test_a_scan_that_is_not_answered(controller: Controller, switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next scan is answered; if none were, the members' retransmissions would finish the blocks."""
    monkeypatch.setattr("netsum_controller.p4runtime.client.SCAN_PATIENCE", 0.02)
    switch.lose_packet_ins = 1
    switch.scans_close = 2
    assert controller.evict("resnet", 1).closed == 2
    switch.lose_packet_ins = 1 << 30
    monkeypatch.setattr("netsum_controller.p4runtime.client.REQUEST_TIMEOUT", 0.1)
    done = controller.evict("resnet", 0)
    assert (done.changed, done.closed) == (True, None)


def test_the_quorum_stays_within_reach(controller: Controller, spec: JobSpec) -> None:

    def aging() -> tuple[int, int]:
        entry = job_entry(controller)
        return entry.block_exp, entry.quorum

    degrading = spec.model_copy(update={"late": Late.DEGRADE, "block_exp": 30.0, "quorum": 3})
    controller.create_job(degrading)
    for rank in (0, 2):
        controller.join("resnet", TOKEN, rank, "a")
    assert aging() == (0, 3)
    controller.evict("resnet", 1)  # it was the only one that had not joined: now blocks age
    assert aging() == (30_000, 2)
    assert not controller.create_job(degrading).created  # it is the same job
    controller.admit("resnet", 1)
    assert aging() == (0, 3)
    join_all(controller, "b")
    assert aging() == (30_000, 3)


def test_evicted_while_others_rejoin(controller: Controller, switch: FakeSwitch, job: Job) -> None:
    """Some may hold results with its part, which the others can no longer get: a fresh epoch begins."""
    switch.restart()
    controller.reconcile()
    resuming = controller.job("resnet")
    assert resuming.epoch.resumes == job.epoch.number
    done = controller.evict("resnet", 1)
    assert done.new_epoch is not None
    now = controller.job("resnet")
    assert (now.epoch.resumes, now.epoch.evicted, now.state) == (None, (1,), JobState.READY)
    assert now.epoch.number > resuming.epoch.number
    assert job_entry(controller).all_sources == 0b101


@pytest.mark.parametrize(("ahead", "in_place"), [(0, False), (15, False), (16, True)])
def test_evicted_after_a_restart(controller: Controller, switch: FakeSwitch, job: Job, ahead: int, in_place: bool) -> None:
    switch.restart()
    controller.reconcile()
    needs = [job.epoch.first_block_id + 5 + rank for rank in range(3)]
    for rank in (0, 1, 2, 0):
        with suppress(BusyError):
            resumed = rejoin(controller, "resnet", rank, Progress(job.epoch.number, needs[rank]))
    assert resumed.first_block_id == needs[0]
    switch.records[job.slot_base] = pack_record(epoch=resumed.epoch, block_id=needs[0] + ahead, state=2)
    done = controller.evict("resnet", 1)
    assert (done.new_epoch is None) == in_place
    assert controller.job("resnet").epoch.evicted == (1,)


def test_evicted_from_an_epoch_that_was_never_finished(controller: Controller, job: Job) -> None:
    """A command was killed while it installed the epoch: no member has it, and it is not continued."""
    with controller.context.store.transaction():
        controller.context.store.set_state("resnet", JobState.CHANGING)
    done = controller.evict("resnet", 1)
    assert done.new_epoch is not None
    assert done.new_epoch > job.epoch.number
    assert controller.job("resnet").state is JobState.READY
    assert job_entry(controller).all_sources == 0b101


def test_killed_while_evicting(open_controller: Callable[[], Controller], spec: JobSpec, switch: FakeSwitch) -> None:
    """The state file records it first; the next reconcile does the rest."""
    first = open_controller()
    first.push()
    first.create_job(spec)
    join_all(first)
    store = first.context.store
    with store.transaction():
        store.set_evicted(first.job("resnet").epoch.number, 1)  # as far as it came
    second = open_controller()
    (report,) = second.reconcile()
    assert (report.deleted, report.modified) == (2, 3)
    assert not second.evict("resnet", 1).changed
    assert second.job("resnet").epoch.evicted == (1,)
    assert len(switch.scans) == 1


RANKS = 4
STEPS = 40


@pytest.mark.parametrize("late", [Late.WAIT, pytest.param(Late.DEGRADE, marks=pytest.mark.full)])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2, 3))])
def test_the_switch_has_what_the_file_says(controller: Controller, switch: FakeSwitch, late: Late, seed: int) -> None:
    chance = random.Random(seed)
    hosts = ("h1", "h2", "h3", "h4")
    controller.create_job(JobSpec(name="resnet", members=hosts, window=8, token=TOKEN, late=late))
    numbers = [controller.job("resnet").epoch.number]
    done = set()
    for step in range(STEPS):
        rank = chance.randrange(RANKS)
        what = chance.choices(("join", "leave", "evict", "admit", "restart"), (50, 10, 20, 15, 5))[0]
        with suppress(BusyError, EvictedError, RejectedError):
            if what == "join":
                controller.join("resnet", TOKEN, rank, chance.choice(["a", "b", str(step)]))
            elif what == "leave":
                controller.leave("resnet", TOKEN, rank, "a")
            elif what == "evict":
                controller.evict("resnet", rank)
            elif what == "admit":
                controller.admit("resnet", rank)
            else:
                switch.restart()
                controller.reconcile()
            done.add(what)
        check(controller, numbers)
    assert len(done) >= 4, "the history says little"


def check(controller: Controller, numbers: list[int]) -> None:
    """Nothing needs reconciling, epoch numbers are new, evicted members are gone, and blocks age when all are there."""
    assert not controller.reconcile()[0].changed
    job = controller.job("resnet")
    assert job.state is JobState.READY
    assert job.epoch.number >= numbers[-1]
    numbers.append(job.epoch.number)
    sources = {seat.src_id for seat in job.epoch.members}
    assert sources
    assert {item.src_id for item in items_on(controller, MemberEntry)} == sources
    assert {item.replica for item in items_on(controller, RewriteEntry)} == sources
    for entry in items_on(controller, JobEntry):
        assert entry.all_sources == sum(1 << source for source in sources)
        everyone = all(seat.joined for seat in job.epoch.members)
        assert (entry.block_exp > 0) == (job.late is Late.DEGRADE and everyone)
        assert entry.quorum == (min(2, len(sources)) if job.late is Late.DEGRADE else 0)
