# SPDX-License-Identifier: MIT
"""Regions as devices and switches come and go: who is whose primary, in which order all parts learn of it, and what is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from netsum.wire.memory import MemoryStatus
from netsum_controller import Controller, Topology
from netsum_controller.entries import LostShardEntry, MulticastGroup, RegionEntry, ShardEntry
from netsum_controller.errors import RejectedError, StateError, SwitchError
from netsum_controller.memory.model import RegionSpec, RegionState
from netsum_controller.memory.placement import memory_items, of_memory
from netsum_controller.regions.lifecycle import create_region
from netsum_controller.regions.reconciler import reconcile_regions

from tests.controller.fake_switch import FakeSwitch, touches
from tests.controller.memory_devices import FakeMemory


def installed(controller: Controller) -> list[Any]:
    with controller.context.client("s1") as client:
        return of_memory(client.read_items(), controller.topology)


def entries(controller: Controller, kind: type) -> list[Any]:
    return sorted((item for item in installed(controller) if isinstance(item, kind)), key=str)


def assert_as_it_should_be(controller: Controller) -> None:
    """The switch has exactly what the state file says."""
    wanted = memory_items(controller.topology, controller.context.memory.state(), "s1")
    assert set(wanted) == set(installed(controller))


def test_a_region_is_on_the_switch_once_all_its_devices_have_it(memory: FakeMemory, switch: FakeSwitch) -> None:
    memory.devices["h4"].refuses = "no room"
    wrote = len(switch.writes)
    with pytest.raises(RejectedError, match="'x': device h4: no room"):
        memory.create()
    assert not memory.context.memory.state().regions
    assert not entries(memory.controller, RegionEntry)
    memory.devices["h4"].refuses = None
    assert memory.create().state is RegionState.READY
    assert len(switch.writes) > wrote
    assert len(entries(memory.controller, ShardEntry)) == 16
    assert {hosts[0] for hosts in memory.groups()} == {"h1", "h2", "h4"}
    assert_as_it_should_be(memory.controller)


def test_no_call_waits_forever(memory: FakeMemory) -> None:
    with pytest.raises(RejectedError, match=r"have not made it in 0 s. Does `netsum serve` run"):
        memory.controller.create_region(RegionSpec.of(name="x", size=1 << 20), wait=0)
    assert not memory.context.memory.state().regions


def test_a_device_that_restarts_while_it_is_made_is_told_again(memory: FakeMemory) -> None:
    slow, restarting = memory.devices["h1"], memory.devices["h2"]
    slow.up = False
    ticks = iter(range(100))

    def pause() -> None:
        memory.tick()
        if next(ticks) == 2:
            restarting.restart()
            slow.up = True

    region = create_region(memory.context, RegionSpec.of(name="x", size=1 << 20), pause=pause)
    assert region.state is RegionState.READY
    incarnations = {member.incarnation for shard in memory.shards() for member in shard.group.members}
    assert incarnations == {device.incarnation for device in memory.devices.values()}


def test_the_most_advanced_backup_follows_a_dead_primary(memory: FakeMemory) -> None:
    region = memory.create(replicas=3, shards=1)
    [(first, second, third)] = memory.groups()
    memory.devices[third].held[region.id, 0]["position"] = 9
    memory.tick()
    memory.devices[first].up = False
    memory.tick(2.9)
    assert memory.groups() == [(first, second, third)]
    memory.tick(0.2)
    memory.settle()
    assert memory.groups() == [(third, second)]
    [entry] = entries(memory.controller, ShardEntry)
    assert entry.epoch == memory.shards()[0].epoch > 1
    assert entry.device == memory.context.memory.state().devices[third].number
    assert_as_it_should_be(memory.controller)
    # It is back without what it had, and fetches it again.
    memory.devices[first].restart()
    memory.settle()
    assert memory.groups() == [(third, second, first)]
    assert not any(member.joining for member in memory.shards()[0].group.members)


def test_who_still_fetches_never_follows(memory: FakeMemory) -> None:
    memory.create(replicas=2, shards=1)
    [(first, second)] = memory.groups()
    other = next(host for host in memory.devices if host not in (first, second))
    memory.devices[other].slow = True
    memory.devices[second].up = False
    memory.tick(3.5)
    memory.settle()
    assert memory.groups() == [(first, other)]
    memory.devices[first].up = False
    memory.tick(3.5)
    memory.tick()
    assert memory.groups() == [(first, other)], "it is waited for"
    memory.devices[first].up = True  # it was only silent
    memory.devices[other].slow = False
    memory.settle()
    assert memory.groups()[0] == (first, other)
    assert not memory.shards()[0].lost


def test_memory_in_ram_is_lost_with_its_only_device(memory: FakeMemory) -> None:
    region = memory.create(shards=1)
    [(host,)] = memory.groups()
    memory.devices[host].restart()
    memory.settle()
    [shard] = memory.shards()
    assert shard.lost
    assert entries(memory.controller, LostShardEntry) == [LostShardEntry(region.id, 0, int(MemoryStatus.LOST))]
    assert not memory.devices[host].held
    assert_as_it_should_be(memory.controller)


def test_memory_in_files_is_waited_for(controller: Controller) -> None:
    memory = FakeMemory(controller, durable=True)
    memory.create(shards=1)
    [(host,)] = memory.groups()
    memory.devices[host].up = False
    for _ in range(20):
        memory.tick()
    assert memory.groups() == [(host,)]
    assert not memory.context.memory.state().devices[host].alive
    memory.devices[host].restart()
    memory.settle()
    assert memory.groups() == [(host,)]
    assert memory.shards()[0].epoch == 1
    # But files that are gone are gone.
    memory.devices[host].held = {}
    memory.devices[host].told = {}
    memory.settle()
    assert memory.shards()[0].lost


def test_one_report_without_a_shard_is_no_loss(controller: Controller) -> None:
    memory = FakeMemory(controller, durable=True)
    region = memory.create(shards=1)
    [(host,)] = memory.groups()
    held = memory.devices[host].held
    memory.devices[host].held = {}
    memory.beat(host)
    memory.devices[host].held = held
    memory.settle()
    assert not memory.shards()[0].lost
    assert (region.id, 0) in memory.devices[host].held


def test_a_move_has_three_steps_and_the_region_stays_whole(memory: FakeMemory) -> None:
    memory.create(shards=4, devices=("h1", "h2"))
    memory.devices["h4"].slow = True
    assert memory.controller.move_region("x", ["h4"]) == 4
    memory.settle()
    assert memory.groups() == [("h1", "h4"), ("h2", "h4")] * 2, "it fetches"
    assert memory.controller.moving("x") == 4
    groups = entries(memory.controller, MulticastGroup)
    assert [len(group.replicas) for group in groups] == [2, 2]
    memory.devices["h4"].slow = False
    memory.settle()
    assert memory.groups() == [("h4",)] * 4
    assert memory.controller.moving("x") == 0
    assert not entries(memory.controller, MulticastGroup)
    assert not memory.devices["h1"].held
    assert_as_it_should_be(memory.controller)
    assert memory.controller.move_region("x", ["h1"], shards=[2]) == 1
    memory.settle()
    assert memory.groups() == [("h4",), ("h4",), ("h1",), ("h4",)]
    assert memory.controller.move_region("x", ["h2", "h4"], away_from="h1") == 1
    memory.settle()
    assert "h1" not in {host for hosts in memory.groups() for host in hosts}


def test_a_move_to_a_device_that_dies_waits_for_it(memory: FakeMemory) -> None:
    memory.create(shards=1, devices=("h1",))
    memory.devices["h4"].slow = True
    memory.controller.move_region("x", ["h4"])
    memory.settle()
    memory.devices["h4"].up = False
    memory.tick(3.5)
    memory.settle()
    assert memory.groups() == [("h1",)]
    memory.devices["h4"].restart()
    memory.devices["h4"].slow = False
    memory.settle()
    assert memory.groups() == [("h4",)]


def test_moves_that_cannot_be_are_refused(memory: FakeMemory) -> None:
    memory.create(shards=2)
    for words, message in (
        ({"to": ["h3"]}, "no memory device serves on h3"),
        ({"to": ["h1"], "shards": [2]}, "has no shard 2: they are 0..1"),
    ):
        with pytest.raises(RejectedError, match=message):
            memory.controller.move_region("x", **words)
    with pytest.raises(RejectedError, match="no region 'y'"):
        memory.controller.move_region("y", ["h1"])


def test_devices_learn_of_an_epoch_when_the_switch_has_it(memory: FakeMemory, switch: FakeSwitch) -> None:
    """Also if the controller is killed in between, and another goes on."""
    memory.create(replicas=2, shards=1)
    memory.settle()
    [(first, second)] = memory.groups()
    told = memory.devices[second].told
    memory.devices[first].up = False

    def refuse(update: Any) -> str | None:
        return "no more room" if touches(update, "shard") else None

    switch.fail_update = refuse
    memory.now += 3.5
    memory.beat(second)
    with pytest.raises(SwitchError, match="no more room"):
        reconcile_regions(memory.context)
    memory.beat(second)
    assert memory.devices[second].told == told, "no device knows it"
    assert memory.placed()[0].next is not None
    assert memory.groups() == [(first, second)]
    with pytest.raises(SwitchError):
        reconcile_regions(memory.context)
    switch.fail_update = lambda _: None
    memory.tick()
    memory.settle()
    assert memory.groups()[0][0] == second
    assert_as_it_should_be(memory.controller)


def test_a_controller_that_was_killed_is_finished_by_the_next(
    memory: FakeMemory, switch: FakeSwitch, open_controller: Callable[[], Controller]
) -> None:
    memory.create(replicas=2, shards=1)
    [(first, second)] = memory.groups()
    memory.devices[first].up = False
    switch.fail_update = lambda update: "killed" if touches(update, "shard") else None
    memory.now += 3.5
    memory.beat(second)
    with pytest.raises(SwitchError):
        reconcile_regions(memory.context)
    switch.fail_update = lambda _: None
    after = FakeMemory(open_controller(), ())
    after.devices = {second: memory.devices[second]}
    after.settle()
    assert after.groups() == [(second,)]
    assert after.shards()[0].epoch == 2
    assert_as_it_should_be(after.controller)


def test_no_device_is_dead_before_its_first_heartbeat_is_due(
    memory: FakeMemory, open_controller: Callable[[], Controller]
) -> None:
    memory.create(replicas=2, shards=1)
    [(first, second)] = memory.groups()
    after = FakeMemory(open_controller(), ())
    after.devices = {second: memory.devices[second]}
    for _ in range(5):
        after.tick()
    assert after.groups() == [(first, second)]
    after.tick(1.0)
    after.settle()
    assert after.groups() == [(second,)]


def test_a_switch_that_restarted_gets_everything_back(memory: FakeMemory, switch: FakeSwitch) -> None:
    memory.create(replicas=2)
    before = set(installed(memory.controller))
    epochs = [shard.epoch for shard in memory.shards()]
    switch.restart()
    memory.controller.reconcile()
    assert set(installed(memory.controller)) == before
    assert [shard.epoch for shard in memory.shards()] == epochs
    assert not memory.controller.reconcile()[0].changed


def test_a_switch_that_forwards_nothing_delays_no_other(memory: FakeMemory, switch: FakeSwitch) -> None:
    memory.create(replicas=2, shards=1)
    [(first, second)] = memory.groups()
    switch.stop()
    memory.devices[first].up = False
    memory.now += 3.5
    memory.beat(second)
    with pytest.raises(SwitchError, match="no P4Runtime server answers"):
        reconcile_regions(memory.context)
    assert memory.groups() == [(first, second)], "it may only be out of our reach"
    memory.context.down.add("s1")  # the watcher has found out
    memory.tick()
    assert memory.groups()[0][0] == second
    switch.start()
    memory.context.down.clear()
    memory.controller.reconcile()
    memory.settle()
    assert_as_it_should_be(memory.controller)


def test_deleting_takes_it_from_the_switch_and_the_devices(memory: FakeMemory) -> None:
    memory.create(replicas=2)
    memory.create("y", size=1 << 16)
    memory.controller.delete_region("x")
    assert len(entries(memory.controller, RegionEntry)) == 1
    assert not entries(memory.controller, MulticastGroup)
    memory.settle()
    ids = {region for device in memory.devices.values() for region, _ in device.held}
    assert ids == {memory.context.memory.region("y").id}
    assert_as_it_should_be(memory.controller)


def test_quiet_devices_cost_nothing(memory: FakeMemory, switch: FakeSwitch) -> None:
    """Positions grow with every write; that alone is nothing to do."""
    memory.create(replicas=2)
    memory.settle()
    writes = len(switch.writes)
    for position in range(5):
        for device in memory.devices.values():
            for said in device.held.values():
                said["position"] = position
        memory.tick()
        assert not reconcile_regions(memory.context)
    assert len(switch.writes) == writes


def test_regions_of_another_state_file_are_left_alone(memory: FakeMemory, topology: Topology, tmp_path: Path) -> None:
    memory.create()
    before = set(installed(memory.controller))
    with Controller(topology, tmp_path / "other.db") as other:
        with pytest.raises(StateError, match=r"has regions of memory that .*other.db does not know \(region 0x"):
            other.push()
        assert set(installed(memory.controller)) == before
        other.push(take_over=True)
    assert not installed(memory.controller)
    memory.controller.delete_region("x")  # whose id is remembered
    memory.controller.push(take_over=True)
