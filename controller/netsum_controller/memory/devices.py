# SPDX-License-Identifier: MIT
"""Memory devices' reports, and the orders that answer them: ``POST /v1/memory/devices/HOST``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from netsum.wire.memory import MEMORY_PORT
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from netsum_controller.config.topology import Topology
from netsum_controller.errors import InputError
from netsum_controller.memory.failover import Report, ShardKey, Standing, has_lost
from netsum_controller.memory.model import Member, MemoryState, Region, RegionState, Shard
from netsum_controller.memory.placement import virtual_address

INTERVAL = 0.5
"""Seconds between two reports of a device."""

LEASE = 3.0


class _Said(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class ShardReport(_Said):
    region: int = Field(ge=0, lt=1 << 32)
    shard: int = Field(ge=0, lt=1 << 16)
    epoch: int = Field(ge=0, lt=1 << 32)
    position: int = Field(ge=0)
    ready: bool
    vouched: int = Field(default=0, ge=0)


class Refusal(_Said):
    region: int
    shard: int
    why: str = Field(max_length=400)


class DeviceReport(_Said):
    """A device's report: that it is alive, and what it holds."""

    incarnation: str = Field(min_length=1, max_length=64)
    durable: bool = False
    free: int | None = Field(default=None, ge=0)
    shards: tuple[ShardReport, ...] = Field(default=(), strict=False)
    refused: tuple[Refusal, ...] = Field(default=(), strict=False)

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> DeviceReport:
        """Raises :class:`InputError`, which names the first thing that is wrong."""
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"{where or 'the report'}: {first['msg'].lower()}") from None


@dataclass
class _Heartbeat:
    at: float
    report: DeviceReport
    held: Mapping[ShardKey, Report]
    lost: frozenset[ShardKey]
    """Shards that this incarnation has had in any report, or further than in this one."""
    before: frozenset[ShardKey]
    """The same of the report before."""


def _but_positions(heartbeat: _Heartbeat) -> tuple[object, ...]:
    """A report's relevant parts without positions, which change with every write."""
    held = {key: (report.epoch, report.ready) for key, report in heartbeat.held.items()}
    return heartbeat.report.incarnation, heartbeat.report.refused, held, heartbeat.lost, heartbeat.before


