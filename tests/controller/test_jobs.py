# SPDX-License-Identifier: MIT
"""Creating and deleting jobs: idempotent, refused with a reason, rolled back when a step fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from netsum_controller import Controller, JobSpec
from netsum_controller.errors import ControllerError, RejectedError, SwitchError

from tests.controller.fake_switch import FakeSwitch, pack_record, touches
from tests.controller.killing import Killed, dying_after


def test_a_job_is_installed(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    before = switch.installed
    job = controller.create_job(spec)
    assert job.created
    assert job.token
    added = switch.installed - before
    assert len(added) == 3 + 3 + 2 + 1  # members, rewrites, groups, job
    assert before <= switch.installed
    assert [one.name for one in controller.jobs()] == ["resnet"]


def test_the_job_entry_comes_last_and_goes_first(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    switch.writes.clear()
    controller.create_job(spec)
    assert touches(switch.writes[-1], "job")
    switch.writes.clear()
    controller.delete_job("resnet")
    assert touches(switch.writes[0], "job")


def test_the_same_job_again_changes_nothing(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    first = controller.create_job(spec)
    installed, writes = switch.installed, len(switch.writes)
    again = controller.create_job(spec)
    assert not again.created
    assert again.epoch == first.epoch
    assert again.token is None
    assert (switch.installed, len(switch.writes)) == (installed, writes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"members": ("h1", "h2")}, "members h1, h2, h4, not h1, h2"),
        ({"window": 16}, "window 8, not 16"),
        ({"chunks": 4}, "chunks 16, not 4"),
        ({"token": "another-token"}, "another token"),
    ],
)
def test_another_job_of_the_name_is_refused_with_what_differs(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, change: dict[str, Any], words: str
) -> None:
    controller.create_job(spec)
    installed = switch.installed
    with pytest.raises(RejectedError, match=words):
        controller.create_job(spec.model_copy(update=change))
    assert switch.installed == installed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"members": ("h1", "h9")}, "no host h9"),
        ({"members": ("h1", "h3"), "chunks": 16}, "need an MTU of 4164 bytes, h3 has 1500; ask for 5 chunks"),
        ({"members": ("h1", "h2"), "window": 4096, "algorithm": "switch"}, "needs 8192 slots"),
    ],
)
def test_a_job_that_does_not_fit_is_refused(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, change: dict[str, Any], words: str
) -> None:
    controller.create_job(spec)
    installed = switch.installed
    with pytest.raises(RejectedError, match=words):
        controller.create_job(JobSpec(name="other", **change))
    assert switch.installed == installed
    assert [job.name for job in controller.jobs()] == ["resnet"]


def test_the_smallest_mtu_decides_the_block(controller: Controller) -> None:
    assert controller.create_job(JobSpec(name="a", members=("h1", "h3"))).block_bytes == 5 * 256
    assert controller.create_job(JobSpec(name="b", members=("h1", "h2"))).block_bytes == 16 * 256


@pytest.mark.parametrize("table", ["member", "rewrite", "multicast group", "job"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_failed_step_takes_everything_back(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, table: str, which: int
) -> None:
    """Whichever update fails, the first or second of its table, nothing stays on the switch or in the state."""
    if which == 1 and table in ("job", "multicast group"):
        which = 0  # there is only one
    seen = 0

    def fail(update: Any) -> str | None:
        nonlocal seen
        seen += touches(update, table)
        return "no space" if touches(update, table) and seen == which + 1 else None

    before = switch.installed
    switch.fail_update = fail
    with pytest.raises(SwitchError, match=f"insert {table} .*no space"):
        controller.create_job(spec)
    assert switch.installed == before
    assert controller.context.store.jobs() == []
    switch.fail_update = lambda _: None
    assert controller.create_job(spec).created


@pytest.mark.parametrize("write", range(5))
@pytest.mark.parametrize("command", ["create", "delete"])
def test_killed_at_any_moment(
    open_controller: Callable[[], Controller], switch: FakeSwitch, spec: JobSpec, command: str, write: int
) -> None:
    """A controller dies between any two writes; a new process then puts everything in order."""
    first = open_controller()
    first.push()
    empty = switch.installed
    if command == "delete":
        first.create_job(spec)
    with suppress(Killed), dying_after(write):
        first.create_job(spec) if command == "create" else first.delete_job("resnet")
        return  # it has fewer writes than that
    second = open_controller()
    job = second.create_job(spec)
    assert second.push() == second.reconcile()  # nothing to do
    assert not any(report.changed for report in second.push())
    assert [one.name for one in second.jobs()] == ["resnet"]
    second.delete_job(job.name)
    assert switch.installed == empty


@pytest.mark.full
def test_nothing_leaks_over_many_jobs(controller: Controller, switch: FakeSwitch) -> None:
    empty = switch.installed
    epochs, ids, ports = set(), set(), set()
    for _ in range(20):
        job = controller.create_job(JobSpec(name="again", members=("h1", "h2"), window=2048))
        assert (job.slot_base, job.slots) == (0, 4096)
        assert job.epoch.number not in epochs
        epochs.add(job.epoch.number)
        ids.add(job.job_id)
        ports |= {seat.udp_port for seat in job.epoch.seats}
        controller.delete_job("again")
        assert switch.installed == empty
    assert len(ids) == 20  # round robin: an id rests before it is used again
    assert len(ports) == 40
    assert 12000 not in ports


def test_a_job_id_used_again_gets_other_blocks(controller: Controller, switch: FakeSwitch) -> None:
    spec = JobSpec(name="a", members=("h1", "h2"), window=8)
    first = controller.create_job(spec)
    switch.records[first.slot_base] = pack_record(epoch=first.epoch.number, block_id=999_984, state=1)
    controller.delete_job("a")
    with controller.context.store.transaction():
        controller.context.store._set_meta("last_job_id", first.job_id - 1)  # as after 254 other jobs
    second = controller.create_job(spec)
    assert second.job_id == first.job_id
    assert second.epoch.first_block_id >= 999_984 + 16 + 8
    assert second.epoch.first_block_id % 8192 == 0


def test_counters_start_at_zero(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    counter = controller.context.program.object_id("counters", "outcomes")
    job = controller.create_job(spec)
    switch.counters[counter, job.job_id * 32] = 7
    switch.counters[counter, job.job_id * 32 + 10] = 2
    found = controller.stats("resnet")
    assert (found.outcomes["accepted"], found.outcomes["wrong_port"]) == (7, 2)
    controller.delete_job("resnet")
    with controller.context.store.transaction():
        controller.context.store._set_meta("last_job_id", job.job_id - 1)
    controller.create_job(spec)
    assert set(controller.stats("resnet").outcomes.values()) == {0}


def test_unreachable_switch(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    controller.create_job(spec)
    switch.stop()
    with pytest.raises(SwitchError, match="switch s1: no P4Runtime server answers at unix:"):
        controller.create_job(JobSpec(name="other", members=("h1", "h2"), algorithm="switch"))
    with pytest.raises(SwitchError, match="no P4Runtime server"):
        controller.delete_job("resnet")
    assert controller.job("resnet").members == spec.members
    controller.delete_job("resnet", force=True)
    assert controller.jobs() == []
    switch.start()
    assert controller.push()[0].deleted == 9  # what the switch still had


def test_a_switch_without_program(open_controller: Callable[[], Controller], spec: JobSpec) -> None:
    controller = open_controller()
    with pytest.raises(SwitchError, match="has no P4 program yet: run `netsum switch push`"):
        controller.create_job(spec)
    assert controller.context.store.jobs() == []


def test_another_client_takes_over(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    before = switch.installed

    def take_over(_: Any) -> None:
        switch.on_write = lambda _: None
        switch._streams[0].election_id = (9, 9)

    switch.on_write = take_over
    with pytest.raises(ControllerError, match="another P4Runtime client took over"):
        controller.create_job(spec)
    assert switch.installed == before
    assert controller.context.store.jobs() == []
