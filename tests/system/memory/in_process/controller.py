# SPDX-License-Identifier: MIT
"""The controller without a server and without P4Runtime: it receives devices' reports, decides and gives orders by the real one's
functions, and writes its decisions into the switch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from netsum.wire.memory import MEMORY_PORT
from netsum_controller.config.topology import Topology
from netsum_controller.memory.devices import Beats, DeviceReport, orders
from netsum_controller.memory.failover import Standings, advance, is_made
from netsum_controller.memory.model import Device, MemoryState, Placed, Region, RegionState
from netsum_controller.memory.placement import deal
from netsum_memory.message import Address

from tests.system.memory.in_process.network import InProcessNetwork, Switch, Way
from tests.system.memory.plan import RegionPlan
from tests.system.memory.round import has_all

PERIOD: Final = 0.05
LEASE: Final = 1.0
"""Seconds; short, so that a round need not last long."""


def make_region(number: int, base: int, plan: RegionPlan) -> Region:
    """The region of a plan, as the controller has it."""
    planned = ("name", "size", "granule", "shards", "replicas", "kind", "options", "dtype")
    secrets = {"token_sha256": "", "read_token_sha256": "", "read_key": 1, "write_key": 2, "device_key": 3}
    given: dict[str, Any] = {name: getattr(plan, name) for name in planned} | secrets
    return Region(id=number, base=base, devices=plan.hosts, shape=None, **given)


class Controller:
    """Attributes:
    on: while it is off, it receives nothing and does nothing.
    """

    def __init__(self, topology: Topology, hosts: tuple[str, ...], switch: Switch, network: InProcessNetwork) -> None:
        self._topology, self._switch, self._network = topology, switch, network
        self._beats = self._new_beats()
        self._devices = {host: Device(host, number) for number, host in enumerate(hosts, 1)}
        self._regions: dict[str, Region] = {}
        self._shards: dict[str, list[Placed]] = {}
        self.on = True

    def _new_beats(self) -> Beats:
        return Beats(clock=lambda: self._network.now, lease=LEASE)

    @property
    def _state(self) -> MemoryState:
        return MemoryState(self._regions, self._shards, self._devices)

    def create(self, region: Region) -> None:
        """Begin to make a region, once its devices have reported."""
        incarnations = {host: self._devices[host].incarnation for host in region.devices}
        self._regions[region.name] = region
        self._shards[region.name] = [Placed(shard) for shard in deal(region.shards, incarnations, region.replicas)]

    def delete(self, name: str) -> None:
        """Forget a region; devices give up what they have of it."""
        region = self._regions.pop(name)
        for shard in self._shards.pop(name):
            self._switch.ways.pop((region.id, shard.now.number), None)

    def is_lost(self, name: str) -> bool:
        """True if all of a region is lost, and the switch says so."""
        region = self._regions[name]
        return all(placed.now.lost and self._is_installed(region, placed) for placed in self._shards[name])

    def move(self, name: str, hosts: tuple[str, ...]) -> None:
        """Have a region's shards moved to these hosts."""
        region = self._regions[name]
        incarnations = {host: self._devices[host].incarnation for host in hosts}
        dealt = deal(region.shards, incarnations, min(region.replicas, len(hosts)))
        self._shards[name] = [
            Placed(replace(placed.now, target=wanted.hosts), placed.next and replace(placed.next, target=wanted.hosts))
            for placed, wanted in zip(self._shards[name], dealt, strict=True)
        ]

    def receive(self, host: str, said: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take a device's report; None while the controller is off."""
        if not self.on:
            return None
        report = DeviceReport.of(said)
        self._beats.receive(host, report)
        self._devices[host] = replace(self._devices[host], incarnation=report.incarnation, alive=True)
        return orders(self._topology, self._state, host, report, LEASE)

    def restart(self) -> None:
        """Start again from the state file."""
        self._beats = self._new_beats()
        self.on = True

    def tend(self) -> None:
        """Take every shard's next step, and schedule the next call."""
        self._network.later(PERIOD, self.tend)
        if not self.on:
            return
        standings = self._standings()
        self._decide(standings)
        if self._switch.on:
            self._open(standings)
            self._install()

    def _standings(self) -> Standings:
        return self._beats.standings(self._devices)

    def _decide(self, standings: Standings) -> None:
        loads: Counter[str] = Counter(host for shards in self._shards.values() for placed in shards for host in placed.now.hosts)
        for name, shards in self._shards.items():
            for number, placed in enumerate(shards):
                if placed.next is None:
                    after = advance(self._regions[name], placed.now, standings, loads)
                    same = after.epoch == placed.now.epoch
                    shards[number] = Placed(after) if same else Placed(placed.now, after)

    def _open(self, standings: Standings) -> None:
        for name, region in self._regions.items():
            made = all(is_made(region, placed.now, standings) for placed in self._shards[name])
            if region.state is RegionState.CREATING and made:
                self._regions[name] = replace(region, state=RegionState.READY)

    def _install(self) -> None:
        """The switch first, then the devices may be told."""
        for name, region in self._regions.items():
            if region.state is RegionState.CREATING:
                continue
            shards = self._shards[name]
            for number, placed in enumerate(shards):
                shard = placed.installed
                hosts = () if shard.lost else shard.hosts
                self._switch.ways[region.id, number] = Way(shard.epoch, [self._address(host) for host in hosts])
                shards[number] = Placed(shard)

    def _address(self, host: str) -> Address:
        return self._topology.hosts[host].ip, MEMORY_PORT

    def holders(self, name: str) -> list[tuple[str, ...]]:
        """The hosts that hold each of a region's shards."""
        return [() if placed.now.lost else placed.now.hosts for placed in self._shards[name]]

    def whole(self) -> bool:
        """True if every shard has all its devices with all contents, and the switch knows."""
        if not self.on or not self._switch.on:
            return False
        standings = self._standings()
        alive = sum(bool(standing.alive) for standing in standings.values())
        return alive == len(self._devices) and all(map(self.is_whole, self._regions))

    def is_whole(self, name: str) -> bool:
        """The same of one region."""
        region = self._regions[name]
        return region.state is RegionState.READY and all(
            has_all(placed.now, region.replicas) and self._is_installed(region, placed) for placed in self._shards[name]
        )

    def _is_installed(self, region: Region, placed: Placed) -> bool:
        way = self._switch.ways.get((region.id, placed.now.number))
        return placed.next is None and way is not None and way.epoch == placed.now.epoch
