# SPDX-License-Identifier: MIT
"""A memory device inside the test, and clients of it."""

from __future__ import annotations

import threading

from netsum.descriptor import SwitchAddress
from netsum.memory import MemoryArray, RegionDescriptor
from netsum.memory import open as open_memory
from netsum.transports import ImpairedTransport, Impairment, InMemoryTransport
from netsum_memory.device import Device
from netsum_memory.region import Assignment, Keys, Peer, Region

BASE, SIZE = 1 << 40, 1 << 20
READ_KEY, WRITE_KEY = 11, 12
MTU = 9000


def device(dtype: str | None = None, *, shards: int = 1, size: int = SIZE) -> Device:
    """A device that holds all shards of one region, and nothing else."""
    made = Device("h1")
    region = Region(7, "r", BASE, size, 8192, shards, Keys(READ_KEY, WRITE_KEY, 13), dtype=dtype)
    group = (Peer("h1", "10.0.0.1"),)
    made.assign([Assignment(region, shard, 1, group) for shard in range(shards)], 0.0)
    return made


def descriptor(
    dtype: str = "uint8",
    shape: tuple[int, ...] = (),
    *,
    shards: int = 1,
    size: int = SIZE,
    mtu: int = MTU,
    key: int = WRITE_KEY,
) -> RegionDescriptor:
    return RegionDescriptor(
        "r", 7, BASE, size, key, SwitchAddress("10.0.0.99", "02:00:00:00:00:99"), 8192, shards, 1, dtype, shape, mtu=mtu
    )


class NearTransport(InMemoryTransport):
    """A client's link to a device in this process."""

    def __init__(self, near: Device, name: int = 0) -> None:
        super().__init__(self._ask)
        self._near, self._address = near, ("10.0.1.1", 1000 + name)

    _turn = threading.Lock()  # several clients may talk to the device

    def _ask(self, packet: bytes) -> None:
        with self._turn:
            replies = self._near.receive([(self._address, packet)], 0.0)
        for to, reply in replies:
            assert to == self._address
            self.put(reply)


def array(near: Device, described: RegionDescriptor, faults: Impairment | None = None, seed: int = 0) -> MemoryArray:
    transport = NearTransport(near, seed)
    link = transport if faults is None else ImpairedTransport(transport, faults, seed)
    return open_memory(descriptor=described, transport=link, call_timeout=60.0)
