# SPDX-License-Identifier: MIT
"""Jobs over trees when switches restart, go and come back, and when members are evicted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from netsum.descriptor import Descriptor
from netsum.wire.schema import BlockState
from netsum_controller import Controller, JobSpec, Topology
from netsum_controller.config.topologies import leaf_spine, tree
from netsum_controller.entries import JobEntry, MemberEntry
from netsum_controller.errors import BusyError, NoSwitchError, SwitchError, UnreachableError
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.monitoring.switch_monitor import SwitchMonitor
from netsum_controller.state.model import Job, JobState, Late, Rejoin

from tests.controller.fake_fabric import ALL, HOSTS, FakeFabric, controller, job
from tests.controller.items import items_on, job_entry
from tests.controller.members import TOKEN, come_back, join_all, rejoin
from tests.controller.test_watcher import PERIOD
from tests.controller.watched import put_record
from tests.threads import until

__all__ = ["controller", "job"]  # the fixtures


def epochs_on(fabric: FakeFabric, controller: Controller, job: Job) -> dict[str, int | None]:
    """The epoch of the job's entry on each switch that answers."""
    found: dict[str, int | None] = {}
    for name, switch in fabric.switches.items():
        if switch.is_up:
            entries = items_on(controller, JobEntry, name)
            found[name] = next((entry.epoch for entry in entries if entry.job_id == job.job_id), None)
    return found


@pytest.mark.parametrize(
    "switch", ["leaf1", "spine1", *(pytest.param(name, marks=pytest.mark.full) for name in ("leaf2", "spine2"))]
)
def test_one_switch_restarts(fabric: FakeFabric, controller: Controller, job: Job, switch: str) -> None:
    """A new epoch that resumes the old, on all switches; nothing is let in anywhere before all have rejoined."""
    fabric.switches[switch].restart()
    reports = {report.switch: report for report in controller.reconcile()}
    assert set(reports[switch].new_epochs) == {"wide"}
    assert not any(report.new_epochs or report.waiting for name, report in reports.items() if name != switch)
    now = controller.job("wide")
    assert (now.epoch.resumes, now.epoch.rejoin, now.state) == (job.epoch.number, Rejoin.WAITING, JobState.READY)
    assert epochs_on(fabric, controller, job) == dict.fromkeys(fabric.switches)
    back = come_back(controller, job, 5)
    assert back.epoch.first_block_id == job.epoch.first_block_id + 5
    assert epochs_on(fabric, controller, job) == dict.fromkeys(fabric.switches, now.epoch.number)
    assert back.parts == job.parts
    assert not any(report.changed for report in controller.reconcile())


