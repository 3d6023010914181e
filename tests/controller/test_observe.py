# SPDX-License-Identifier: MIT
"""Views of a job, from counters and a sample of its records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from netsum.wire.schema import BlockState
from netsum_controller import Controller, JobSpec
from netsum_controller.entries import BlockRecord
from netsum_controller.entries.packet_out import AGE_UNIT_US
from netsum_controller.monitoring.collector import (
    MOST,
    PROBES,
    SILENT_AFTER,
    JobCollector,
    JobView,
    Presence,
    Query,
    SwitchView,
    sample,
)
from netsum_controller.state.model import Job, Late

from tests.controller.fake_switch import FakeSwitch
from tests.controller.members import TOKEN
from tests.controller.watched import EVERYONE, Watched


def ages(seconds: float) -> int:
    """As a PacketIn has it."""
    return int(seconds * 1e6 / AGE_UNIT_US)


def look(observer: JobCollector) -> JobView:
    view = observer.look("s1")
    assert view.up, view.trouble
    (job,) = view.jobs
    return job


def test_a_job_that_waits_for_one(watched: Watched) -> None:
    watched.blocks(20, b20=0b011, b21=0b001)
    watched.packets(25, 21, 20)
    view = look(JobCollector(watched.controller.context))
    assert (view.blocks, view.open_blocks) == (22, 2)
    first, second, third = view.members
    assert [member.missing for member in view.members] == [0, 1, 2]
    assert [member.last_block for member in view.members] == [21, 20, 19]
    assert [member.repeats for member in view.members] == [3, 0, 0]  # of 25, 22 were the first for their blocks
    assert (first.waits, second.waits, third.waits) == (0, 0, 1)
    assert first.oldest is None
    assert third.presence is Presence.JOINED


def test_a_later_epochs_repeats_do_not_have_the_packets_of_the_one_before(watched: Watched, controller: Controller) -> None:
    """The members keep their entries, and so their counters."""
    observer = JobCollector(controller.context)
    watched.blocks(20)
    watched.packets(20, 20, 20)
    assert [member.repeats for member in look(observer).members] == [0, 0, 0]
    controller.evict(watched.name, 2)
    controller.admit(watched.name, 2)
    watched.blocks(5)
    watched.packets(25, 26, 20)
    assert [member.repeats for member in look(observer).members[:2]] == [0, 0]
    watched.blocks(8)
    watched.packets(30, 29, 20)
    assert [member.repeats for member in look(observer).members[:2]] == [1, 0]  # 5 packets for blocks 4 to 7 at most


def test_nothing_has_begun(watched: Watched) -> None:
    view = look(JobCollector(watched.controller.context))
    assert (view.blocks, view.open_blocks, view.oldest) == (0, 0, 0.0)
    assert [(member.last_block, member.missing, member.repeats) for member in view.members] == [(None, 0, 0)] * 3


def test_a_member_of_which_nothing_comes_is_silent(watched: Watched, switch: FakeSwitch) -> None:
    watched.blocks(3, b3=0b011)
    watched.packets(4, 4, 3)
    switch.age = ages(3.0)
    observer = JobCollector(watched.controller.context)
    view = look(observer)
    assert view.oldest == pytest.approx(3.0, abs=0.01)
    assert view.members[2].oldest == view.oldest
    assert [member.presence for member in view.members] == [Presence.JOINED, Presence.JOINED, Presence.SILENT]
    watched.packets(4, 4, 5)  # it does send, though only earlier blocks
    assert look(observer).members[2].presence is Presence.JOINED
    switch.age = ages(SILENT_AFTER - 0.1)
    assert look(observer).members[2].presence is Presence.JOINED


def test_a_member_that_the_others_go_on_without_is_silent(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netsum_controller.monitoring.collector.SILENT_AFTER", 0.0)  # of any two looks
    watched = Watched(controller, switch, spec.model_copy(update={"late": Late.DEGRADE}))
    observer = JobCollector(controller.context)
    watched.blocks(4)
    watched.packets(4, 4, 4)
    assert {member.presence for member in look(observer).members} == {Presence.JOINED}
    assert {member.presence for member in look(observer).members} == {Presence.JOINED}  # all rest
    watched.block(4, 0b011, BlockState.DONE, degraded=1)
    watched.packets(5, 5, 4)
    assert [member.presence for member in look(observer).members] == [Presence.JOINED, Presence.JOINED, Presence.SILENT]
    watched.packets(5, 5, 5)
    assert {member.presence for member in look(observer).members} == {Presence.JOINED}


def test_those_that_are_not_there(watched: Watched, controller: Controller) -> None:
    controller.leave("resnet", TOKEN, 0, "a")
    controller.evict("resnet", 1)
    watched.blocks(2, b2=0b100)
    view = look(JobCollector(controller.context))
    assert [member.presence for member in view.members] == [Presence.LEFT, Presence.EVICTED, Presence.JOINED]
    assert [member.missing for member in view.members] == [1, 0, 0]
    assert view.members[0].waits == 1  # the evicted one is not waited for


def test_waits_add_up_over_looks_and_closed_blocks_count_once(watched: Watched, controller: Controller) -> None:
    observer = JobCollector(controller.context)
    watched.blocks(4, b4=0b101)
    assert [member.waits for member in look(observer).members] == [0, 1, 0]
    assert [member.waits for member in look(observer).members] == [0, 2, 0]  # it still waits
    watched.block(4, 0b101, BlockState.DONE, degraded=1)
    assert [member.waits for member in look(observer).members] == [0, 3, 0]
    assert [member.waits for member in look(observer).members] == [0, 3, 0]
    controller.join("resnet", TOKEN, 0, "b")  # a new epoch
    assert [member.waits for member in look(observer).members] == [0, 0, 0]


def test_repeats_are_not_told_of_a_job_that_degrades(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    watched = Watched(controller, switch, spec.model_copy(update={"late": Late.DEGRADE}))
    watched.packets(9, 9, 9)
    assert [member.repeats for member in look(JobCollector(controller.context)).members] == [None] * 3


@pytest.mark.usefixtures("watched")
def test_only_the_job_that_was_asked_for(controller: Controller) -> None:
    controller.create_job(JobSpec(name="vgg", members=("h1", "h2"), window=8))
    observer = JobCollector(controller.context)
    assert [view.job.name for view in observer.look("s1").jobs] == ["resnet", "vgg"]
    assert [view.job.name for view in observer.look("s1", only="vgg").jobs] == ["vgg"]


def test_trouble_is_told(controller: Controller, switch: FakeSwitch) -> None:
    observer = JobCollector(controller.context, patience=0.2)
    switch.restart()
    assert "has no P4 program yet" in observer.look("s1").trouble
    switch.stop()
    gone = observer.look("s1")
    assert (gone.up, gone.looked, gone.jobs) == (False, True, ())
    assert "is the switch running?" in gone.trouble


def test_a_busy_state_lock_says_nothing_about_the_switch(controller: Controller, switch: FakeSwitch) -> None:
    """The page and `netsum job top` show who has the lock, not a switch that does not work."""
    observer = JobCollector(controller.context, patience=0.0)

    def busy() -> SwitchView:
        with controller.context.store.lock:
            return observer.look("s1")

    view = busy()
    assert (view.up, view.looked, view.jobs) == (True, False, ())
    assert view.trouble.startswith("not looked at: ")
    assert "has held it for 0 s" in view.trouble
    switch.stop()
    assert not observer.look("s1").up
    assert not busy().up, "as the look before has found it"


def records(job: Job, newest: int, opened: int, query: list[int]) -> Query:
    """Answers queries for a job of which ``newest`` is the newest block and ``opened`` are open."""

    def answer(slots: Iterable[int]) -> dict[int, BlockRecord]:
        found = {}
        for slot in slots:
            query.append(slot)
            place = (slot - job.slot_base - job.epoch.first_block_id) % job.slots
            ahead = newest - (newest - place) % job.slots
            state = BlockState.EMPTY if ahead < 0 else BlockState.OPEN if newest - ahead < opened else BlockState.DONE
            block = (job.epoch.first_block_id + ahead) % (1 << 32)
            found[slot] = BlockRecord(slot, job.epoch.number, block, state, EVERYONE, 3, 3, 0, 0, 0, 0, 0, 0, degraded=False)
        return found

    return answer


@pytest.mark.parametrize("newest", [0, 1, 63, 64, 511, 512, 513, 5000, 8191, 8192, 20000])
@pytest.mark.parametrize(
    ("window", "slots"),
    [
        (8, 16),
        (64, 128),
        (4096, 8192),
        *(pytest.param(w, s, marks=pytest.mark.full) for w, s in ((64, 512), (512, 1024))),
    ],
)
def test_the_sample_has_what_is_open(controller: Controller, spec: JobSpec, newest: int, window: int, slots: int) -> None:
    job = controller.create_job(spec.model_copy(update={"window": window}))
    job = replace(job, slots=slots)
    opened, asked = min(window, newest + 1), list[int]()
    found = sample(job, job.slot_base, records(job, newest, opened, asked))
    counted = sum(record.state is BlockState.OPEN for record in found.records.values())
    assert found.newest is not None
    assert 0 <= newest - found.newest < found.stride + slots // PROBES
    if found.stride == 1:
        assert (found.newest, counted) == (newest, opened)
    else:
        assert abs(counted * found.stride - opened) <= PROBES * found.stride
    assert len(asked) <= min(slots, MOST) + PROBES
    assert set(asked) <= set(range(job.slot_base, job.slot_base + slots))