@dataclass
class Beats:
    """The devices that have reported to this process. ``wake`` is set whenever one says something new."""

    clock: Callable[[], float] = time.monotonic
    began: float | None = None
    """The time when this process began to serve, and so to receive reports."""
    lease: float = LEASE
    """Seconds without a report after which a device counts as dead."""
    wake: threading.Event = field(default_factory=threading.Event)
    news: int = 0
    """Counts reports with news."""
    vouched: dict[str, dict[ShardKey, Report]] = field(default_factory=dict)
    """By host, the furthest report of each shard that the device's present incarnation has ever had."""
    unwritten: set[str] = field(default_factory=set)
    """Hosts of which that has changed since it was last written down."""
    written: float = float("-inf")
    """The time of that."""
    settled: tuple[MemoryState, int, tuple[bool | None, ...]] | None = None
    """Devices for which there was nothing to do."""
    _heartbeats: dict[str, _Heartbeat] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def receive(self, host: str, report: DeviceReport) -> None:
        now = self.clock()
        held = {
            (each.region, each.shard): Report(report.incarnation, each.epoch, each.position, each.ready, each.vouched)
            for each in report.shards
        }
        with self._guard:
            last = self._heartbeats.get(host)
            lost = self._lost(host, report.incarnation, held)
            before = last.lost if last is not None else frozenset[ShardKey]()
            heartbeat = self._heartbeats[host] = _Heartbeat(now, report, held, lost, before & lost)
        if last is None or _but_positions(last) != _but_positions(heartbeat):
            self.news += 1
            self.wake.set()

    def _lost(self, host: str, incarnation: str, held: Mapping[ShardKey, Report]) -> frozenset[ShardKey]:
        """Take a device's report; returns of which shards it has lost something."""
        known = self.vouched.setdefault(host, {})
        if any(report.incarnation != incarnation for report in known.values()):
            known.clear()
        lost = frozenset(key for key, report in known.items() if key not in held or has_lost(report, held[key]))
        for key in held.keys() - lost:
            before, epoch, vouched = known.get(key), held[key].epoch, held[key].vouched
            if before is not None and before.epoch == epoch:
                vouched = max(vouched, before.vouched)
            after = known[key] = Report(incarnation, epoch, vouched=vouched)
            if after != before:
                self.unwritten.add(host)
        return lost

    def to_write(self) -> dict[str, dict[ShardKey, Report]]:
        """The part of :attr:`vouched` that is to be written down now."""
        with self._guard:
            hosts, self.unwritten = self.unwritten, set()
            return {host: dict(self.vouched[host]) for host in hosts}

    def doubted(self, host: str) -> frozenset[ShardKey]:
        """Shards of which a device's last report has less than an earlier one."""
        with self._guard:
            return self._heartbeats[host].lost

    def newest(self, key: ShardKey) -> int:
        """The latest epoch of a shard that any device has been told of."""
        with self._guard:
            return max((known[key].epoch for known in self.vouched.values() if key in known), default=0)

    def standings(self, hosts: Iterable[str]) -> dict[str, Standing]:
        """The state of these devices. A silent one counts as dead a lease after this process began."""
        now = self.clock()
        with self._guard:
            if self.began is None:
                self.began = now
            heartbeats = {host: self._heartbeats.get(host) for host in hosts}
        found = {}
        for host, last in heartbeats.items():
            if last is None:
                found[host] = Standing(False if now - self.began >= self.lease else None)
            else:
                alive = now - last.at < self.lease
                found[host] = Standing(alive, last.report.incarnation, last.held, last.before, last.lost)
        return found

    def refusals(self) -> dict[ShardKey, str]:
        """Shards that some device cannot hold, and why."""
        with self._guard:
            reports = {host: last.report for host, last in self._heartbeats.items()}
        return {
            (refusal.region, refusal.shard): f"device {host}: {refusal.why}"
            for host, report in reports.items()
            for refusal in report.refused
        }


def orders(
    topology: Topology,
    state: MemoryState,
    host: str,
    report: DeviceReport,
    lease: float,
    keep: Collection[ShardKey] = (),
) -> dict[str, Any]:
    """The orders for a device. It learns of a shard's next epoch when all switches have it. It is not told to hold a shard
    that it should have and does not report: it would replace lost memory by zeros. What it is to ``keep`` it neither serves
    anew nor gives up."""
    virtual = virtual_address(topology)
    held = {(each.region, each.shard) for each in report.shards}
    shards = []
    for region in state.regions.values():
        for shard in (placed.now for placed in state.shards[region.name]):
            me = next((member for member in shard.group.members if member.host == host), None)
            if me is None or shard.lost or me.incarnation != report.incarnation or (region.id, shard.number) in keep:
                continue
            orders = _shard_orders(topology, region, shard, me)
            if orders["state"] != "member" or (region.id, shard.number) in held:
                shards.append(orders)
    own = {"virtual_ip": virtual.ip, "mac": virtual.mac, "port": MEMORY_PORT}
    return {"interval": INTERVAL, "lease": lease, **own, "shards": shards, "keep": sorted(keep)}


def _shard_orders(topology: Topology, region: Region, shard: Shard, me: Member) -> dict[str, Any]:
    state = "new" if region.state is RegionState.CREATING else "joining" if me.joining else "member"
    return {
        "region": region.id,
        **{name: getattr(region, name) for name in ("name", "base", "size", "granule", "shards", "kind", "dtype")},
        "options": dict(region.options),
        "keys": {"read": region.read_key, "write": region.write_key, "device": region.device_key},
        "shard": shard.number,
        "epoch": shard.epoch,
        "state": state,
        "lost": shard.lost,
        "group": [_peer(topology, member) for member in shard.group.members if member.host in topology.hosts],
    }


def _peer(topology: Topology, member: Member) -> dict[str, Any]:
    place = topology.hosts[member.host]
    return {
        "host": member.host,
        "ip": place.ip,
        "port": MEMORY_PORT,
        "mac": place.mac,
        "incarnation": member.incarnation,
        "joining": member.joining,
    }
