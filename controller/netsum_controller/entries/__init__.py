"""The P4 program's stages as the controller sees them: one file a stage, of the same name as in ``p4src/stages``."""

from __future__ import annotations

from netsum_controller.entries.aggregator import AggregatorEntry, ElsewhereEntry
from netsum_controller.entries.entry import Entry, ForeignEntry
from netsum_controller.entries.forward import ForwardEntry, SenderEntry
from netsum_controller.entries.job import JobEntry
from netsum_controller.entries.member import MemberEntry, ParentEntry
from netsum_controller.entries.memory import (
    DeviceEntry,
    FromDeviceEntry,
    FromSwitchEntry,
    LostShardEntry,
    RegionEntry,
    ShardEntry,
    VirtualEntry,
)
from netsum_controller.entries.multicast import MulticastGroup
from netsum_controller.entries.query import Record
from netsum_controller.entries.rewrite import RewriteEntry, SwitchRewriteEntry
from netsum_controller.entries.uplink import UplinkEntry

Item = Entry | ForeignEntry | MulticastGroup
"""Anything that can be installed on a switch."""

TABLES: tuple[type[Entry], ...] = tuple(Entry.__subclasses__())
"""Every table that the controller fills; one with several actions has a kind of entry for each."""

__all__ = [
    "TABLES",
    "AggregatorEntry",
    "DeviceEntry",
    "ElsewhereEntry",
    "Entry",
    "ForeignEntry",
    "ForwardEntry",
    "FromDeviceEntry",
    "FromSwitchEntry",
    "Item",
    "JobEntry",
    "LostShardEntry",
    "MemberEntry",
    "MulticastGroup",
    "ParentEntry",
    "Record",
    "RegionEntry",
    "RewriteEntry",
    "SenderEntry",
    "ShardEntry",
    "SwitchRewriteEntry",
    "UplinkEntry",
    "VirtualEntry",
]
