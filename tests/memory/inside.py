"""A device and its clients in this process, over packets that may be lost, doubled and reordered from a seed."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from netsum.descriptor import SwitchAddress
from netsum.memory import RegionDescriptor
from netsum.memory.array import MemoryArray
from netsum.memory.client import MemoryClient
from netsum.transports.base import Transport
from netsum.transports.memory import MemoryTransport
from netsum_memory.device import Device
from netsum_memory.region import Assignment, Keys, Peer, Region
from netsum_memory.vault import Vault

KEYS = Keys(1, 2, 3)
BASE = 1 << 30


class Inside:
    """One region on one device, which threads ask one at a time."""

    def __init__(self, kind: str, options: dict[str, Any], *, shards: int = 4, folder: Path | None = None) -> None:
        granule, size = 8192, 1 << 22
        dtype = "float32" if kind == "parameters" else None
        self.region = Region(1, "model", BASE, size, granule, shards, KEYS, kind, dtype, options)
        self.folder = folder
        self.clients: dict[tuple[str, int], MemoryTransport] = {}
        self._one = threading.Lock()
        self.start()

    def start(self) -> None:
        self.device = Device("h1", vault=None if self.folder is None else Vault(self.folder))
        peer = Peer("h1", "10.0.0.1")
        shards = [Assignment(self.region, shard, 1, (peer,)) for shard in range(self.region.shards)]
        self.device.assign(shards, time.monotonic())
        assert not self.device.report()["refused"]

    def kill(self) -> None:
        """The process is gone, and another begins with what is in the folder."""
        with self._one:
            assert self.device._vault is not None
            os.close(self.device._vault._lock)
            self.start()

    def take(self, sender: tuple[str, int], packet: bytes) -> None:
        with self._one:
            sends = self.device.receive([(sender, packet)], time.monotonic())
        for to, data in sends:
            self.clients[to].put(bytes(data))

    def transport(self) -> MemoryTransport:
        sender = ("10.0.0.9", 1000 + len(self.clients))
        made = self.clients[sender] = MemoryTransport(lambda packet: self.take(sender, packet))
        return made

    def descriptor(self) -> RegionDescriptor:
        region = self.region
        return RegionDescriptor(
            name=region.name,
            id=region.id,
            base=region.base,
            size=region.size,
            key=KEYS.write,
            switch=SwitchAddress("10.255.0.1", "00:00:00:00:00:00", 12001),
            granule=region.granule,
            shards=region.shards,
            dtype=region.dtype or "uint8",
            kind=region.kind,
            options=region.options,
        )

    def opened(self, transport: Transport | None = None, *, piece: int = 8192, timeout: float = 30.0) -> MemoryArray:
        client = MemoryClient(transport or self.transport(), timeout=timeout, shards=self.region.shards)
        return MemoryArray(client, self.descriptor(), piece)
