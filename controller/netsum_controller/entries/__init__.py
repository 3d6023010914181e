# SPDX-License-Identifier: MIT
"""The P4 program's tables as the controller sees them: a class for each table and action, a function for each PacketOut."""

from __future__ import annotations

from netsum_controller.entries.aggregation import (
    ForwardEntry,
    GroupRewriteEntry,
    JobEntry,
    KeyedMemberEntry,
    KeyedRewriteEntry,
    MemberEntry,
    MulticastGroup,
    MulticastJobEntry,
    MyStationEntry,
    ParentEntry,
    RewriteEntry,
    SourceGuardEntry,
    SwitchRewriteEntry,
    TransitEntry,
    UplinkEntry,
)
from netsum_controller.entries.entry import ForeignEntry, TableEntry
from netsum_controller.entries.memory import (
    DeviceEntry,
    FromDeviceEntry,
    FromSwitchEntry,
    LostShardEntry,
    MemoryStationEntry,
    RegionEntry,
    ShardEntry,
)
from netsum_controller.entries.packet_out import BlockRecord

Item = TableEntry | ForeignEntry | MulticastGroup
"""Anything that can be installed on a switch."""

AnyMemberEntry = MemberEntry | KeyedMemberEntry

TABLES: tuple[type[TableEntry], ...] = (*TableEntry.__subclasses__(), MulticastJobEntry)
"""Every table that the controller fills; one with several actions has a kind of entry for each."""

__all__ = [
    "TABLES",
    "AnyMemberEntry",
    "BlockRecord",
    "DeviceEntry",
    "ForeignEntry",
    "ForwardEntry",
    "FromDeviceEntry",
    "FromSwitchEntry",
    "GroupRewriteEntry",
    "Item",
    "JobEntry",
    "KeyedMemberEntry",
    "KeyedRewriteEntry",
    "LostShardEntry",
    "MemberEntry",
    "MemoryStationEntry",
    "MulticastGroup",
    "MulticastJobEntry",
    "MyStationEntry",
    "ParentEntry",
    "RegionEntry",
    "RewriteEntry",
    "ShardEntry",
    "SourceGuardEntry",
    "SwitchRewriteEntry",
    "TableEntry",
    "TransitEntry",
    "UplinkEntry",
]
