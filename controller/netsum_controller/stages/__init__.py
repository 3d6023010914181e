"""The P4 program's stages as the controller sees them: one file a stage, of the same name as in ``p4src/stages``."""

from __future__ import annotations

from netsum_controller.stages.aggregator import AggregatorEntry
from netsum_controller.stages.entry import Entry, ForeignEntry
from netsum_controller.stages.forward import ForwardEntry
from netsum_controller.stages.job import JobEntry
from netsum_controller.stages.member import MemberEntry
from netsum_controller.stages.multicast import MulticastGroup
from netsum_controller.stages.query import Record
from netsum_controller.stages.rewrite import RewriteEntry

Item = Entry | ForeignEntry | MulticastGroup
"""Anything that is installed on a switch."""

TABLES: tuple[type[Entry], ...] = (AggregatorEntry, ForwardEntry, MemberEntry, RewriteEntry, JobEntry)
"""Every table that the controller fills."""

__all__ = [
    "TABLES",
    "AggregatorEntry",
    "Entry",
    "ForeignEntry",
    "ForwardEntry",
    "Item",
    "JobEntry",
    "MemberEntry",
    "MulticastGroup",
    "Record",
    "RewriteEntry",
]
