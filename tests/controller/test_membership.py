# SPDX-License-Identifier: MIT
"""Joining and leaving: when the current epoch serves, and when a new one begins."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from netsum.descriptor import Descriptor
from netsum_controller import Controller, JobSpec
from netsum_controller.entries import MemberEntry
from netsum_controller.errors import (
    BusyError,
    InputError,
    StateError,
    SwitchError,
    UnauthorizedError,
    UnknownJobError,
    UnknownRankError,
)
from netsum_controller.jobs.membership import GRACE, Membership
from netsum_controller.planning.items import job_items

from tests.controller.fake_switch import FakeSwitch, pack_record, touches
from tests.controller.items import items_on
from tests.controller.killing import Killed, dying_after
from tests.controller.members import TOKEN, join_all

pytestmark = pytest.mark.usefixtures("clock")


class Clock:
    """A clock that stands still until it is told to move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(controller: Controller, spec: JobSpec) -> Clock:
    """The controller with its job, and the clock of its grace period."""
    clock = Clock()
    controller.membership = Membership(controller.context, clock)
    controller.create_job(spec)
    return clock


def join(controller: Controller, rank: int, instance: str) -> Descriptor:
    return controller.join("resnet", TOKEN, rank, instance)


def on_switch(controller: Controller) -> bool:
    """True if the switch has exactly the job's current epoch."""
    with controller.context.client("s1") as client:
        installed = set(client.read_items())
    return set(job_items(controller.topology, controller.job("resnet"), "s1")) <= installed


def test_everyone_gets_the_current_epoch(controller: Controller) -> None:
    job = controller.job("resnet")
    descriptors = join_all(controller)
    assert {one.epoch for one in descriptors} == {job.epoch.number}
    assert [one.host.udp_port for one in descriptors] == [seat.udp_port for seat in job.epoch.seats]
    assert [one.rank for one in descriptors] == [0, 1, 2]
    assert (descriptors[0].block_bytes, descriptors[0].window, descriptors[0].workers) == (4096, 8, 3)
    assert descriptors[0].switch.ip == "10.0.0.254"


def test_the_same_instance_asks_again(controller: Controller) -> None:
    assert join(controller, 0, "a") == join(controller, 0, "a")


def test_a_taken_rank_begins_a_new_epoch_for_all(controller: Controller, switch: FakeSwitch) -> None:
    old = join_all(controller)
    seat = controller.job("resnet").slot_base
    switch.records[seat] = pack_record(epoch=old[0].epoch, block_id=old[0].first_block_id + 160_000, state=2)
    new = join(controller, 1, "b")
    assert new.epoch > old[0].epoch
    assert new.host.udp_port not in {one.host.udp_port for one in old}
    assert new.first_block_id > old[0].first_block_id + 160_000 + 16 + 8
    assert on_switch(controller)
    # Those who come later get the same epoch, and its first member keeps it.
    assert {join(controller, rank, "b").epoch for rank in (0, 2, 1)} == {new.epoch}


def test_in_a_new_epoch_members_change_before_the_job(controller: Controller, switch: FakeSwitch) -> None:
    """Old senders must be refused by their UDP port before the switch takes blocks of the new epoch."""
    join_all(controller)
    switch.writes.clear()
    join(controller, 0, "b")
    assert touches(switch.writes[-1], "job")
    assert all(touches(update, "member") for update in switch.writes[:3])


def test_the_next_run_begins_a_new_epoch_at_once(controller: Controller, clock: Clock) -> None:
    first = join_all(controller)
    for rank in range(3):
        assert controller.leave("resnet", TOKEN, rank, "a")
    second = join_all(controller, "b")
    assert {one.epoch for one in second} == {first[0].epoch + 3}  # a number for each UDP port
    assert clock.now == 100.0


def test_who_left_waits_for_the_others_but_not_for_ever(controller: Controller, clock: Clock) -> None:
    first = join_all(controller)
    controller.leave("resnet", TOKEN, 0, "a")
    with pytest.raises(BusyError, match=r"previous run is still finishing \(ranks 1, 2\)") as caught:
        join(controller, 0, "b")
    assert 0 < caught.value.retry_ms < 1000
    clock.now += GRACE - 0.1
    with pytest.raises(BusyError):
        join(controller, 0, "b")
    assert controller.job("resnet").epoch.number == first[0].epoch
    clock.now += 0.2
    assert join(controller, 0, "b").epoch == first[0].epoch + 3


def test_an_attempt_given_up_does_not_count(controller: Controller, clock: Clock) -> None:
    join_all(controller)
    controller.leave("resnet", TOKEN, 0, "a")
    with pytest.raises(BusyError):
        join(controller, 0, "b")
    clock.now += 3600
    with pytest.raises(BusyError):
        join(controller, 0, "c")


def test_who_left_goes_on_when_the_others_have_left(controller: Controller, clock: Clock) -> None:
    join_all(controller)
    controller.leave("resnet", TOKEN, 0, "a")
    with pytest.raises(BusyError):
        join(controller, 0, "b")
    controller.leave("resnet", TOKEN, 1, "a")
    controller.leave("resnet", TOKEN, 2, "a")
    assert join(controller, 0, "b").epoch == join(controller, 1, "b").epoch
    assert clock.now == 100.0