def test_all_switches_restart_at_once(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    """The first that is reconciled finds the others without a program; the last one completes the job."""
    for switch in fabric.switches.values():
        switch.restart()
    reports = controller.reconcile()
    assert [bool(report.waiting) for report in reports] == [True, True, True, False]
    assert sum(len(report.new_epochs) for report in reports) == 1
    assert controller.job("wide").state is JobState.READY
    number = come_back(controller, job).epoch.number
    assert epochs_on(fabric, controller, job) == dict.fromkeys(fabric.switches, number)


def test_no_job_is_made_without_a_leaf_that_does_not_answer(fabric: FakeFabric, controller: Controller) -> None:
    """Its hosts must not combine themselves unasked, even if no tree avoids the switch."""
    fabric.switches["leaf2"].stop()
    with pytest.raises(UnreachableError, match=r"leaf2 is down.*--algorithm ring"):
        controller.create_job(JobSpec(name="unasked", members=HOSTS, window=8))
    assert controller.jobs() == []
    assert controller.create_job(JobSpec(name="near", members=HOSTS[:2], window=8)).by_switch


@pytest.mark.full
def test_a_root_that_is_gone(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    """Its stripes move to the other root; its part is kept, and used by the next epoch that begins when it is back."""
    fabric.switches["spine1"].stop()
    with pytest.raises(SwitchError, match="spine1"):
        controller.reconcile()
    moved = controller.job("wide")
    assert set(moved.epoch.shape.roots) == {"spine2"}
    assert (moved.switches[0], set(moved.switches)) == ("spine2", set(ALL))
    assert moved.epoch.resumes == job.epoch.number
    number = come_back(controller, job).epoch.number
    assert epochs_on(fabric, controller, job) == dict.fromkeys(("leaf1", "leaf2", "spine2"), number)
    with pytest.raises(SwitchError, match="spine1"):
        controller.reconcile()
    assert controller.job("wide").epoch.number == number, "once is enough"
    taken = controller.create_job(JobSpec(name="other", members=("h1", "h3"), window=8))
    assert "spine1" not in taken.switches, "a job that is made meanwhile goes around it, too"

    fabric.switches["spine1"].start()  # with what it had: it was only cut off
    reports = {report.switch: report for report in controller.reconcile()}
    assert reports["spine1"].deleted > 0
    assert epochs_on(fabric, controller, job)["spine1"] is None
    assert controller.job("wide").epoch.number == number, "no member is disturbed when it is back"
    controller.join("wide", TOKEN, 0, "b")
    assert set(controller.job("wide").epoch.shape.roots) == {"spine1", "spine2"}
    controller.delete_job("wide")
    controller.delete_job("other")
    assert not any(members_on(fabric, controller, job).values())


def test_a_root_goes_while_the_members_come_back_from_another_restart(
    fabric: FakeFabric, controller: Controller, job: Job
) -> None:
    """They still resume the epoch that they were in."""
    fabric.switches["leaf1"].restart()
    controller.reconcile()
    with pytest.raises(BusyError):
        rejoin(controller, "wide", 0, Progress(job.epoch.number, job.epoch.first_block_id))
    fabric.switches["spine2"].stop()
    with pytest.raises(SwitchError):
        controller.reconcile()
    now = controller.job("wide")
    assert (now.epoch.rejoin, set(now.epoch.shape.roots)) == (Rejoin.WAITING, {"spine1"})
    assert job.epoch.number in controller.context.store.resumed(now.epoch.number)
    assert come_back(controller, job, 3).epoch.first_block_id == job.epoch.first_block_id + 3


def test_a_leaf_that_is_gone_is_waited_for(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    before = fabric.installed()
    fabric.switches["leaf2"].stop()
    with pytest.raises(SwitchError, match="leaf2"):
        controller.reconcile()
    assert controller.job("wide").epoch.number == job.epoch.number
    fabric.switches["leaf2"].restart()
    controller.reconcile()
    assert controller.job("wide").epoch.resumes == job.epoch.number
    come_back(controller, job)
    assert {name: len(items) for name, items in fabric.installed().items()} == {
        name: len(items) for name, items in before.items()
    }


def test_no_room_around_a_switch_that_is_gone(
    fabric: FakeFabric, controller: Controller, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job waits in its epoch; looking again does not begin a new one."""

    def full(*_: object) -> None:
        raise NoSwitchError("no slots are left")

    monkeypatch.setattr("netsum_controller.jobs.epochs.place_again", full)
    fabric.switches["spine1"].stop()
    for _ in range(2):
        with pytest.raises(SwitchError, match="spine1"):
            controller.reconcile()
    assert controller.job("wide").epoch.number == job.epoch.number


def members_on(fabric: FakeFabric, controller: Controller, job: Job) -> dict[str, set[int]]:
    """The sources that have an entry on each switch."""
    return {
        name: {item.src_id for item in items if isinstance(item, MemberEntry)}
        for name, items in fabric.items(controller, job.job_id).items()
    }


def test_eviction_on_the_way_up(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    before = fabric.items(controller, job.job_id)
    done = controller.evict("wide", 0)
    assert (done.changed, done.new_epoch, done.closed) == (True, None, 0)
    assert members_on(fabric, controller, job) == {"leaf1": {1}, "leaf2": {0, 1}, "spine1": {0, 1}, "spine2": {0, 1}}
    assert [len(fabric.switches[name].scans) for name in ALL] == [0, 0, 1, 0]
    after = fabric.items(controller, job.job_id)
    assert before["leaf2"] == after["leaf2"]
    assert before["spine1"] == after["spine1"], "a child stands for as many as it did, and keeps its number"
    fabric.switches["spine2"].scans_close = 2
    controller.evict("wide", 1)
    assert members_on(fabric, controller, job) == {"leaf1": set(), "leaf2": {0, 1}, "spine1": {1}, "spine2": {1}}
    assert fabric.items(controller, job.job_id)["leaf1"] == set()
    assert [len(fabric.switches[name].scans) for name in ALL] == [1, 1, 1, 0]
    assert not any(report.changed for report in controller.reconcile())
    assert not controller.evict("wide", 1).changed
    now = controller.job("wide")
    assert now.epoch.number == job.epoch.number
    controller.admit("wide", 1)
    assert members_on(fabric, controller, job)["leaf1"] == {1}


@pytest.mark.usefixtures("job")
def test_an_eviction_that_a_parent_refuses(fabric: FakeFabric, controller: Controller) -> None:
    controller.evict("wide", 0)
    before = fabric.installed()
    fabric.fail_everywhere(lambda name, update: "broken" if (name, update.type) == ("spine2", 2) else None)
    with pytest.raises(SwitchError, match="spine2"):
        controller.evict("wide", 1)
    assert fabric.installed() == before
    assert controller.job("wide").epoch.evicted == (0,)


def test_a_leaf_without_members_may_go(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    """The next epoch is planned without it."""
    for rank in (2, 3):
        controller.evict("wide", rank)
    fabric.switches["leaf2"].stop()
    with pytest.raises(SwitchError, match="leaf2"):
        controller.reconcile()
    controller.join("wide", TOKEN, 0, "b")
    now = controller.job("wide")
    assert now.epoch.shape.switches == {"leaf1"}, "both are on one leaf: it makes the results"
    assert set(now.switches) == set(ALL)
    assert now.switches[0] == "leaf1"
    assert job.job_id == now.job_id


def test_only_what_ages(controller: Controller) -> None:
    """Each switch has its own age, longer higher up, once all have joined; and its share of the quorum."""
    spec = JobSpec(name="late", members=HOSTS, late=Late.DEGRADE, block_exp=40.0, quorum=3, token=TOKEN, algorithm="switch")
    controller.create_job(spec)

    def ages() -> dict[str, tuple[int, int]]:
        entries = {name: job_entry(controller, name) for name in ALL}
        return {name: (entry.block_exp, entry.quorum) for name, entry in entries.items()}

    assert ages() == {"spine1": (0, 3), "spine2": (0, 3), "leaf1": (0, 2), "leaf2": (0, 2)}
    join_all(controller, name="late")
    leaf, root = (40_000, 2), (85_000, 3)
    assert ages() == {"spine1": root, "spine2": root, "leaf1": leaf, "leaf2": leaf}
    controller.evict("late", 3)
    controller.evict("late", 2)
    assert controller.job("late").quorum_now == 2
    assert job_entry(controller, "spine1").quorum == 2


def test_blocks_age_everywhere_when_the_last_that_had_not_joined_is_evicted(controller: Controller) -> None:
    spec = JobSpec(name="late", members=HOSTS, late=Late.DEGRADE, token=TOKEN, algorithm="switch")
    controller.create_job(spec)
    for rank in range(3):
        controller.join("late", TOKEN, rank, "a")
    controller.evict("late", 3)
    assert all(job_entry(controller, name).block_exp > 0 for name in ALL)
    assert not any(report.changed for report in controller.reconcile())


def test_why_follows_the_tree(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    """Block 0: rank 1 is missing on leaf1, and leaf2's partial is on its way. Block 1: only rank 0 has sent it."""
    first = put_record(fabric.switches["leaf1"], job, 0, 0b0001, on="leaf1")
    put_record(fabric.switches["leaf2"], job, 0, 0b0011, BlockState.SENT, on="leaf2")
    put_record(fabric.switches["leaf1"], job, 1, 0b0001, on="leaf1")
    root = job.epoch.shape.roots[first % 16]
    found = controller.diagnose("wide")
    zero, one = found.blocks
    assert (zero.block, zero.state, zero.seen) == (first, "open", (0, 2, 3))
    assert [person["rank"] for person in zero.missing] == [1]
    assert zero.in_flight == (("leaf2", root),)
    assert zero.switches == {"leaf1": "open", "leaf2": "sent"}
    assert [person["rank"] for person in one.missing] == [1, 2, 3]
    assert [source.rank for source in found.waiting_for] == [1, 2, 3]
    assert "rank 1 (h2) has joined, and none of its packets has come" in found.hints
    assert f"the partial sum of switch leaf2 has not come to {root}: its members' retransmissions send it again" in found.hints

    fabric.switches["spine2"].stop()
    assert any("spine2" in hint and "no P4Runtime server answers" in hint for hint in controller.diagnose("wide").hints)
    fabric.switches["leaf2"].restart()
    assert "switch leaf2 has restarted" in " ".join(controller.diagnose("wide").hints)


@pytest.mark.parametrize("how", ["is gone", "has restarted"])
def test_diagnosis_names_no_rank_whose_switch_cannot_tell(fabric: FakeFabric, controller: Controller, job: Job, how: str) -> None:
    """Rank 1 is missing on leaf1; the controller does not know what leaf2 has of the block."""
    first = put_record(fabric.switches["leaf1"], job, 0, 0b0001, on="leaf1")
    if how == "is gone":
        fabric.switches["leaf2"].stop()
    else:
        fabric.switches["leaf2"].restart()
    found = controller.diagnose("wide", first)
    assert [person["rank"] for person in found.blocks[0].missing] == [1]
    assert any("leaf2" in each for each in found.trouble)
    assert found.hints[: len(found.trouble)] == found.trouble


def test_a_topology_that_has_changed(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    """An epoch keeps its trees; the next one uses what is available by then."""
    data = fabric.topology.model_dump()
    data["hosts"]["h2"] |= {"switch": "leaf2", "port": 7}
    controller.topology = Topology.model_validate(data)
    with pytest.raises(Exception, match="its member h2 is no longer on switch leaf1"):
        controller.reconcile()
    controller.join("wide", TOKEN, 0, "b")
    assert controller.job("wide").epoch.shape.homes == ("leaf1", "leaf2", "leaf2", "leaf2")
    assert members_on(fabric, controller, job) == {"leaf1": {0}, "leaf2": {0, 1, 2}, "spine1": {0, 1}, "spine2": {0, 1}}


Open = Callable[[Topology], FakeFabric]


def create(controller: Controller) -> None:
    """A job of every host, all of them joined."""
    hosts = tuple(controller.topology.hosts)
    controller.push()
    controller.create_job(JobSpec(name="wide", members=hosts, window=8, token=TOKEN))
    for rank in range(len(hosts)):
        controller.join("wide", TOKEN, rank, "a", peer=f"10.0.0.{rank + 1}:4000")


def all_rejoin(controller: Controller, epoch: int, first: int) -> list[Descriptor]:
    """The answers to members that lack everything from ``first`` on."""
    found: dict[int, Descriptor] = {}
    for _ in range(2):
        for rank in range(controller.job("wide").workers):
            try:
                place = Progress(epoch, first)
                found[rank] = rejoin(controller, "wide", rank, place, peer=f"10.0.0.{rank + 1}:4000")
            except BusyError:
                continue
    return [found[rank] for rank in sorted(found)]


def test_a_tree_without_its_root(open_fabric: Open) -> None:
    """The leaves forget the job at once, the root when it is back; the job comes back to all of them when it is told to."""
    fabric = open_fabric(tree(2, 2))
    controller = fabric.open()
    controller.push()
    empty = fabric.installed()
    create(controller)
    old = controller.job("wide").epoch
    with closing(SwitchMonitor(controller.context, PERIOD, dead_after=5 * PERIOD)) as watcher:
        until(lambda: all(watch._around == frozenset() for watch in watcher._watches))
        fabric.switches["root"].stop()
        until(lambda: not controller.job("wide").by_switch)
        new = all_rejoin(controller, old.number, old.first_block_id + 3)
        assert {(one.resumes, one.algorithm, one.first_block_id) for one in new} == {(old.number, "auto", old.first_block_id + 3)}
        fabric.switches["root"].start()
        until(lambda: fabric.installed() == empty)
    done = controller.move("wide", "auto")
    assert (done.job.switches, done.resumes) == (("root", "leaf1", "leaf2"), True)
    back = all_rejoin(controller, new[0].epoch, new[0].first_block_id + 5)
    assert {(one.resumes, one.algorithm, one.first_block_id) for one in back} == {
        (new[0].epoch, "switch", old.first_block_id + 8)
    }
    assert not any(report.changed for report in controller.reconcile())


def test_no_member_waits_for_the_last_spine(open_fabric: Open) -> None:
    fabric = open_fabric(leaf_spine(2, 2, 1))
    controller = fabric.open()
    create(controller)
    assert set(controller.job("wide").epoch.shape.roots) == {"spine1", "spine2"}
    old = controller.job("wide").epoch
    with closing(SwitchMonitor(controller.context, PERIOD, dead_after=5 * PERIOD)) as watcher:
        until(lambda: all(watch._around == frozenset() for watch in watcher._watches))
        fabric.switches["spine1"].stop()
        until(lambda: set(controller.job("wide").epoch.shape.roots) == {"spine2"})
        around = all_rejoin(controller, old.number, old.first_block_id)
        assert {(one.algorithm, one.resumes) for one in around} == {("switch", old.number)}
        fabric.switches["spine2"].stop()
        until(lambda: not controller.job("wide").by_switch)
        last = all_rejoin(controller, around[0].epoch, around[0].first_block_id)
        assert {(one.algorithm, one.resumes) for one in last} == {("auto", around[0].epoch)}
