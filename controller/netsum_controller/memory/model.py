"""Regions, their shards, and the devices that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from netsum_controller.memory.failover import ReplicaGroup

MAX_DEVICES = 1023
"""Numbers of devices are 1 to this: the switch has a table of 1,024."""

MAX_SHARDS = 16384
"""Of all regions together: what the switch's table holds."""

MAX_REGIONS = 1024

FIRST_GROUP = 1024
"""Multicast groups from here on are memory's, below :data:`netsum.wire.schema.FLOOD_GROUP`."""
MAX_GROUPS = 2048


class RegionState(StrEnum):
    """``CREATING``: its devices are making it, and no switch knows it; ``OPENING``: it is being installed on the switches."""

    CREATING = "creating"
    OPENING = "opening"
    READY = "ready"


@dataclass(frozen=True)
class Shard:
    """A shard and its group of devices in one epoch. With a ``target`` it is being moved to these hosts, the primary first. If it
    is ``lost``, the group is the last one that it had."""

    number: int
    group: ReplicaGroup
    target: tuple[str, ...] | None = None
    lost: bool = False

    @property
    def epoch(self) -> int:
        return self.group.epoch

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that hold it, the primary first; none if it is lost."""
        return () if self.lost else tuple(member.host for member in self.group.members)


class Placed(NamedTuple):
    """A shard as its devices know it, and what it becomes as soon as the switches have it."""

    now: Shard
    next: Shard | None = None

    @property
    def installed(self) -> Shard:
        """The shard as it should be on the switches."""
        return self.next or self.now


@dataclass(frozen=True)
class Region:
    """Virtual addresses ``base`` to ``base + size - 1``; both are powers of two, or multiples of one. Granule by granule they are
    dealt out to shards. Only the call that created it knows its tokens."""

    name: str
    id: int
    base: int
    size: int
    granule: int
    shards: int
    replicas: int
    devices: tuple[str, ...]
    """Hosts that may hold it, without being asked again."""
    kind: str
    dtype: str | None
    shape: tuple[int, ...] | None
    read_key: int = field(repr=False)
    write_key: int = field(repr=False)
    device_key: int = field(repr=False)
    token_sha256: str = field(repr=False)
    read_token_sha256: str = field(repr=False)
    state: RegionState = RegionState.CREATING
    options: Mapping[str, Any] = field(default_factory=dict)
    trouble: str = ""
    """Why it cannot be made."""
    token: str | None = field(default=None, repr=False)
    read_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Device:
    """A host's memory device. ``number`` is what switches call it; ``alive`` is what the serving controller found out last;
    ``durable`` says whether its memory survives it."""

    host: str
    number: int
    incarnation: str = ""
    durable: bool = False
    alive: bool = False
    free: int | None = None


Devices = tuple[int, ...]
"""Numbers of devices that get the same instructions, ascending."""


@dataclass(frozen=True)
class MemoryState:
    """Everything that the state file knows of memory; ``groups`` are the multicast groups' numbers."""

    regions: Mapping[str, Region] = field(default_factory=dict)
    shards: Mapping[str, Sequence[Placed]] = field(default_factory=dict)
    devices: Mapping[str, Device] = field(default_factory=dict)
    groups: Mapping[Devices, int] = field(default_factory=dict)

    def numbers(self, shard: Shard) -> Devices:
        """The devices of a shard's group."""
        return tuple(sorted(self.devices[host].number for host in shard.hosts))

    def groups_in_use(self, *, before: bool = False) -> set[Devices]:
        """The multicast groups that the switches should have; with ``before``, also those that they still have."""
        placed = [each for shards in self.shards.values() for each in shards]
        shards = [each.installed for each in placed] + ([each.now for each in placed] if before else [])
        return {self.numbers(shard) for shard in shards if len(shard.hosts) > 1}