def test_an_epoch_that_someone_left_early_is_given_up(controller: Controller) -> None:
    first = join(controller, 0, "a")
    controller.leave("resnet", TOKEN, 0, "a")
    late = join(controller, 1, "a")
    assert late.epoch == first.epoch + 3


def test_leaving_an_old_epoch_does_nothing(controller: Controller) -> None:
    join(controller, 0, "a")
    join(controller, 0, "b")
    assert not controller.leave("resnet", TOKEN, 0, "a")
    assert controller.job("resnet").epoch.seats[0].active
    assert not controller.leave("resnet", TOKEN, 1, "never")


def test_untrusted_senders(controller: Controller, switch: FakeSwitch) -> None:
    before = switch.installed
    with pytest.raises(UnauthorizedError, match="wrong token for job 'resnet'"):
        controller.join("resnet", "wrong-token", 0, "a")
    with pytest.raises(UnknownRankError, match=r"has no rank 3: its ranks are 0\.\.2"):
        join(controller, 3, "a")
    with pytest.raises(UnknownRankError):
        join(controller, -1, "a")
    with pytest.raises(UnknownJobError, match="no job 'vgg'"):
        controller.join("vgg", TOKEN, 0, "a")
    with pytest.raises(InputError, match="link kind 'pigeon'"):
        controller.join("resnet", TOKEN, 0, "a", {"kind": "pigeon"})
    with pytest.raises(UnauthorizedError):
        controller.leave("resnet", "wrong-token", 0, "a")
    assert switch.installed == before
    assert not any(seat.joined for seat in controller.job("resnet").epoch.seats)


def test_a_new_epoch_that_fails_leaves_the_old_one(controller: Controller, switch: FakeSwitch) -> None:
    old = join_all(controller)
    before = switch.installed
    broken = True

    def fail(update: Any) -> str | None:
        nonlocal broken
        if broken and touches(update, "rewrite"):
            broken = False
            return "no"
        return None

    switch.fail_update = fail
    with pytest.raises(SwitchError, match="modify rewrite job_id=1 replica=0"):
        join(controller, 0, "b")
    assert switch.installed == before
    assert controller.job("resnet").epoch.number == old[0].epoch
    assert join(controller, 0, "b").epoch > old[0].epoch + 1  # the failed one's number is not used again


@pytest.mark.parametrize("write", range(3))
@pytest.mark.parametrize("then", ["join", "reconcile", "create"])
def test_killed_while_a_new_epoch_begins(
    open_controller: Callable[[], Controller], controller: Controller, spec: JobSpec, write: int, then: str
) -> None:
    """The next member never gets a descriptor that the switch does not know."""
    old = join_all(controller)
    with dying_after(write), pytest.raises(Killed):
        join(controller, 0, "b")
    other = open_controller()
    if then == "reconcile":
        other.reconcile()
        assert on_switch(other)
        assert not other.reconcile()[0].changed
    elif then == "create":
        assert not other.create_job(spec).created
    new = join(other, 1, "b")
    assert new.epoch > old[0].epoch
    assert on_switch(other)
    assert join(other, 0, "b").epoch == new.epoch


def test_links(controller: Controller) -> None:
    assert join(controller, 0, "a").link.kind == "udp"
    packet = controller.join("resnet", TOKEN, 1, "a", {"kind": "packet", "interface": "h2-eth0"})
    assert (packet.link.kind, packet.link.interface) == ("packet", "h2-eth0")
    frames = {"frames": "127.0.0.1:9104", "switch_frames": "127.0.0.1:9004"}
    controller.topology = controller.topology.filled(hosts={"h4": frames})
    link = join(controller, 2, "a").link
    assert (link.kind, link.local, link.remote) == ("frames", "127.0.0.1:9104", "127.0.0.1:9004")


def test_descriptor_files(controller: Controller, tmp_path: Path) -> None:
    job = controller.job("resnet")
    paths = controller.write_descriptors("resnet", tmp_path / "d")
    assert [path.name for path in paths] == ["resnet.0.json", "resnet.1.json", "resnet.2.json"]
    first = [Descriptor.from_json(path.read_text()) for path in paths]
    assert {one.epoch for one in first} == {job.epoch.number}
    # The files are for one run: the next ones belong to a new epoch.
    again = [Descriptor.from_json(path.read_text()) for path in controller.write_descriptors("resnet", tmp_path / "d")]
    assert {one.epoch for one in again} == {job.epoch.number + 3}
    assert json.loads(paths[0].read_text())["version"] == 1
    with pytest.raises(StateError, match=r"Not a directory|File exists"):
        controller.write_descriptors("resnet", paths[0])


def test_epochs_survive_the_controller(open_controller: Callable[[], Controller], controller: Controller) -> None:
    old = join_all(controller)
    controller.close()
    other = open_controller()
    assert other.join("resnet", TOKEN, 0, "a") == old[0]
    assert other.join("resnet", TOKEN, 0, "b").epoch == old[0].epoch + 3


def test_one_host_on_several_ranks(controller: Controller) -> None:
    job = controller.create_job(JobSpec(name="both", members=("h1", "h1", "h2"), token=TOKEN))
    descriptors = join_all(controller, name="both")
    assert len({(one.host.ip, one.host.udp_port) for one in descriptors}) == 3
    members = [entry for entry in items_on(controller, MemberEntry) if entry.job_id == job.job_id]
    assert sorted((entry.src_id, entry.ingress_port) for entry in members) == [(0, 1), (1, 1), (2, 2)]
