# SPDX-License-Identifier: MIT
"""Stages ``memory``, ``device`` and ``devices``: where virtual addresses are, and who may speak for memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from netsum_controller.entries.entry import TableEntry


@dataclass(frozen=True)
class MemoryStationEntry(TableEntry, table="my_station", action="set_virtual_mac", key=("address",)):
    """``address`` is the memory's virtual IP address: ARP for it is answered with ``mac``, and instructions are translated."""

    address: int
    mac: int


@dataclass(frozen=True)
class RegionEntry(TableEntry, table="region", action="set_region", key=("address", "prefix"), prefix={"address": "prefix"}):
    """Virtual addresses whose first ``prefix`` bits are those of ``address`` are region ``region``. An address is in shard
    ``(address >> granule_bits) & shard_mask``. The entry's direct counter counts the instructions."""

    address: int
    prefix: int
    region: int
    granule_bits: int
    shard_mask: int


@dataclass(frozen=True)
class ShardEntry(TableEntry, table="shard", action="set_shard", key=("region", "shard")):
    """A shard of a region in its ``epoch``: its primary is device ``device``, behind ``port``. All its devices are the replicas
    of multicast group ``group``; 0 if there is only the primary."""

    region: int
    shard: int
    epoch: int
    device: int
    port: int
    group: int


@dataclass(frozen=True)
class LostShardEntry(TableEntry, table="shard", action="shard_lost", key=("region", "shard")):
    """A shard that is gone: the switch answers every instruction with this ``status``."""

    region: int
    shard: int
    status: int


@dataclass(frozen=True)
class DeviceEntry(TableEntry, table="device", action="set_device", key=("device",)):
    """A copy for replica ``device`` gets this MAC and this IP address."""

    device: int
    mac: int
    ip: int


@dataclass(frozen=True)
class FromDeviceEntry(TableEntry, table="memory_source", action="from_device", key=("ingress_port",)):
    """A device is on ``ingress_port``: what it sends to clients comes from ``virtual_address`` and ``virtual_mac``."""

    ingress_port: int
    virtual_address: int
    virtual_mac: int


@dataclass(frozen=True)
class FromSwitchEntry(TableEntry, table="memory_source", action="from_switch", key=("ingress_port",)):
    """Another switch is on ``ingress_port``, which has looked at what it sends."""

    ingress_port: int


class RegionCounts(NamedTuple):
    """Instructions for a region that came to a switch since the entry was installed, and the bytes of their frames."""

    packets: int
    bytes: int
