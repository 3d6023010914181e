# SPDX-License-Identifier: MIT
"""A device and its clients in this process, over packets that may be lost, doubled and reordered from a seed."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from netsum.descriptor import SwitchAddress
from netsum.memory import RegionDescriptor
from netsum.memory.array import MemoryArray
from netsum.memory.client import MemoryClient
from netsum.transports.base import Transport
from netsum.transports.loopback import InMemoryTransport
from netsum.wire.memory import MEMORY_PORT
from netsum_memory.device import Device
from netsum_memory.region import Region
from netsum_memory.storage import Storage

from tests.memory.device.desk import HOST, assignments, region

SIZE = 1 << 22


class Inside:
    """One region on one device, which threads ask one at a time."""

    def __init__(self, kind: str, options: dict[str, Any], *, shards: int = 4, folder: Path | None = None) -> None:
        dtype = "float32" if kind == "parameters" else None
        self.region = region(SIZE, shards, name="model", kind=kind, dtype=dtype, options=options)
        self.folder = folder
        self.clients: dict[tuple[str, int], InMemoryTransport] = {}
        self.to_all: list[int] = []  # sizes of packets that have left the device
        self.to_one: list[int] = []
        self._one = threading.Lock()
        self.start()

    def start(self) -> None:
        self.device = Device(HOST, vault=None if self.folder is None else Storage(self.folder))
        self.device.assign(assignments(self.region), time.monotonic())
        assert not self.device.report()["refused"]

    def kill(self) -> None:
        """The process is gone, and another begins with what is in the folder."""
        with self._one:
            self.device.abandon()
            self.start()

    def checkpoint(self) -> None:
        with self._one:
            self.device.holdings.checkpoint()

    def take(self, sender: tuple[str, int], packet: bytes) -> None:
        with self._one:
            sends = self.device.receive([(sender, packet)], time.monotonic())
        for to, data in sends:
            if to in self.clients:
                self.to_one.append(len(data))
                self.clients[to].put(bytes(data))
            else:
                self.to_all.append(len(data))
                self.send_to_all(bytes(data), to)

    def send_to_all(self, data: bytes, group: tuple[str, int]) -> None:
        """A packet goes to all who have joined the group."""
        for client in self.clients.values():
            if group in client.groups:
                client.put(data)

    def transport(self) -> InMemoryTransport:
        sender = ("10.0.0.9", 1000 + len(self.clients))
        made = self.clients[sender] = InMemoryTransport(lambda packet: self.take(sender, packet))
        return made

    def opened(self, transport: Transport | None = None, *, piece: int = 8192, timeout: float = 30.0) -> MemoryArray:
        client = MemoryClient(transport or self.transport(), timeout=timeout, shards=self.region.shards)
        return MemoryArray(client, descriptor(self.region), piece)


def descriptor(of: Region, ip: str = "10.255.0.1", port: int = MEMORY_PORT) -> RegionDescriptor:
    """The description that the controller would give a client."""
    kept = {name: getattr(of, name) for name in ("name", "id", "base", "size", "granule", "shards", "kind", "options")}
    switch = SwitchAddress(ip, "00:00:00:00:00:00", port)
    return RegionDescriptor(**kept, key=of.keys.write, switch=switch, dtype=of.dtype or "uint8")
