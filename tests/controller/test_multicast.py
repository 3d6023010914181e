# SPDX-License-Identifier: MIT
"""Jobs whose results leave by IP multicast: which entries the switches have, for whichever members have joined the group."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from netsum.frames import group_mac
from netsum.wire.schema import IP_MULTICAST_GROUPS, SWITCH_SOURCE
from netsum_controller import Controller, Job, JobSpec, Topology
from netsum_controller.cli.job import in_words
from netsum_controller.config.topologies import star
from netsum_controller.entries import GroupRewriteEntry, JobEntry, MulticastGroup, MulticastJobEntry
from netsum_controller.errors import RejectedError, SwitchError
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.planning.allocation import ip_to_int, mac_to_int
from pydantic import ValidationError

from tests.controller.fake_fabric import FakeFabric, controller
from tests.controller.fake_switch import touches
from tests.controller.items import items_on, job_entry
from tests.controller.members import TOKEN, come_back, join_all
from tests.controller.test_stripes import HOSTS, NAMES, fabric, wide

__all__ = ["controller", "fabric"]  # fixtures


@pytest.fixture
def job(controller: Controller) -> Job:
    controller.create_job(wide(multicast=True))
    join_all(controller, name="wide")
    return controller.job("wide")


def report(controller: Controller, *ranks: int, group: str | None = None) -> None:
    """The ranks report that they have joined this group, or the job's."""
    job = controller.job("wide")
    joined, progress = job.group if group is None else group, Progress(job.epoch.number)
    for rank in ranks:
        controller.join("wide", TOKEN, rank, "a", progress=progress, group=joined)


def together(controller: Controller, switch: str) -> set[tuple[int, int]] | None:
    """The replicas of what leaves by multicast; None if nothing does."""
    job = controller.job("wide")
    groups = {each.group_id: each.replicas for each in items_on(controller, MulticastGroup, switch)}
    entries = items_on(controller, GroupRewriteEntry, switch)
    replicas = groups.get(IP_MULTICAST_GROUPS + job.job_id)
    assert isinstance(job_entry(controller, switch), MulticastJobEntry) == bool(entries) == (replicas is not None)
    for entry in entries:
        address, port = job.epoch.group
        expected = (mac_to_int(group_mac(address) or ""), ip_to_int(address), port, job.epoch.group_key)
        assert (entry.mac, entry.ip, entry.udp_port, entry.key) == expected
    assert len(groups[job.job_id]) == len(job.epoch.members), "what is for one leaves by unicast"
    return None if replicas is None else set(replicas)


def test_those_who_have_joined_get_results_together(controller: Controller, job: Job) -> None:
    (port,) = {port for port, _ in items_on(controller, MulticastGroup)[0].replicas}
    assert [together(controller, name) for name in NAMES] == [None] * 3
    report(controller, 0)
    assert together(controller, "s1") is None, "one alone has its own copy"
    report(controller, 1, 3)
    for name in NAMES:
        assert together(controller, name) == {(port, SWITCH_SOURCE), (port, 2)}
    assert "joined by rank 0, 1, 3" in in_words(controller.job("wide"))
    assert not any(each.changed for each in controller.reconcile())
    report(controller, 0, 1, 3)
    report(controller, 1, group="")
    assert together(controller, "s2") == {(port, SWITCH_SOURCE), (port, 1), (port, 2)}
    controller.evict("wide", 3)
    assert together(controller, "s3") is None
    assert not any(each.changed for each in controller.reconcile())
    controller.delete_job("wide")
    assert not items_on(controller, GroupRewriteEntry)
    assert job.multicast


def test_descriptors_have_the_group(controller: Controller, job: Job) -> None:
    described = [controller.descriptor("wide", rank) for rank in range(4)]
    assert {each.group for each in described} == {"{}:{}".format(*job.epoch.group)}
    assert {each.group_key for each in described} == {f"{job.epoch.group_key:016x}"}
    assert job.epoch.group_key not in {job.epoch.key_of(rank) for rank in range(4)}


def test_another_epoch_has_another_group_that_no_rank_has_joined(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    report(controller, 0, 1, 2, 3)
    fabric.switches["s2"].restart()
    list(controller.reconcile())
    now = come_back(controller, job)
    assert now.epoch.resumes == job.epoch.number
    assert now.epoch.group_key != job.epoch.group_key
    assert now.epoch.group != job.epoch.group
    assert [together(controller, name) for name in NAMES] == [None] * 3
    report(controller, 0, 1, 2, 3)
    assert all(together(controller, name) for name in NAMES)


def test_after_an_eviction_the_group_has_another_address_and_key(controller: Controller, job: Job) -> None:
    """In the same epoch. Results come by unicast to all until members have joined the new group."""
    report(controller, 0, 1, 2, 3)
    before = controller.descriptor("wide", 0)
    controller.evict("wide", 3)
    assert [together(controller, name) for name in NAMES] == [None] * 3
    after = controller.descriptor("wide", 0)
    assert after.epoch == before.epoch == job.epoch.number
    assert after.group != before.group
    assert after.group_key != before.group_key
    report(controller, 0, 1, group=before.group)
    assert [together(controller, name) for name in NAMES] == [None] * 3, "reports from before the eviction"
    report(controller, 0, 1)
    assert all(together(controller, name) for name in NAMES)
    controller.evict("wide", 3)
    assert all(together(controller, name) for name in NAMES), "it was evicted already"
    assert not any(each.changed for each in controller.reconcile())


def test_an_eviction_that_fails_leaves_the_group_as_it_is(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    report(controller, 0, 1, 2, 3)
    before = controller.job("wide").epoch
    fabric.switches["s3"].fail_update = lambda update: "no room" if touches(update, "job") else None
    with pytest.raises(SwitchError, match="no room"):
        controller.evict("wide", 3)
    assert controller.job("wide").epoch == before
    assert before.group_key == job.epoch.group_key
    assert all(together(controller, name) for name in NAMES)


def test_of_ranks_that_share_memory_the_leader_joins(controller: Controller) -> None:
    controller.create_job(wide(members=("h1", "h1", "h2", "h2"), share_memory=True, multicast=True))
    join_all(controller, name="wide")
    job = controller.job("wide")
    report(controller, 1, 3)
    assert not items_on(controller, GroupRewriteEntry)
    report(controller, 0, 2)
    assert len(items_on(controller, GroupRewriteEntry)) == 1
    groups = {each.group_id: each.replicas for each in items_on(controller, MulticastGroup)}
    assert {instance for _, instance in groups[IP_MULTICAST_GROUPS + job.job_id]} == {SWITCH_SOURCE}


def test_a_job_without_multicast_has_none(controller: Controller) -> None:
    controller.create_job(wide())
    (first, *_) = join_all(controller, name="wide")
    report(controller, 0, 1, 2, 3)
    assert (first.group, first.group_key) == ("", "")
    assert not items_on(controller, GroupRewriteEntry)
    assert type(job_entry(controller)) is JobEntry
    with pytest.raises(RejectedError, match="multicast False, not True"):
        controller.create_job(wide(multicast=True))


def test_what_cannot_be(open_fabric: Callable[[Topology], FakeFabric]) -> None:
    controller = open_fabric(star(4)).open()
    controller.push()
    with pytest.raises(RejectedError, match="multicast is for members that share a switch's port"):
        controller.create_job(wide(multicast=True))
    with pytest.raises(ValidationError, match="is for results of a switch"):
        JobSpec(name="ring", members=HOSTS, algorithm="ring", multicast=True)
