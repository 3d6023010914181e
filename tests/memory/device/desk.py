# SPDX-License-Identifier: MIT
"""A device with one region, and a client that asks it, without a network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from netsum.wire.memory import Flag, Instruction, LaneType, MemoryHeader, MemoryStatus
from netsum_memory.device import Device
from netsum_memory.message import Address, MemoryMessage, parse
from netsum_memory.region import Assignment, Keys, Peer, Region
from netsum_memory.storage import LARGEST, Storage

BASE: Final = 1 << 32
KEYS: Final = Keys(read=11, write=12, device=13)
CLIENT: Final[Address] = ("10.0.0.9", 4000)
HOST: Final = "h1"
HERE: Final = Peer(HOST, "10.0.0.1")
THERE: Final = Peer("h2", "10.0.0.2")

F32: Final = int(LaneType.FLOAT32)
I32: Final = int(LaneType.INT32)
I64: Final = int(LaneType.INT64)


def region(size: int = 1 << 17, shards: int = 2, **more: Any) -> Region:
    given: dict[str, Any] = {"id": 7, "name": "r", "base": BASE, "granule": 8192, "keys": KEYS, **more}
    return Region(size=size, shards=shards, **given)


def assignments(of: Region, epoch: int = 1, group: tuple[Peer, ...] = (HERE,)) -> list[Assignment]:
    """All shards of a region."""
    return [Assignment(of, shard, epoch, group) for shard in range(of.shards)]


class Answer(MemoryMessage):
    """A reply that a client got."""

    @property
    def status(self) -> MemoryStatus:
        return MemoryStatus(self.header.status)


class Desk:
    """Asks one device, as one client after the other if need be."""

    def __init__(self, device: Device | None = None, *, of: Region | None = None) -> None:
        self.device = device or Device(HOST)
        self.region = of or region()
        self.now = 0.0
        self.client, self.sequence = 5, 0
        self.sends: list[tuple[Address, bytes]] = []
        self.device.assign(assignments(self.region), self.now)

    def packet(self, instruction: int, address: int = BASE, payload: Any = b"", **fields: Any) -> MemoryMessage:
        """The client's next packet; ``payload`` may be an array."""
        data = payload.tobytes() if isinstance(payload, np.ndarray) else bytes(payload)
        self.sequence += 1
        given: Mapping[str, Any] = {
            "length": len(data),
            "key": KEYS.write,
            "client": self.client,
            "sequence": self.sequence,
            **fields,
        }
        segments = given.get("segments", ())
        header = MemoryHeader(instruction, address, **{**given, "segments": len(segments)})
        return MemoryMessage(header, tuple(segments), data)

    def send(self, packet: MemoryMessage, sender: Address = CLIENT) -> list[Answer]:
        """The device's answers to this client; everything else is in ``sends``."""
        return self.deliver(packet.pack(), sender)

    def deliver(self, data: bytes, sender: Address = CLIENT) -> list[Answer]:
        sends = self.device.receive([(sender, data)], self.now)
        self.sends += sends
        return [answer(packet) for to, packet in sends if to == sender]

    def ask(self, instruction: int, address: int = BASE, payload: Any = b"", **fields: Any) -> Answer:
        """The one answer to the next packet."""
        (only,) = self.send(self.packet(instruction, address, payload, **fields))
        assert only.header.sequence == self.sequence
        return only

    def read(self, address: int, length: int, dtype: str = "u1") -> Any:
        got = self.ask(Instruction.READ, address, length=length)
        assert got.status == MemoryStatus.OK
        return np.frombuffer(got.payload, dtype)

    def write(self, address: int, values: Any) -> None:
        assert self.ask(Instruction.WRITE, address, values).status == MemoryStatus.OK


def answer(data: bytes) -> Answer:
    got = parse(data)
    assert got.header.flags & Flag.REPLY
    return Answer(*got)


def kept_device(folder: Path, *, largest: int = LARGEST, fsync: bool = False) -> Device:
    """A device whose memory outlives it."""
    return Device(HOST, vault=Storage(folder, fsync=fsync, largest=largest))
