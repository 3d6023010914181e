# SPDX-License-Identifier: MIT
"""A round in one process: pure devices, pure clients and the controller's decisions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from netsum.memory.endpoint import MemoryEndpoint
from netsum.memory.run import InstructionRun, Task
from netsum.wire.memory import MEMORY_PORT, MemoryHeader
from netsum_controller.config.topologies import star
from netsum_controller.memory.model import Region
from netsum_memory.message import Address

from tests.system.faults.scenario import Rates
from tests.system.memory.in_process.controller import LEASE, Controller, make_region
from tests.system.memory.in_process.devices import Host
from tests.system.memory.in_process.network import VIRTUAL, InProcessNetwork, Switch
from tests.system.memory.model import HistoryEntry
from tests.system.memory.oracle import Lives
from tests.system.memory.places import Workload
from tests.system.memory.plan import CLIENTS, MemoryPlan, RegionPlan, Site
from tests.system.memory.round import MemoryTotals, Round, RoundClient, request_of

TOPOLOGY: Final = star(6)
SITE: Final = Site(tuple(TOPOLOGY.hosts)[:5], settling=2 * LEASE)
FIRST_ADDRESS: Final = 1 << 32
PORT: Final = 40000
PATIENCE: Final = 30.0
"""Seconds of the network's clock within which there must be progress."""
_LOOK: Final = 0.01


class Client(RoundClient):
    """A client: the host library's endpoint."""

    def __init__(
        self,
        workload: Workload,
        regions: Mapping[str, Region],
        lives: Lives,
        plan: MemoryPlan,
        switch: Switch,
        network: InProcessNetwork,
    ) -> None:
        """``regions``: those there are, by name; they may change."""
        super().__init__(workload, plan, lives)
        self._regions, self._switch, self._network = regions, switch, network
        numbers = iter(range(1 + (workload.client << 32), 1 << 62))
        self.endpoint = MemoryEndpoint(max(region.shards for region in plan.regions), new_client=numbers.__next__)
        self._address: Address = (f"10.1.0.{workload.client + 1}", PORT)
        switch.plug(self._address, self._receive)
        self._alarm = 0.0

    def start_one(self, number: int, entry: HistoryEntry) -> Task:
        place = self._plan.places[number]
        plan, region = self._plan.region(place.region), self._regions[place.region]
        task = Task()

        def replied(_row: int, reply: MemoryHeader, payload: memoryview) -> None:
            self.workload.end(number, entry, self._network.now, bytes(payload), reply.argument)
            self.answered += 1

        header, addresses, fields = request_of(entry.request, place, plan, region.base)
        fields |= {"on_reply": replied, "spread": (region.granule, region.shards)}
        self.endpoint.submit(InstructionRun(task, place.region, header._replace(key=region.write_key), addresses, **fields))
        return task

    def turn(self) -> None:
        """Ask more, send what is due, and schedule the next turn."""
        now = self._network.now
        for number, entry, task in self.in_flight:
            if task.error is not None:
                self.refuse(number, entry, task.error, now)
        self.in_flight = [each for each in self.in_flight if not each[2].done()]
        while self.begin_due(now):
            self._network.later(self.due - now, self.turn)
        for packet in self.endpoint.poll(now):
            self._switch.send(self._address, VIRTUAL, b"".join(packet))
        due = self.endpoint.next_deadline()
        if due is not None and due != self._alarm:
            self._alarm = due
            self._network.later(max(0.0, due - now), lambda: self._wake(due))

    def _wake(self, due: float) -> None:
        if due == self._alarm:
            self._alarm = 0.0
            self.turn()

    def _receive(self, _source: Address, data: bytes) -> None:
        self.endpoint.receive([memoryview(data)], self._network.now)
        self.turn()


