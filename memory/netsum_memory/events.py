# SPDX-License-Identifier: MIT
"""The record of shards in a folder, in the order in which it happened."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from netsum_memory import message
from netsum_memory.checkpoint import Contents
from netsum_memory.message import MemoryMessage
from netsum_memory.region import Assignment

ENTRY: Final = struct.Struct("<cIHQ")
ADDED: Final = struct.Struct("<cIHQI")
"""Journal entries begin with these."""

Name = tuple[int, int]
"""A shard's: region and number."""


class Kept(NamedTuple):
    """A shard as it was kept; with no ``contents``, those are as they were."""

    name: Name
    assignment: Assignment
    position: int
    whole: bool
    behind: bool
    contents: Contents | None = None


class Added(NamedTuple):
    """The shard's log had an instruction more."""

    name: Name
    position: int
    epoch: int
    done: MemoryMessage


class Cut(NamedTuple):
    """The shard's log ended before this position."""

    name: Name
    position: int


class Marked(NamedTuple):
    """The shard had executed its log up to this position."""

    name: Name
    position: int


class Gone(NamedTuple):
    """The shard was given up."""

    name: Name


Event = Kept | Added | Cut | Marked | Gone


def name_of(state: Mapping[str, Any]) -> Name:
    return int(state["region"]), int(state["shard"])


def kept_of(state: Mapping[str, Any], contents: Contents | None = None) -> Kept:
    return Kept(name_of(state), Assignment.from_dict(state), int(state["position"]), state["whole"], state["behind"], contents)


def event_of(entry: bytes) -> Event:
    """An entry of the journal."""
    if entry[:1] == b"S":
        return kept_of(json.loads(entry[1:]))
    what, region, shard, position = ENTRY.unpack_from(entry)
    if what == b"X":
        return Gone((region, shard))
    if what == b"C":
        return Cut((region, shard), position)
    if what == b"M":
        return Marked((region, shard), position)
    epoch = ADDED.unpack_from(entry)[-1]
    return Added((region, shard), position, epoch, message.parse_record(memoryview(entry)[ADDED.size :]))
