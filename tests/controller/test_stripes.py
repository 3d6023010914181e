# SPDX-License-Identifier: MIT
"""Hosts that reach several switches themselves, which share the blocks of their jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from netsum.wire.schema import BlockState, Role
from netsum_controller import Controller, Job, JobSpec, Topology
from netsum_controller.cli.job import parts, where
from netsum_controller.config.topologies import star
from netsum_controller.config.topology import parse_topology
from netsum_controller.entries import BlockRecord, JobEntry, KeyedMemberEntry, KeyedRewriteEntry, MulticastGroup
from netsum_controller.errors import BusyError, InputError, RejectedError
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.monitoring.collector import MOST, PROBES, JobCollector, every_record, sample, whole
from netsum_controller.planning.items import switch_items
from netsum_controller.planning.trees import plan_trees, source_ids
from netsum_controller.state.model import Shape

from tests.controller.fake_fabric import FakeFabric, controller
from tests.controller.items import items_on
from tests.controller.members import TOKEN, come_back, join_all
from tests.controller.watched import put_record

__all__ = ["controller"]  # the fixture

NAMES = ("s1", "s2", "s3")
HOSTS = ("h1", "h2", "h3", "h4")


def striped(count: int = 3, **changes: Any) -> Topology:
    """As many switches on one machine; ``changes`` replace fields of the second."""
    data = star(4, shared=4).model_dump()
    (first,) = data["switches"].values()
    names = [f"s{number + 1}" for number in range(count)]
    for number, name in enumerate(names):
        own = {"device_id": number + 1, "endpoint": f"10.1.0.9:{12000 + number}", "stripes": names[1:] if not number else []}
        data["switches"][name] = first | own | (changes if number == 1 else {})
    return Topology.model_validate(data)


@pytest.fixture
def fabric(open_fabric: Callable[[Topology], FakeFabric]) -> FakeFabric:
    return open_fabric(striped())


def wide(**options: Any) -> JobSpec:
    return JobSpec(**{"name": "wide", "members": HOSTS, "window": 64, "token": TOKEN, "algorithm": "switch", **options})


@pytest.fixture
def job(controller: Controller) -> Job:
    controller.create_job(wide())
    join_all(controller, name="wide")
    return controller.job("wide")


def test_every_switch_has_the_whole_job(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    assert job.switches == NAMES
    assert job.epoch.edges == ()
    for name in NAMES:
        (entry,) = items_on(controller, JobEntry, name)
        assert (entry.role, entry.all_sources, entry.stripe_mask) == (Role.ROOT, 0b1111, 0)
        assert (entry.epoch, entry.first_block_id) == (job.epoch.number, job.epoch.first_block_id)
        keys = {item.src_id: item.key for item in items_on(controller, KeyedMemberEntry, name)}
        assert keys == {seat.src_id: job.epoch.key_of(seat.rank) for seat in job.epoch.seats}
        assert len(items_on(controller, KeyedRewriteEntry, name)) == 4
        assert len([one for one in items_on(controller, MulticastGroup, name) if one.group_id == job.job_id]) == 1
    descriptor = controller.descriptor("wide", 2)
    assert (descriptor.switch.ip, descriptor.switch.port) == ("10.1.0.9", 12000)
    assert descriptor.endpoints == ("10.1.0.9:12000", "10.1.0.9:12001", "10.1.0.9:12002")
    assert descriptor.roots[:6] == (0, 1, 2, 0, 1, 2)
    assert not any(report.changed for report in controller.reconcile())
    assert where(job) == "on s1, s2, s3, 128 slots each, roots s1 22/64, s2 21/64, s3 21/64"
    assert [(part["switch"], part["role"], part["ranks"]) for part in parts(job)] == [(n, "root", [0, 1, 2, 3]) for n in NAMES]
    before = fabric.installed()
    controller.create_job(wide().model_copy(update={"name": "other"}))
    controller.delete_job("other")
    assert fabric.installed() == before


def test_ranks_of_a_host_are_one_source_at_each(controller: Controller) -> None:
    job = controller.create_job(wide(members=("h1", "h1", "h2", "h2"), share_memory=True))
    for name in NAMES:
        assert sorted((item.src_id, item.workers) for item in items_on(controller, KeyedMemberEntry, name)) == [(0, 2), (1, 2)]
    assert [seat.src_id for seat in job.epoch.seats] == [0, 0, 1, 1]


def test_one_stripe_is_an_ordinary_job(open_fabric: Callable[[Topology], FakeFabric]) -> None:
    controller = open_fabric(striped(1)).open()
    controller.push()
    controller.create_job(wide())
    (first, *_) = join_all(controller, name="wide")
    assert (first.roots, first.endpoints, first.switch.port) == ((), (), 12000)


@pytest.mark.parametrize("count", [2, 3, 5, 12, 16])
def test_shares(count: int) -> None:
    """Of a power of two, block b is root b modulo their number's; of others, no root has more than its share, rounded up."""
    names = [f"s{number + 1}" for number in range(count)]
    trees = plan_trees(striped(count), HOSTS)
    assert set(trees.nodes) == set(names)
    assert max(Counter(trees.roots).values()) == -(-trees.stripes // count)
    if not count & (count - 1):
        assert list(trees.roots) == names * (trees.stripes // count)
    shape = Shape(trees.roots, trees.parents, ("s1",) * 4)
    assert source_ids(shape) == {name: {0: 0, 1: 1, 2: 2, 3: 3} for name in names}


def test_roots_that_were_asked_for() -> None:
    trees = plan_trees(striped(), HOSTS, weights={"s1": 1, "s3": 3})
    assert Counter(trees.roots) == {"s1": 16, "s3": 48}
    assert plan_trees(striped(), HOSTS, weights={"s1": 1}).roots == ("s1",)
    assert Counter(plan_trees(striped(), HOSTS, down={"s2"}).roots) == {"s1": 32, "s3": 32}
    with pytest.raises(RejectedError, match="root s2 cannot be reached from s1"):
        plan_trees(striped(), HOSTS, weights={"s2": 1})
    with pytest.raises(RejectedError, match="switch s1 is down"):
        plan_trees(striped(), HOSTS, down={"s1"})


def test_entries_without_a_job() -> None:
    """The switches may have one address: then each takes it for its own, and none for another's."""
    topology = striped()
    assert switch_items(topology, "s2") == switch_items(topology, "s1")
    apart = striped(ip="10.1.0.10", mac="02:00:0a:01:00:0a")
    assert len(switch_items(apart, "s1")) == len(switch_items(apart, "s2")) > len(switch_items(topology, "s1"))
    assert topology.on_ports("s3")[1] == "4 hosts"


def test_a_switch_that_restarts(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    """The job is restored on it, under an epoch that resumes the one before."""
    fabric.switches["s2"].restart()
    reports = {report.switch: report for report in controller.reconcile()}
    assert reports["s2"].new_epochs.keys() == {"wide"}
    assert not items_on(controller, JobEntry, "s1"), "not before its members have said where it begins"
    now = come_back(controller, job)
    assert (now.epoch.resumes, now.switches) == (job.epoch.number, NAMES)
    assert {entry.epoch for name in NAMES for entry in items_on(controller, JobEntry, name)} == {now.epoch.number}
    assert not any(report.changed for report in controller.reconcile())


def test_a_switch_that_is_gone_is_left_out(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    fabric.switches["s2"].stop()
    controller.context.patience = controller.context.connect_timeout = 1.0
    with suppress(Exception):
        list(controller.reconcile())
    now = come_back(controller, job)
    assert set(now.epoch.shape.roots) == {"s1", "s3"}
    assert controller.descriptor("wide", 0).endpoints == ("10.1.0.9:12000", "10.1.0.9:12002")


@pytest.mark.usefixtures("job")
def test_evicted_everywhere(controller: Controller) -> None:
    eviction = controller.evict("wide", 1)
    assert eviction.new_epoch is None
    for name in NAMES:
        assert {item.src_id for item in items_on(controller, KeyedMemberEntry, name)} == {0, 2, 3}
        (entry,) = items_on(controller, JobEntry, name)
        assert entry.all_sources == 0b1101


def test_who_is_missing_is_read_from_the_root_of_the_block(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    """Rank 1 has contributed at the other roots, and none of its packets reaches that of the block."""
    roots, first = job.epoch.shape.roots, job.epoch.first_block_id
    ahead = next(ahead for ahead in range(4) if roots[(first + ahead) % 64] == "s2")
    for other in (one for one in range(ahead + 3) if one != ahead):
        root = roots[(first + other) % 64]
        put_record(fabric.switches[root], job, other, 0b1111, BlockState.DONE, on=root)
    put_record(fabric.switches["s2"], job, ahead, 0b1101, on="s2")
    for name, count in zip(NAMES, (5, 0, 7), strict=True):
        fabric.switches[name].let_in({1: count}, {1: 100 * count})
    place = Progress(job.epoch.number, block=first + ahead, sent=5, octets=4136)
    with suppress(BusyError):
        controller.join("wide", TOKEN, 1, "a", progress=place)
    found = controller.diagnose("wide")
    (block,) = found.blocks
    assert (block.block, block.seen, [each["rank"] for each in block.missing]) == (first + ahead, (0, 2, 3), [1])
    assert block.switches == {"s2": "open"}
    (late,) = found.waiting_for
    assert "to UDP 10.1.0.9:12001 of switch s2: look for a firewall on the way" in late.cause
    assert late.last_block == first + ahead + 2
    assert [member.packets for member in controller.stats("wide").members] == [0, 12, 0, 0]


def test_one_view_of_all(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    """Each switch counts its share of a member's packets; together they are what it has sent."""
    roots, first = job.epoch.shape.roots, job.epoch.first_block_id
    blocks = Counter(roots[(first + ahead) % 64] for ahead in range(60))
    for ahead in range(60):
        root = roots[(first + ahead) % 64]
        opened = ahead >= 57
        state, seen = (BlockState.OPEN, 0b1011) if opened else (BlockState.DONE, 0b1111)
        put_record(fabric.switches[root], job, ahead, seen, state, on=root)
    for name in NAMES:
        fabric.switches[name].let_in({0: blocks[name] + 2}, {0: 100 * blocks[name]})
    collector = JobCollector(controller.context, patience=60.0)
    views = [collector.look(name) for name in NAMES]
    (view,) = whole(one for switch in views for one in switch.jobs)
    assert view.complete
    assert (view.blocks, view.open_blocks) == (60, 3)
    assert view.members[0].packets == 66
    assert view.members[0].octets == 6000
    assert view.members[0].repeats == 6
    assert (view.members[2].missing, view.members[2].last_block, view.members[2].waits) == (3, 56, 3)


@pytest.mark.parametrize("newest", [0, 63, 130, 5000, 20000])
@pytest.mark.parametrize("window", [64, 4096])
def test_the_samples_of_all_have_what_is_open(controller: Controller, newest: int, window: int) -> None:
    """Each root is asked for its own slots alone."""
    job = controller.create_job(wide(window=window))
    shape, first = job.epoch.shape, job.epoch.first_block_id
    found = {}
    for root in NAMES:
        asked: list[int] = []

        def query(slots: Any, root: str = root, asked: list[int] = asked) -> dict[int, BlockRecord]:
            records = {}
            for slot in slots:
                asked.append(slot)
                ahead = newest - (newest + first + job.slot_base - slot) % job.slots
                assert shape.root_of(first + ahead) == root
                state = BlockState.EMPTY if ahead < 0 else BlockState.OPEN if newest - ahead < window else BlockState.DONE
                records[slot] = _record(slot, job.epoch.number, (first + ahead) % (1 << 32), state)
            return records

        found[root] = sample(job, job.slot_base, query, root)
        assert len(asked) <= MOST + 2 * PROBES
        every = every_record(job, job.slot_base, query, root=root)
        opened = sum(record.state is BlockState.OPEN for record in every.records.values())
        assert opened == sum(shape.root_of(first + newest - back) == root for back in range(min(window, newest + 1)))
        counted = sum(record.state is BlockState.OPEN for record in found[root].records.values())
        assert abs(counted * found[root].stride - opened) <= PROBES * found[root].stride
    assert newest - max(one.newest or 0 for one in found.values()) <= job.slots // PROBES


def _record(slot: int, epoch: int, block: int, state: BlockState) -> BlockRecord:
    return BlockRecord(slot, epoch, block, state, 0b1111, 4, 4, 0, 0, 0, 0, 0, 0, degraded=False)


GOOD = """\
name: striped
switches:
  s1: {device_id: 1, ip: 10.1.0.9, mac: "02:00:0a:01:00:09", endpoint: "10.1.0.9:12000", shared_ports: [1], stripes: [s2, s3]}
  s2: {device_id: 2, ip: 10.1.0.9, mac: "02:00:0a:01:00:09", endpoint: "10.1.0.9:12001", shared_ports: [1]}
  s3: {device_id: 3, ip: 10.1.0.9, mac: "02:00:0a:01:00:09", endpoint: "10.1.0.9:12002", shared_ports: [1]}
  s4: {device_id: 4, ip: 10.0.0.4, mac: "02:00:0a:00:00:04"}
hosts:
  h1: {switch: s1, port: 1}
  h2: {ip: 10.0.0.2, mac: "02:00:0a:00:00:02", switch: s4, port: 1}
"""


def test_a_file_with_stripes() -> None:
    topology = parse_topology(GOOD)
    assert topology.reached_by(topology.hosts["h1"]) == NAMES
    assert topology.reached_by(topology.hosts["h2"]) == ("s4",)
    assert parse_topology(topology.to_yaml()) == topology


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("[s2, s3]", "[s2, s3, s9]", "switches.s1.stripes.2: there is no switch 's9' (there are: s1, s2, s3, s4)"),
        ("[s2, s3]", "[s2, s3, s2]", "switches.s1.stripes.2: s2 shares the blocks of s1 already"),
        ("[s2, s3]", "[s1, s2, s3]", "switches.s1.stripes.0: s1 shares the blocks of s1 already"),
        ("[s2, s3]", "[s2]", "switches.s3.ip: 10.1.0.9 is already that of switches.s1"),
        ("9:12001", "9:12000", "switches.s2.endpoint: 10.1.0.9:12000 is already that of switches.s1"),
        (', endpoint: "10.1.0.9:12001"', "", "switches.s1.stripes.0: s2 has no endpoint: hosts could not tell it from"),
        ('1", shared_ports: [1]', '1", shared_ports: [2]', "switches.s1.stripes.0: s2 has other shared_ports than s1"),
        ('1", shared_ports: [1]', '1", shared_ports: [1], stripes: [s4]', "switches.s1.stripes.0: s2 has stripes of its own"),
        (
            "{switch: s1, port: 1}",
            '{ip: 10.0.0.1, mac: "02:00:0a:00:00:01", switch: s1, port: 7}',
            "switches.s1.stripes: h1 is on port 7, which is not among the shared_ports",
        ),
        (
            "{switch: s1, port: 1}",
            "{switch: s3, port: 1}",
            "switches.s1.stripes.1: h1 is on s3: hosts are on s1, and reach the others from there",
        ),
        (
            "hosts:",
            "links:\n  l1: {switches: [s2, s4], ports: [2, 3]}\nhosts:",
            "switches.s1.stripes.0: s2 is on link l1: the switches that share blocks have no links",
        ),
    ],
)
def test_stripes_that_cannot_be(old: str, new: str, error: str) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(InputError) as caught:
        parse_topology(GOOD.replace(old, new))
    assert error in str(caught.value)


def test_ids_in_a_row_go_round() -> None:
    roots = plan_trees(striped(4), HOSTS).roots
    assert all(one != other for one, other in pairwise(roots))
    assert replace(Shape(roots, {}), homes=("s1",)).reached("s1") == ("s1", "s2", "s3", "s4")