class Stage(Round):
    """One round of a plan; devices' files go into a folder."""

    reported = 0.5

    def __init__(self, plan: MemoryPlan, folder: Path, totals: MemoryTotals, say: Callable[[str], None]) -> None:
        super().__init__(plan, totals, say)
        self._network = network = InProcessNetwork(f"network {plan.seed} {plan.index}", Rates())
        self._switch = switch = Switch(network)
        self._controller = controller = Controller(TOPOLOGY, tuple(plan.devices), switch, network)
        self._hosts = {
            name: Host(
                name,
                (TOPOLOGY.hosts[name].ip, MEMORY_PORT),
                folder / name if files else None,
                controller,
                switch,
                network,
            )
            for name, files in plan.devices.items()
        }
        self._regions: dict[str, Region] = {}
        self._numbers, self._base = itertools.count(1), FIRST_ADDRESS
        self._clients: list[Client] = []

    def run(self) -> None:
        try:
            if self._begin() and self._play() and self._read_all():
                self._compare()
        finally:
            for host in self._hosts.values():
                host.close()
            self._count()
        self.judge()

    def _begin(self) -> bool:
        """Start devices, make regions; False if they are not made."""
        for host in self._hosts.values():
            host.start()
        self._controller.tend()
        for plan in self.plan.regions:
            self.create(plan)
        if not self._network.run(self.is_made, self.now() + PATIENCE):
            self.report_hang(f"the regions are not made after {PATIENCE:g} s")
            return False
        self._network.rates = self.plan.rates
        return True

    def _play(self) -> bool:
        """Let clients and events run; False if they do not end."""
        plan = self.plan
        for number in range(CLIENTS):
            workload = Workload(number, plan.workload_seed(number), plan.places, plan.instructions)
            self._clients.append(Client(workload, self._regions, self.lives, plan, self._switch, self._network))
        for client in self._clients:
            client.turn()
        self._look()
        return self._until_over("instructions have no reply")

    def _look(self) -> None:
        self._network.later(_LOOK, self._look)
        self.look()

    def _until_over(self, what: str) -> bool:
        answered = -1
        while not self._network.run(
            lambda: all(client.over for client in self._clients) and self.is_whole(), self.now() + PATIENCE
        ):
            if self.answered == answered:
                left = [entry for client in self._clients for _, entry, _ in client.in_flight]
                self.report_hang(f"{len(left)} {what} after {PATIENCE:g} s")
                for entry in left[:5]:
                    self.say(f"    {entry.describe()}")
                return False
            answered = self.answered
        return True

    def _is_over(self) -> bool:
        return all(client.over for client in self._clients) and self.is_whole()

    def _read_all(self) -> bool:
        """Read every place, once nothing else is in progress."""
        self.read(range(len(self.plan.places)))
        return self._until_over("last READs have no reply")

    def _compare(self) -> None:
        """All devices of a shard must have the same log, and the same bytes where they have executed as much of it."""
        for region in self._regions.values():
            for shard, hosts in enumerate(self._controller.holders(region.name)):
                found = [self._hosts[host].contents(region.id, shard) for host in hosts]
                logs = {each.end for each in found}
                states = {(each.executed, each.memory) for each in found}
                if len(logs) > 1 or len(states) > len({executed for executed, _ in states}):
                    self.report_wrong(f"{region.name}, shard {shard}: {' and '.join(hosts)} hold different bytes")

    def _count(self) -> None:
        totals = self.totals
        totals.operations += self.answered
        totals.faults.update(self._network.counts)
        for client in self._clients:
            stats = client.endpoint.stats
            totals.retransmissions += stats.retransmissions
            totals.bytes += stats.bytes_sent + stats.bytes_received

    # What a round needs.

    @property
    def clients(self) -> Sequence[Client]:
        return self._clients

    def now(self) -> float:
        return self._network.now

    def kill(self, device: str) -> None:
        self._hosts[device].kill()

    def start(self, device: str) -> None:
        self._hosts[device].start()

    def hang(self, device: str, *, hang: bool) -> None:
        self._hosts[device].hang(hang=hang)

    def move(self, region: str, hosts: tuple[str, ...]) -> None:
        self._controller.move(region, hosts)

    def restart_switch(self) -> Callable[[], object]:
        self._switch.on = False
        self._switch.ways.clear()
        return lambda: setattr(self._switch, "on", True)

    def restart_controller(self) -> Callable[[], object]:
        self._controller.on = False
        return self._controller.restart

    def create(self, region: RegionPlan) -> None:
        """Begin to make a region, at addresses that were never used."""
        number, base = next(self._numbers), (self._base + region.size - 1) // region.size * region.size
        self._base = base + region.size
        self._regions[region.name] = made = make_region(number, base, region)
        self._switch.add_region(number, base, region)
        self._controller.create(made)

    def delete(self, region: str) -> None:
        self._switch.remove_region(self._regions[region].id)
        self._controller.delete(region)

    def is_lost(self, region: str) -> bool:
        return self._controller.is_lost(region)

    def is_made(self, region: str | None = None) -> bool:
        return self._controller.whole() if region is None else self._controller.is_whole(region)

    def read(self, numbers: Iterable[int]) -> list[HistoryEntry]:
        client, entries = self._clients[0], []
        for number in numbers:
            for request in self.plan.places[number].reads():
                entries.append(HistoryEntry(0, request, self.now()))
                client.begin(number, entries[-1])
        client.turn()
        return entries
