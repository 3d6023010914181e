# SPDX-License-Identifier: MIT
"""Memory devices that are made by hand: they say what they hold, and hold what they are told. Time passes when a test says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netsum_controller.controller import Controller
from netsum_controller.memory.devices import DeviceReport
from netsum_controller.memory.model import Placed, Region, RegionSpec, Shard
from netsum_controller.regions.lifecycle import create_region
from netsum_controller.regions.reconciler import reconcile_regions, take_heartbeat


class FakeDevice:
    """``held`` is its memory: what it says of each shard, by (region id, shard)."""

    def __init__(self, host: str, *, durable: bool = False) -> None:
        self.host, self.durable = host, durable
        self.lives = 1
        self.up = True
        self.slow = False
        """Whether it is in no hurry to catch up."""
        self.held: dict[tuple[int, int], dict[str, Any]] = {}
        self.told: dict[tuple[int, int], dict[str, Any]] = {}
        self.refuses: str | None = None
        self.others: Mapping[str, FakeDevice] = {host: self}

    @property
    def incarnation(self) -> str:
        return self.host if self.durable else f"{self.host} life {self.lives}"

    def restart(self) -> None:
        """It comes back; what was in RAM is gone."""
        self.up = True
        if not self.durable:
            self.lives += 1
            self.held = {}

    def report(self) -> dict[str, Any]:
        refused = [{"region": key[0], "shard": key[1], "why": self.refuses} for key in self.told if self.refuses]
        shards = [{"region": region, "shard": shard, **said} for (region, shard), said in self.held.items()]
        return {"incarnation": self.incarnation, "durable": self.durable, "shards": shards, "refused": refused}

    def obey(self, answer: dict[str, Any]) -> None:
        """Hold exactly what the controller says."""
        self.told = {(each["region"], each["shard"]): each for each in answer["shards"]}
        keep = set(map(tuple, answer["keep"]))
        held = {key: said for key, said in self.held.items() if key in keep}
        for key, order in self.told.items():
            own = next(member for member in order["group"] if member["host"] == self.host)
            assert own["incarnation"] == self.incarnation
            assert key not in keep
            before = self.held.get(key)
            assert before is not None or order["state"] != "member", "it would make zeros of what it has lost"
            if self.refuses:
                continue
            position = 0 if before is None else before["position"]
            counted = before is not None and before["ready"] and before["epoch"] == order["epoch"]
            whole = counted or not own["joining"]
            if not whole and not self.slow:
                there = self.others[order["group"][0]["host"]]
                if there.up and key in there.held:
                    position, whole = there.held[key]["position"], True
            vouched = position if whole else 0
            held[key] = {"epoch": order["epoch"], "position": position, "ready": whole, "vouched": vouched}
        self.held = held


class FakeMemory:
    """A controller and its devices."""

    def __init__(self, controller: Controller, hosts: Sequence[str] = ("h1", "h2", "h4"), *, durable: bool = False) -> None:
        self.controller, self.context = controller, controller.context
        self.now = 1000.0
        self.devices = {host: FakeDevice(host, durable=durable) for host in hosts}
        for device in self.devices.values():
            device.others = self.devices
        self.context.beats.clock = lambda: self.now
        self.tick()

    def tick(self, seconds: float = 0.5) -> None:
        """Time passes; every device that is up reports, and hears; then the controller tends."""
        self.now += seconds
        for device in self.devices.values():
            if device.up:
                self.beat(device.host)
        reconcile_regions(self.context)

    def beat(self, host: str) -> None:
        device = self.devices[host]
        report = DeviceReport.of(device.report())
        device.obey(take_heartbeat(self.context, host, report))

    def settle(self, ticks: int = 20) -> None:
        """Until nothing changes any more. Devices say today what they did yesterday, so one quiet tick means nothing."""
        quiet = 0
        for _ in range(ticks):
            before = self.context.memory.state()
            self.tick()
            quiet = quiet + 1 if self.context.memory.state() is before else 0
            if quiet == 3:
                return
        raise AssertionError(f"still changing after {ticks} ticks")

    def create(self, name: str = "x", **values: Any) -> Region:
        spec = RegionSpec.of(name=name, **({"size": 1 << 20} | values))
        return create_region(self.context, spec, pause=self.tick)

    def placed(self, name: str = "x") -> Sequence[Placed]:
        return self.context.memory.state().shards[name]

    def shards(self, name: str = "x") -> list[Shard]:
        """As its devices know them."""
        return [placed.now for placed in self.placed(name)]

    def groups(self, name: str = "x") -> list[tuple[str, ...]]:
        return [shard.hosts for shard in self.shards(name)]
