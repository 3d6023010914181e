# SPDX-License-Identifier: MIT
"""The controller's description of the regions whose shards it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

from netsum.wire.memory import ADDRESS_STEP, MEMORY_PORT

from netsum_memory.message import Address


@dataclass(frozen=True)
class Peer:
    """A device of a shard's group."""

    host: str
    ip: str
    port: int = MEMORY_PORT
    mac: str | None = None
    joining: bool = False
    """It does not have all contents yet, and the others do not wait for it."""

    @property
    def address(self) -> Address:
        return self.ip, self.port


@dataclass(frozen=True)
class Keys:
    """Keys and the rights that they give: a packet's key is one of these. ``device`` is what devices show each other."""

    read: int
    write: int
    device: int


@dataclass(frozen=True)
class Region:
    """The addresses [base, base + size), whose granules are dealt out to shards in turn."""

    id: int
    name: str
    base: int
    size: int
    granule: int
    shards: int
    keys: Keys
    kind: str = "array"
    dtype: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("size", "granule", "shards"):
            number = getattr(self, name)
            if number < 1 or number & (number - 1):
                raise ValueError(f"region {self.name}: {name} is {number}, not a power of two")
        if self.granule < ADDRESS_STEP or self.granule * self.shards > self.size or self.base % self.size:
            raise ValueError(
                f"region {self.name}: {self.shards} shards in granules of {self.granule} bytes do not fit {self.size} bytes "
                f"at address {self.base:#x}"
            )

    @cached_property
    def end(self) -> int:
        return self.base + self.size

    @property
    def shard_bytes(self) -> int:
        return self.size // self.shards

    def shard_of(self, address: int) -> int:
        return address // self.granule & (self.shards - 1)

    def granules(self, shard: int) -> Iterator[int]:
        """Addresses of a shard's granules."""
        return iter(range(self.base + shard * self.granule, self.end, self.granule * self.shards))

    def to_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("name", "base", "size", "granule", "shards", "kind", "dtype")},
            "region": self.id,
            "options": dict(self.options),
            "keys": {"read": self.keys.read, "write": self.keys.write, "device": self.keys.device},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_dict`; ValueError names what is missing or wrong."""
        try:
            numbers = {name: int(data[name]) for name in ("base", "size", "granule", "shards")}
            keys = data["keys"]
            return cls(
                id=int(data["region"]),
                name=str(data["name"]),
                keys=Keys(int(keys["read"]), int(keys["write"]), int(keys["device"])),
                kind=str(data.get("kind") or "array"),
                dtype=data.get("dtype"),
                options=data.get("options") or {},
                **numbers,
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"a region without {error}: {dict(data)}") from None


@dataclass(frozen=True)
class Assignment:
    """A shard that this device is to hold, in an epoch: the first of the group is the primary. ``lost`` says that the memory is
    gone, and every instruction is told so. ``expected``: the device should have the shard, and must not begin with zeros."""

    region: Region
    shard: int
    epoch: int
    group: tuple[Peer, ...]
    lost: bool = False
    expected: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.shard < self.region.shards:
            raise ValueError(f"region {self.region.name} has no shard {self.shard}")

    def number(self, host: str) -> int | None:
        """The host's place in the group, 0 for the primary; None if it is not in it."""
        return next((number for number, peer in enumerate(self.group) if peer.host == host), None)

    def joins(self, host: str) -> bool:
        """True if the host is in the group, and still to get the contents."""
        return any(peer.host == host and peer.joining for peer in self.group)

    def to_dict(self) -> dict[str, Any]:
        group = [asdict(peer) for peer in self.group]
        own = {"shard": self.shard, "epoch": self.epoch, "group": group, "lost": self.lost}
        return {**self.region.to_dict(), **own}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_dict`, of what the controller sends; ValueError names what is missing or wrong."""
        region = Region.from_dict(data)
        try:
            group = tuple(
                Peer(
                    str(each["host"]),
                    str(each["ip"]),
                    int(each.get("port") or MEMORY_PORT),
                    each.get("mac"),
                    bool(each.get("joining")),
                )
                for each in data["group"]
            )
            expected = data.get("state") == "member"
            return cls(region, int(data["shard"]), int(data["epoch"]), group, bool(data.get("lost")), expected)
        except (KeyError, TypeError) as error:
            raise ValueError(f"a shard of region {region.name} without {error}") from None
