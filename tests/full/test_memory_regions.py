# SPDX-License-Identifier: MIT
"""Regions of memory on every fabric, on both switches: what a client has been told was done is done once, whatever moves or dies
meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

import numpy as np
import pytest
from netsum.memory.array import MemoryArray
from netsum_controller.config.topologies import star, tree
from netsum_controller.memory.model import Region, RegionSpec
from netsum_testbed.fabric import Fabric

from tests.full.conftest import make_fabric
from tests.threads import PATIENCE, until

ROOT, FULL, BMV2 = pytest.mark.root, pytest.mark.full, pytest.mark.bmv2
FABRICS = [
    "rootless-embedded",
    pytest.param("rootless-embedded-tree", marks=FULL),
    pytest.param("namespace-embedded", marks=(ROOT, FULL)),
    pytest.param("namespace-bmv2", marks=(ROOT, BMV2, FULL)),
    pytest.param("namespace-bmv2-tree", marks=(ROOT, BMV2, FULL)),
    pytest.param("mininet-embedded", marks=(ROOT, FULL)),
    pytest.param("mininet-bmv2", marks=(ROOT, BMV2, FULL)),
]
DEVICES = ("h1", "h2", "h3")
CLIENT = "h4"
LENGTH = 20_000
"""int64: twenty granules, on all devices."""
_numbers = count(1)


@pytest.fixture(params=FABRICS)
def fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    topology = tree(2, 2) if request.param.endswith("-tree") else star(4)
    with make_fabric(request.param.removesuffix("-tree"), topology) as up:
        yield up


class Writer:
    """Adds 1 to all elements, and takes a ticket, again and again, in a thread of its own."""

    def __init__(self, array: MemoryArray) -> None:
        self._array = array
        self.rounds = 0
        self._end = False

    def run(self) -> list[int]:
        """The tickets."""
        tickets = []
        ones = np.ones(LENGTH - 1, np.int64)
        while not self._end:
            self._array.add(slice(0, LENGTH - 1), ones, timeout=PATIENCE)
            tickets.append(int(self._array.fetch_add(LENGTH - 1, 1, timeout=PATIENCE)))
            self.rounds += 1
        return tickets

    def go_on(self, rounds: int = 2) -> None:
        """Return when it has done some more rounds."""
        target = self.rounds + rounds
        until(lambda: self.rounds >= target or self._end)

    def end(self) -> None:
        self._end = True


@contextmanager
def written(fabric: Fabric, **values: object) -> Iterator[tuple[Writer, Region]]:
    """A region that is written all the time; at the end it has exactly what was done."""
    region = fabric.memory.create(RegionSpec.of(name=f"r{next(_numbers)}", dtype="int64", shape=(LENGTH,), **values))
    with fabric.memory.open(region.name, CLIENT) as array, ThreadPoolExecutor(1) as pool:
        writer = Writer(array)
        running: Future[list[int]] = pool.submit(writer.run)
        running.add_done_callback(lambda _: writer.end())
        try:
            writer.go_on()
            yield writer, region
            writer.go_on()
        finally:
            writer.end()
            tickets = running.result(PATIENCE)
        assert tickets == list(range(writer.rounds)), "each ticket once, in order"
        found = array.read(slice(0, LENGTH - 1), timeout=PATIENCE)
        assert (found == writer.rounds).all(), "nothing lost, nothing twice"


def move(fabric: Fabric, region: Region, to: list[str], away_from: str | None = None) -> None:
    assert fabric.controller.move_region(region.name, to, away_from=away_from)
    until(lambda: not fabric.controller.moving(region.name))


def holders(fabric: Fabric, region: Region) -> set[str]:
    placed = fabric.controller.context.memory.state().shards[region.name]
    return {host for each in placed for host in each.now.hosts}


def is_whole(fabric: Fabric, region: Region) -> bool:
    placed = fabric.controller.context.memory.state().shards[region.name]
    groups = [each.now.group.members for each in placed]
    return all(len(group) == region.replicas and not any(member.joining for member in group) for group in groups)


def test_a_region_moves_while_it_is_written(fabric: Fabric) -> None:
    fabric.memory.start(DEVICES)
    with written(fabric, devices=("h1", "h2")) as (writer, region):
        move(fabric, region, ["h3"], away_from="h1")
        assert holders(fabric, region) == {"h2", "h3"}
        writer.go_on()
        move(fabric, region, ["h1"])
        assert holders(fabric, region) == {"h1"}


@pytest.mark.full
def test_devices_die_and_come_back_while_it_is_written(fabric: Fabric) -> None:
    fabric.memory.start(DEVICES)
    with written(fabric, replicas=2) as (writer, region):
        for host in ("h1", "h2"):
            fabric.memory.devices[host].kill()
            until(lambda host=host: host not in holders(fabric, region))  # type: ignore[misc]
            until(lambda: is_whole(fabric, region))
            writer.go_on()
            fabric.memory.devices[host].start()
            fabric.memory.wait_reported([host])


@pytest.mark.full
def test_a_device_with_files_comes_back_with_them(fabric: Fabric) -> None:
    fabric.memory.start(("h1", "h2"), folders=True)
    with written(fabric) as (writer, _):
        for host in ("h1", "h2"):
            fabric.memory.devices[host].kill()
            fabric.memory.devices[host].start()
            writer.go_on()


@pytest.mark.full
def test_the_switch_restarts_while_it_is_written(fabric: Fabric) -> None:
    fabric.memory.start(("h1", "h2"))
    with written(fabric) as (writer, _):
        for name in fabric.topology.switches:
            fabric.kill_switch(name)
            fabric.start_switch(name)
            writer.go_on()
