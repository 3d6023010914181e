"""Stages ``memory``, ``device`` and ``devices``: where virtual addresses are, and who may speak for memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from netsum_controller.stages.entry import Entry


@dataclass(frozen=True)
class VirtualEntry(Entry):
    """``address`` is the memory's virtual IP address: ARP for it is answered with ``mac``, and instructions are translated."""

    TABLE: ClassVar = "aggregator"
    ACTION: ClassVar = "virtual_here"
    KEY: ClassVar = ("address",)

    address: int
    mac: int


@dataclass(frozen=True)
class RegionEntry(Entry):
    """Virtual addresses whose first ``prefix`` bits are those of ``address`` are region ``region``. An address is in shard
    ``(address >> granule_bits) & shard_mask``. The entry's direct counter counts the instructions."""

    TABLE: ClassVar = "region"
    ACTION: ClassVar = "region_here"
    KEY: ClassVar = ("address", "prefix")
    PREFIX: ClassVar[Mapping[str, str]] = {"address": "prefix"}

    address: int
    prefix: int
    region: int
    granule_bits: int
    shard_mask: int


@dataclass(frozen=True)
class ShardEntry(Entry):
    """A shard of a region in its ``epoch``: its primary is device ``device``, behind ``port``. All its devices are the replicas
    of multicast group ``group``; 0 if there is only the primary."""

    TABLE: ClassVar = "shard"
    ACTION: ClassVar = "shard_here"
    KEY: ClassVar = ("region", "shard")

    region: int
    shard: int
    epoch: int
    device: int
    port: int
    group: int


@dataclass(frozen=True)
class LostShardEntry(Entry):
    """A shard that is gone: the switch answers every instruction with this ``status``."""

    TABLE: ClassVar = "shard"
    ACTION: ClassVar = "shard_lost"
    KEY: ClassVar = ("region", "shard")

    region: int
    shard: int
    status: int


@dataclass(frozen=True)
class DeviceEntry(Entry):
    """A copy for replica ``device`` gets this MAC and this IP address."""

    TABLE: ClassVar = "device"
    ACTION: ClassVar = "device_here"
    KEY: ClassVar = ("device",)

    device: int
    mac: int
    ip: int


@dataclass(frozen=True)
class FromDeviceEntry(Entry):
    """A device is on ``ingress_port``: what it sends to clients comes from ``virtual_address`` and ``virtual_mac``."""

    TABLE: ClassVar = "comes_from"
    ACTION: ClassVar = "from_device"
    KEY: ClassVar = ("ingress_port",)

    ingress_port: int
    virtual_address: int
    virtual_mac: int


@dataclass(frozen=True)
class FromSwitchEntry(Entry):
    """Another switch is on ``ingress_port``, which has looked at what it sends."""

    TABLE: ClassVar = "comes_from"
    ACTION: ClassVar = "from_switch"
    KEY: ClassVar = ("ingress_port",)

    ingress_port: int


class RegionCounts(NamedTuple):
    """Instructions for a region that came to a switch since the entry was installed, and the bytes of their frames."""

    packets: int
    bytes: int
