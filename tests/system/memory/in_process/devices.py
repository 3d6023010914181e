# SPDX-License-Identifier: MIT
"""A device's host: the device itself, its reports to the controller, and what can happen to its process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from netsum_memory.device import Device
from netsum_memory.message import Address, Send
from netsum_memory.serve import TICK, Orders
from netsum_memory.storage import Storage

from tests.system.memory.in_process.controller import Controller
from tests.system.memory.in_process.network import VIRTUAL, InProcessNetwork, Switch

REPORT: Final = 0.15
"""Seconds between two reports."""
HURRY: Final = 0.02
"""The same, after a packet has shown that the switch knows more."""
QUEUE: Final = 256
"""Packets that a stopped process's socket holds."""
JOURNAL: Final = 1 << 18
"""Bytes of journal after which a checkpoint is made: few, so that checkpoints happen."""


class Contents(NamedTuple):
    """A shard on a device: the end of its log, how far it is executed, and the resulting bytes, with the kind's own state."""

    end: int
    executed: int
    memory: bytes


class Host:
    """Attributes:
    device: None while its process is not there.
    """

    def __init__(
        self, name: str, address: Address, folder: Path | None, controller: Controller, switch: Switch, network: InProcessNetwork
    ) -> None:
        self.name, self._address, self._folder = name, address, folder
        self._controller, self._switch, self._network = controller, switch, network
        self.device: Device | None = None
        self._life = 0
        self._reported = 0.0
        self._incarnation = ""
        self._hangs = False
        self._waiting: list[tuple[Address, bytes]] = []
        switch.plug(address, self._receive)

    def start(self) -> None:
        """A new process."""
        self._life += 1
        vault = None if self._folder is None else Storage(self._folder, largest=JOURNAL)
        self._incarnation = f"{self.name} {self._life}" if vault is None else vault.incarnation
        self.device = Device(self.name, vault=vault)
        life = self._life
        self._every(TICK, life, self._tend)
        self._every(REPORT, life, self._report)

    def kill(self) -> None:
        """As with SIGKILL."""
        if self.device is not None:
            self.device.abandon()
        self.device, self._hangs = None, False
        self._waiting.clear()

    def hang(self, *, hang: bool) -> None:
        """As with SIGSTOP and SIGCONT."""
        self._hangs = hang
        waiting, self._waiting = self._waiting, []
        if not hang and self.device is not None:
            self._send(self.device.receive(waiting, self._network.now))

    def contents(self, region: int, shard: int) -> Contents:
        """Its contents of a shard."""
        assert self.device is not None
        holding = self.device.holdings.get(region, shard)
        assert holding is not None, "the controller waits for it"
        held, store = holding.shard.region, holding.shard.store
        memory = b"".join(store.read(start, held.granule) for start in held.granules(shard))
        beside = holding.shard.kind.save(elsewhere=True)
        return Contents(holding.ordering.position, holding.shard.position, memory + beside)

    def close(self) -> None:
        if self.device is not None:
            self.device.close()
            self.device = None

    def _every(self, seconds: float, life: int, action: Callable[[Device], None]) -> None:
        """Do it now and then, as long as this process lives."""
        if life != self._life or self.device is None:
            return
        if not self._hangs:
            action(self.device)
        self._network.later(seconds, lambda: self._every(seconds, life, action))

    def _tend(self, device: Device) -> None:
        self._send(device.tend(self._network.now))
        if device.behind and self._network.now - self._reported >= HURRY:
            self._report(device)

    def _report(self, device: Device) -> None:
        device.behind, self._reported = False, self._network.now
        said: dict[str, Any] = device.report()
        answer = self._controller.receive(self.name, {"incarnation": self._incarnation, **said})
        if answer is None:
            return
        orders = Orders.from_dict(answer)
        device.virtual = VIRTUAL
        self._send(device.assign(orders.assignments, self._network.now))
        if device.report() != said:  # as the server does: the controller may wait for it
            self._controller.receive(self.name, {"incarnation": self._incarnation, **device.report()})

    def _receive(self, source: Address, data: bytes) -> None:
        if self.device is None:
            return
        if self._hangs:
            if len(self._waiting) < QUEUE:
                self._waiting.append((source, data))
            return
        self._send(self.device.receive([(source, data)], self._network.now))

    def _send(self, sends: list[Send]) -> None:
        for to, data in sends:
            self._switch.send(self._address, to, data)
