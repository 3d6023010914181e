# SPDX-License-Identifier: MIT
"""Everything a client needs to know to use a region. The controller makes it, :func:`netsum.memory.open` fetches it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from netsum.descriptor import IP_UDP_BYTES, HostAddress, MemberLink, SwitchAddress
from netsum.wire.memory import ADDRESS_STEP, MAX_PAYLOAD, MEMORY_HEADER_BYTES, MEMORY_PORT

ANYWHERE: Final = HostAddress("0.0.0.0", "00:00:00:00:00:00", 0)
"""A client that the kernel gives an address and a port."""


@dataclass(frozen=True)
class RegionDescriptor:
    """A region, and how to reach it.

    Attributes:
        id, base, size: its number, its first virtual address, its bytes.
        granule, shards, replicas: how it is spread over devices.
        key: proves the right to use it.
        switch: the virtual address of all memory; the MAC matters only to links that carry frames.
        dtype, shape: of the array that it is; without them it is bytes.
        kind, options: what it is for; "array" is plain memory.
        mtu, payload: the largest IP packet and the most bytes of payload that pass on the whole way, if that is known.
        host, link: the client's own address and link, where it is not the kernel's.
    """

    name: str
    id: int
    base: int
    size: int
    key: int
    switch: SwitchAddress
    granule: int = ADDRESS_STEP
    shards: int = 1
    replicas: int = 1
    dtype: str = "uint8"
    shape: tuple[int, ...] = ()
    kind: str = "array"
    options: Mapping[str, Any] = field(default_factory=dict)
    mtu: int | None = None
    payload: int | None = None
    host: HostAddress = ANYWHERE
    link: MemberLink = field(default_factory=MemberLink)

    def __post_init__(self) -> None:
        limits = {"id": self.id, "base": self.base, "size": self.size, "key": self.key, "replicas": self.replicas}
        for name, value in limits.items():
            if type(value) is not int or not 0 <= value < 1 << 64:
                raise ValueError(f"{name} is {value!r}, must be a whole number of 64 bits")
        for name in ("granule", "shards"):
            value = getattr(self, name)
            if type(value) is not int or value < 1 or value & (value - 1):
                raise ValueError(f"{name} is {value!r}, must be a power of two")
        if not self.shape:  # an array of one axis
            object.__setattr__(self, "shape", (self.size // self.numpy_dtype.itemsize,))
        if self.nbytes > self.size:
            raise ValueError(f"{self.dtype} {self.shape} needs {self.nbytes} bytes, the region has {self.size}")

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The type as it is in the memory: little-endian."""
        try:
            made = np.dtype(self.dtype).newbyteorder("<")
        except TypeError:
            raise ValueError(f"dtype is {self.dtype!r}, which numpy does not know") from None
        if made.hasobject or not made.itemsize or ADDRESS_STEP % made.itemsize:
            raise ValueError(f"dtype is {self.dtype}; a region's items have 1, 2, 4, 8, ... bytes")
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of the array, which may be fewer than the region's."""
        number = self.numpy_dtype.itemsize
        for length in self.shape:
            number *= length
        return number

    def piece(self, mtu: int) -> int:
        """The largest payload that passes, a power of two: such pieces cross no multiple of ADDRESS_STEP."""
        room = min(mtu - IP_UDP_BYTES - MEMORY_HEADER_BYTES, self.payload or MAX_PAYLOAD, MAX_PAYLOAD)
        if room < 8:
            raise ValueError(f"an MTU of {mtu} leaves no room for memory's packets")
        return 1 << room.bit_length() - 1

    def viewed(self, dtype: str | None, shape: tuple[int, ...] | None) -> RegionDescriptor:
        """The same memory as an array of another type and shape."""
        if dtype is None and shape is None:
            return self
        return replace(self, dtype=dtype or self.dtype, shape=shape or ())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RegionDescriptor:
        """Read the controller's answer. :class:`ValueError` names what is missing or wrong; unknown keys are ignored."""
        try:
            known = {name: data[name] for name in cls.__dataclass_fields__ if data.get(name) is not None}
            known |= {"shape": tuple(int(length) for length in data.get("shape") or ())}
            mac = str(data.get("mac") or data.get("virtual_mac") or ANYWHERE.mac)
            known["switch"] = SwitchAddress(str(data["virtual_ip"]), mac, int(data.get("port", MEMORY_PORT)))
            known["link"] = MemberLink(**data.get("link") or {})
            if host := data.get("host"):
                known["host"] = HostAddress(str(host["ip"]), str(host["mac"]), int(host.get("udp_port", 0)))
            return cls(**known)
        except KeyError as error:
            raise ValueError(f"the region's descriptor has no {error}") from None
        except (TypeError, AttributeError) as error:
            raise ValueError(f"the region's descriptor is malformed: {error}") from None

    @classmethod
    def from_json(cls, text: str | bytes) -> RegionDescriptor:
        """Read the controller's answer as text. Raises :class:`ValueError`."""
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("the region's descriptor is not a JSON object")
        return cls.from_dict(data)
