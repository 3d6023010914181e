# SPDX-License-Identifier: MIT
"""Regions, their shards, and the devices that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from netsum_controller.config.job_spec import Token
from netsum_controller.config.topology import Name
from netsum_controller.config.yaml_files import Strict
from netsum_controller.errors import InputError

LEAST_SIZE = 64 * 1024


LEAST_GRANULE = 8192


END_OF_ADDRESSES = 1 << 63


def least_power(number: int) -> int:
    """The least power of two that is not below ``number``."""
    return 1 << max(0, number - 1).bit_length()


class Member(NamedTuple):
    """A device in a group. ``incarnation`` is its memory's: another one means that the contents are gone."""

    host: str
    incarnation: str
    joining: bool = False


@dataclass(frozen=True)
class ReplicaGroup:
    """One epoch of a shard; the first member is the primary."""

    epoch: int
    members: tuple[Member, ...]

    @property
    def primary(self) -> Member:
        return self.members[0]


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
    """The reason why it cannot be made."""
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


# A region of memory as a user asks for it.


KINDS = ("array", "parameters", "table")
DTYPES = ("int32", "int64", "uint32", "uint64", "float32", "float64")


class RegionSpec(Strict):
    """A region to create. ``size`` or ``shape`` (of ``dtype``) says how large, which is rounded up to a power of two. Without
    ``devices``, all that are there may hold it; without ``shards`` there are some for each device. ``options`` are the kind's.
    Without a ``token`` a random one is made."""

    name: Name
    size: int = Field(default=0, ge=0, lt=END_OF_ADDRESSES)
    devices: Annotated[tuple[Name, ...] | None, Field(strict=False, min_length=1)] = None
    replicas: int = Field(default=1, ge=1, le=16)
    granule: int = Field(default=LEAST_GRANULE, ge=LEAST_GRANULE)
    shards: int | None = Field(default=None, ge=1, le=MAX_SHARDS)
    kind: Literal["array", "parameters", "table"] = "array"
    dtype: Literal["int32", "int64", "uint32", "uint64", "float32", "float64"] | None = None
    shape: Annotated[tuple[Annotated[int, Field(ge=0)], ...] | None, Field(strict=False)] = None
    options: dict[str, Any] = Field(default_factory=dict)
    token: Token | None = Field(default=None, repr=False)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.shape is not None and self.dtype is None:
            raise ValueError("a shape needs a dtype")
        if not self.size and self.shape is None:
            raise ValueError("give a size, or a dtype and a shape")
        for name in ("granule", "shards"):
            value = getattr(self, name)
            if value is not None and value != least_power(value):
                raise ValueError(f"{name} must be a power of two, not {value}")
        if self.size and self.size < self._array_bytes:
            raise ValueError(f"an array of shape {self.shape} has {self._array_bytes} bytes, more than size {self.size}")
        if (self.shards or 1) * self.granule > self.bytes:
            raise ValueError(f"{self.shards or 1} shards in granules of {self.granule} bytes are more than {self.bytes}")
        if self.devices is not None and len(set(self.devices)) != len(self.devices):
            raise ValueError("a device is named twice")
        return self

    @property
    def _array_bytes(self) -> int:
        return 0 if self.shape is None else prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def bytes(self) -> int:
        """The size of the region: a power of two."""
        return least_power(max(self.size, self._array_bytes, LEAST_SIZE))

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Like the constructor; :class:`InputError` has a sentence for each thing that is wrong."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise InputError(*map(_sentence, error.errors())) from None


def _sentence(error: Any) -> str:
    where = ".".join(map(str, error["loc"]))
    text = str(error["msg"]).removeprefix("Value error, ")
    return f"{where}: {text}" if where else text
