# SPDX-License-Identifier: MIT
"""A device whose folder, or a controller whose state file, is an older copy: what is older is never shown."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from netsum_controller import Controller, Topology
from netsum_controller.entries import LostShardEntry

from tests.controller.memory_devices import FakeMemory


def put_back(memory: FakeMemory, host: str, key: tuple[int, int], **older: int) -> None:
    """The device's folder is replaced by an older copy; it is the same device as before."""
    memory.devices[host].restart()
    memory.devices[host].held[key] |= older


def test_a_device_with_an_older_copy_of_its_memory_has_lost_it(controller: Controller) -> None:
    memory = FakeMemory(controller, durable=True)
    region = memory.create(shards=1)
    [(host,)] = memory.groups()
    key = region.id, 0
    memory.devices[host].held[key] |= {"position": 105, "vouched": 105}
    memory.tick()
    put_back(memory, host, key, position=50, vouched=0)
    memory.beat(host)
    assert not memory.devices[host].told, "it is neither told to serve it"
    assert key in memory.devices[host].held, "nor to give it up"
    memory.settle()
    assert memory.shards()[0].lost
    with memory.context.client("s1") as client:
        assert client.read_entries(LostShardEntry)
    assert not memory.devices[host].held


@pytest.mark.parametrize("older", [{"position": 50}, {"position": 200, "epoch": 1}])
def test_another_device_goes_on_where_one_has_an_older_copy(controller: Controller, older: dict[str, int]) -> None:
    """Of an earlier epoch, a position says nothing."""
    memory = FakeMemory(controller, ("h1", "h2"), durable=True)
    region = memory.create(replicas=2, shards=1)
    key = region.id, 0
    memory.controller.move_region("x", [memory.groups()[0][1]])
    memory.settle()
    [(first, second)] = memory.groups()
    for host in (first, second):
        assert memory.devices[host].held[key]["epoch"] > 1
        memory.devices[host].held[key] |= {"position": 105, "vouched": 105}
    memory.tick()
    put_back(memory, first, key, vouched=0, **older)
    memory.settle()
    memory.settle()
    assert memory.groups() == [(second, first)]
    assert not any(member.joining for member in memory.shards()[0].group.members), "it has fetched the rest"
    # The primary dies, and the other has an older copy: it is not told to go on.
    for host in (first, second):
        memory.devices[host].held[key] |= {"position": 205, "vouched": 205}
    memory.tick()
    memory.devices[second].up = False
    memory.devices[first].up = False
    memory.tick(4.0)
    put_back(memory, first, key, position=105, vouched=0)
    memory.settle()
    assert memory.groups()[0][0] == second, "its memory may come back with it"
    assert not memory.shards()[0].lost
    memory.devices[second].restart()
    memory.settle()
    assert memory.groups() == [(second, first)]


def test_it_does_not_go_on_as_was_decided_before(controller: Controller) -> None:
    """The primary has died, and the group in which the other one follows is written down: then the other has an older copy."""
    memory = FakeMemory(controller, ("h1", "h2"), durable=True)
    region = memory.create(replicas=2, shards=1)
    [(first, second)] = memory.groups()
    key = region.id, 0
    for host in (first, second):
        memory.devices[host].held[key] |= {"position": 105, "vouched": 105}
    memory.tick()
    memory.devices[first].up = False
    memory.tick(4.0)
    assert memory.groups()[0][0] == second
    put_back(memory, second, key, position=50, vouched=0)
    memory.beat(second)
    assert not memory.devices[second].told
    memory.settle()
    assert memory.shards()[0].lost


def test_a_report_that_comes_late_is_no_older_copy(controller: Controller) -> None:
    memory = FakeMemory(controller, durable=True)
    region = memory.create(shards=1)
    [(host,)] = memory.groups()
    held = memory.devices[host].held[region.id, 0]
    for position in (100, 50, 110):
        memory.devices[host].held[region.id, 0] = {**held, "position": position, "vouched": position}
        memory.tick()
    memory.settle()
    assert not memory.shards()[0].lost
    assert (region.id, 0) in memory.devices[host].told


def test_positions_are_known_to_the_next_controller(controller: Controller, open_controller: Callable[[], Controller]) -> None:
    memory = FakeMemory(controller, durable=True)
    region = memory.create(shards=1)
    [(host,)] = memory.groups()
    memory.devices[host].held[region.id, 0] |= {"position": 105, "vouched": 105}
    memory.tick(2.0)
    before = memory.context.memory.state()
    memory.devices[host].held[region.id, 0] |= {"position": 106, "vouched": 106}
    memory.tick(2.0)
    assert memory.context.memory.state() is before, "no device reads everything again for that"
    put_back(memory, host, (region.id, 0), position=105, vouched=0)
    after = FakeMemory(open_controller(), ())
    after.devices = {host: memory.devices[host]}
    after.settle()
    assert after.shards()[0].lost


def test_memory_that_is_gone_is_missed_by_the_next_controller(
    controller: Controller, open_controller: Callable[[], Controller]
) -> None:
    memory = FakeMemory(controller, durable=True)
    memory.create(shards=1)
    [(host,)] = memory.groups()
    memory.tick(2.0)
    memory.devices[host].held = {}
    after = FakeMemory(open_controller(), ())
    after.devices = {host: memory.devices[host]}
    after.settle()
    assert after.shards()[0].lost


def test_an_older_state_file_costs_no_region(memory: FakeMemory, topology: Topology, caplog: pytest.LogCaptureFixture) -> None:
    """It knows neither a shard's last devices nor a region that came later. Devices keep both until the newest one is back."""
    region = memory.create(shards=1, devices=("h1",))
    older = memory.context.store.path.with_name("older.db")
    copy_state(memory.context.store.path, older)
    memory.controller.move_region("x", ["h4"])
    memory.settle()
    later = memory.create("y", shards=1, devices=("h2",))
    kept = {("h4", region.id), ("h2", later.id)}

    def having() -> set[tuple[str, int]]:
        return {(host, held) for host, device in memory.devices.items() for held, _ in device.held}

    assert having() == kept
    with Controller(topology, older) as controller:
        after = FakeMemory(controller, ())
        after.devices = memory.devices
        for _ in range(10):
            after.tick(1.0)
        assert having() == kept
        assert after.groups() == [("h1",)]
        assert not after.shards()[0].lost
    assert "is an older copy. Put the newest one back" in caplog.text
    memory.now = after.now
    memory.settle()
    assert having() == kept
    assert memory.groups() == [("h4",)]
    memory.controller.delete_region("x")
    memory.settle()
    assert having() == {("h2", later.id)}


def copy_state(path: Path, to: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
