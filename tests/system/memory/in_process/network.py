# SPDX-License-Identifier: MIT
"""A network with its own clock, which loses, duplicates and reorders packets, and the switch's work on memory's packets
(docs/memory.md), as a table lookup."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from netsum.wire.memory import (
    IDEMPOTENT,
    MEMORY_HEADER_BYTES,
    MEMORY_PORT,
    Flag,
    Instruction,
    MemoryStatus,
    pack_memory,
    parse_memory,
)
from netsum_memory.message import Address, reply

from tests.system.faults.scenario import Rates
from tests.system.memory.plan import RegionPlan

LATENCY = 50e-6
"""Seconds that a link takes."""
LATE = 2e-3
"""Additional seconds for a reordered packet."""


class InProcessNetwork:
    """Things happen one after the other, each at its time.

    Attributes:
        now: seconds since the network began.
        rates: what every link does to packets; may be changed at any time.
        counts: packets by what became of them.
    """

    def __init__(self, seed: str, rates: Rates) -> None:
        self.now = 0.0
        self.rates = rates
        self.counts: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do it so many seconds from now."""
        self._serial += 1
        heapq.heappush(self._agenda, (self.now + seconds, self._serial, action))

    def carry(self, deliver: Callable[[], None]) -> None:
        """Take a packet over one link."""
        rng, rates = self._rng, self.rates
        if rng.random() < rates.loss:
            self.counts["loss"] += 1
            return
        copies = 1
        if rng.random() < rates.duplicate:
            self.counts["duplicate"] += 1
            copies = 2
        for _ in range(copies):
            seconds = LATENCY + rates.jitter_ms / 1000 * rng.random()
            if rng.random() < rates.reorder:
                self.counts["reorder"] += 1
                seconds += LATE * rng.random()
            self.later(seconds, deliver)

    def run(self, over: Callable[[], bool], until: float) -> bool:
        """Let time pass until it is ``over``; False if it is not at this time."""
        while not over():
            if not self._agenda or self._agenda[0][0] > until:
                return False
            self.now, _, action = heapq.heappop(self._agenda)
            action()
        return True


VIRTUAL: Final[Address] = ("10.255.0.1", MEMORY_PORT)

Receive = Callable[[Address, bytes], None]


@dataclass(frozen=True)
class Way:
    """Destinations of a shard's instructions: its devices, the primary first; none if it is lost."""

    epoch: int
    devices: Sequence[Address]


class Switch:
    """Forwards between everything that is plugged in.

    Attributes:
        on: while it is off, nothing passes.
        ways: by region and shard. The controller writes them; a switch that was off has none.
    """

    def __init__(self, network: InProcessNetwork) -> None:
        self._network = network
        self._ports: dict[Address, Receive] = {}
        self._regions: list[tuple[int, int, int, RegionPlan]] = []
        self.on = True
        self.ways: dict[tuple[int, int], Way] = {}

    def plug(self, address: Address, receive: Receive) -> None:
        """Connect the endpoint that has this address."""
        self._ports[address] = receive

    def add_region(self, number: int, base: int, region: RegionPlan) -> None:
        self._regions.append((base, base + region.size, number, region))

    def remove_region(self, number: int) -> None:
        self._regions = [each for each in self._regions if each[2] != number]

    def send(self, source: Address, to: Address, data: bytes) -> None:
        """A packet leaves the endpoint that has the address ``source``."""
        self._network.carry(lambda: self._forward(source, to, data))

    def _forward(self, source: Address, to: Address, data: bytes) -> None:
        if not self.on:
            return
        if to == VIRTUAL:
            self._translate(source, data)
        elif source[1] == MEMORY_PORT != to[1]:
            self._out(VIRTUAL, to, data)  # a reply
        else:
            self._out(source, to, data)

    def _out(self, source: Address, to: Address, data: bytes) -> None:
        receive = self._ports.get(to)
        if receive is not None:
            self._network.carry(lambda: receive(source, data))

    def _translate(self, source: Address, data: bytes) -> None:
        header = parse_memory(data)
        found = next((each for each in self._regions if each[0] <= header.address < each[1]), None)
        if found is None:
            self._out(VIRTUAL, source, reply(header, MemoryStatus.NO_REGION))
            return
        start, _, number, region = found
        shard = region.shard_of(header.address - start)
        way = self.ways.get((number, shard))
        if way is None or not way.devices:
            self._out(VIRTUAL, source, reply(header, MemoryStatus.BUSY if way is None else MemoryStatus.LOST))
            return
        passes = header.instruction == Instruction.SUM_FORWARD and header.segments > 0
        devices = way.devices[:1] if passes or header.instruction in IDEMPOTENT else way.devices
        flags = header.flags | (Flag.REPLICATED if len(devices) > 1 else 0)
        written = header._replace(region=number, shard=shard, epoch=way.epoch, flags=flags)
        packet = pack_memory(written) + data[MEMORY_HEADER_BYTES:]
        for device in devices:
            self._out(source, device, packet)
