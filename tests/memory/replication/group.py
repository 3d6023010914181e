# SPDX-License-Identifier: MIT
"""Devices of one shard and a client, over a network that loses, doubles and reorders from a seed, on a clock of its own."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from netsum.wire.memory import Flag
from netsum_memory import message
from netsum_memory.device import Device
from netsum_memory.message import Address, MemoryMessage, Send
from netsum_memory.region import Assignment, Peer, Region
from netsum_memory.shard_table import Holding
from netsum_memory.storage import Storage

CLIENT: Address = ("10.9.0.1", 4000)
TICK = 0.05


class Group:
    """``told`` is the group that all devices know, the primary first. The devices of these hosts are started."""

    def __init__(
        self, region: Region, seed: int, *hosts: str, loss: float = 0.0, folders: Mapping[str, Path] | None = None
    ) -> None:
        self.region, self.loss = region, loss
        self._folders = folders or {}
        self._rng = random.Random(seed)
        self.devices: dict[str, Device] = {}
        self.told: tuple[Peer, ...] = ()
        self.epoch = 0
        self.now = 0.0
        self.packets = 0
        self._flying: list[tuple[Address, Address, bytes]] = []
        self.replies: dict[tuple[int, int], MemoryMessage] = {}
        for host in hosts:
            self.start(host)

    def start(self, host: str) -> None:
        """A process, new or again."""
        folder = self._folders.get(host)
        if host in self.devices:
            self.devices[host].abandon()
        self.devices[host] = Device(host, vault=None if folder is None else Storage(folder))

    def tell(self, *hosts: str, joining: tuple[str, ...] = ()) -> None:
        """The next epoch."""
        self.epoch += 1
        peers = (Peer(host, f"10.0.0.{int(host[1:])}", joining=host in joining) for host in hosts)
        self.told = tuple(peers)
        for host in hosts:
            self.assign(host)

    def assign(self, host: str) -> None:
        """One device is told."""
        assignment = Assignment(self.region, 0, self.epoch, self.told)
        self._emit(host, self.devices[host].assign([assignment], self.now))

    def ask(self, request: MemoryMessage) -> None:
        """The client's packet, as the switch sends it to all of the group."""
        flags = request.header.flags | (Flag.REPLICATED if len(self.told) > 1 else 0)
        header = request.header._replace(region=self.region.id, shard=0, epoch=self.epoch, flags=int(flags))
        for peer in self.told:
            self._fly(CLIENT, peer.address, request._replace(header=header).pack())

    def _fly(self, source: Address, to: Address, data: bytes) -> None:
        copies = 2 if self._rng.random() < self.loss else 1
        for _ in range(copies):
            if self._rng.random() >= self.loss:
                at = self._rng.randint(max(0, len(self._flying) - 4), len(self._flying))
                self._flying.insert(at, (source, to, data))

    def _emit(self, host: str, sends: list[Send]) -> None:
        source = next((peer.address for peer in self.told if peer.host == host), ("", 0))
        for to, data in sends:
            self._fly(source, to, bytes(data))

    def run(self, ticks: int = 1) -> None:
        """Time passes, and all that flies arrives."""
        for _ in range(ticks):
            self.now += TICK
            for host, device in self.devices.items():
                self._emit(host, device.tend(self.now))
            while self._flying:
                source, to, data = self._flying.pop(0)
                self.packets += 1
                if to == CLIENT:
                    reply = message.parse(data)
                    self.replies[reply.name] = reply
                for peer in self.told:
                    if peer.address == to:
                        self._emit(peer.host, self.devices[peer.host].receive([(source, data)], self.now))

    def complete(self, request: list[MemoryMessage], ticks: int = 200) -> None:
        """Ask until all are answered."""
        for _ in range(ticks):
            left = [each for each in request if each.name not in self.replies]
            if not left:
                return
            for each in left:
                self.ask(each)
            self.run()
        raise AssertionError(f"{len(left)} are not answered")

    def held(self, host: str) -> Holding:
        holding = self.devices[host].holdings.get(self.region.id, 0)
        assert holding is not None
        return holding

    def settle(self, ticks: int = 400) -> None:
        """Until all are ready and have executed the same."""
        for _ in range(ticks):
            held = [self.held(peer.host) for peer in self.told]
            if all(each.ordering.ready for each in held) and len({each.shard.position for each in held}) == 1:
                return
            self.run()
        raise AssertionError([(each.ordering.ready, each.shard.position) for each in held])

    def contents(self, host: str) -> tuple[bytes, bytes, bytes, int]:
        """All that a device has of the shard."""
        shard = self.held(host).shard
        memory = b"".join(shard.store.read(at, self.region.granule) for at in self.region.granules(0))
        return memory, shard.windows.save(), shard.kind.save(elsewhere=True), shard.position
