"""A round in one process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from netsum.wire.memory import MEMORY_PORT
from netsum_controller.config.topologies import star
from netsum_controller.memory.model import Region

from tests.system.faults.scenario import Rates
from tests.system.memory.in_process.clients import Client
from tests.system.memory.in_process.controller import LEASE, Controller, make_region
from tests.system.memory.in_process.devices import Host
from tests.system.memory.in_process.network import InProcessNetwork
from tests.system.memory.in_process.switch import Switch
from tests.system.memory.model import HistoryEntry
from tests.system.memory.oracle import Lives, judge
from tests.system.memory.places import Workload
from tests.system.memory.plan import CLIENTS, Event, MemoryEventKind, MemoryPlan, RegionPlan, Site
from tests.system.memory.report import MemoryTotals

TOPOLOGY: Final = star(6)
SITE: Final = Site(tuple(TOPOLOGY.hosts)[:5], settling=2 * LEASE)
FIRST_ADDRESS: Final = 1 << 32
PATIENCE: Final = 30.0
"""Seconds of the network's clock within which there must be progress."""
REPORTED: Final = 0.5
"""Seconds within which the controller has noticed what happened to a device, and begun to act."""
_LOOK: Final = 0.01


class Stage:
    """One round of a plan; devices' files go into a folder."""

    def __init__(self, plan: MemoryPlan, folder: Path, totals: MemoryTotals, say: Callable[[str], None]) -> None:
        self._plan, self._totals, self._say = plan, totals, say
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
        self._lives = Lives(plan)
        self._clients: list[Client] = []
        self._waiting = list(plan.events)
        self._happening: set[str] = set()

    def run(self) -> None:
        try:
            if self._begin() and self._play() and self._read_all():
                self._compare()
        finally:
            for host in self._hosts.values():
                host.close()
            self._count()
        judge(self._plan, self._lives, self._totals, self._say)

    def _begin(self) -> bool:
        """Start devices, make regions; False if they are not made."""
        for host in self._hosts.values():
            host.start()
        self._controller.tend()
        for plan in self._plan.regions:
            self._create(plan)
        if not self._network.run(self._controller.whole, self._network.now + PATIENCE):
            self._hang("the regions are not made")
            return False
        self._network.rates = self._plan.rates
        return True

    def _create(self, plan: RegionPlan) -> None:
        """Begin to make a region, at addresses that were never used."""
        number, base = next(self._numbers), (self._base + plan.size - 1) // plan.size * plan.size
        self._base = base + plan.size
        self._regions[plan.name] = region = make_region(number, base, plan)
        self._switch.add_region(number, base, plan)
        self._controller.create(region)

    def _hang(self, what: str) -> None:
        self._totals.hangs += 1
        self._say(f"  HANG: {what} after {PATIENCE:g} s")

    def _play(self) -> bool:
        """Let clients and events run; False if they do not end."""
        plan = self._plan
        for number in range(CLIENTS):
            workload = Workload(number, plan.workload_seed(number), plan.places, plan.instructions)
            self._clients.append(Client(workload, self._regions, self._lives, plan, self._switch, self._network))
        for client in self._clients:
            client.turn()
        self._look()
        return self._until_over("instructions have no reply")

    def _until_over(self, what: str) -> bool:
        answered = -1
        while not self._network.run(self._is_over, self._network.now + PATIENCE):
            if self._answered == answered:
                open_ones = [open_request for client in self._clients for open_request in client.unanswered]
                self._hang(f"{len(open_ones)} {what}")
                for _, entry in open_ones[:5]:
                    self._say(f"    {entry.describe()}")
                return False
            answered = self._answered
        return True

    def _is_over(self) -> bool:
        return all(client.over for client in self._clients) and self._is_whole()

    @property
    def _answered(self) -> int:
        return sum(client.answered for client in self._clients)

    def _look(self) -> None:
        """Begin the next event when its time has come."""
        self._network.later(_LOOK, self._look)
        if not self._waiting or self._answered < self._waiting[0].after:
            return
        event = self._waiting[0]
        if event.whom in self._happening or (event.waits and not self._is_whole()):
            return
        self._waiting.pop(0)
        self._happening.add(event.whom)
        undo = self._do(event)
        self._totals.faults[event.kind.value] += 1

        def over() -> None:
            undo()
            self._network.later(REPORTED, lambda: self._happening.discard(event.whom))

        self._network.later(event.seconds, over)

    def _is_whole(self) -> bool:
        return not self._happening and self._controller.whole()

    def _do(self, event: Event) -> Callable[[], None]:
        """Begin it; returns how it is undone."""
        if event.kind is MemoryEventKind.KILL_DEVICE:
            self._hosts[event.what].kill()
            return self._hosts[event.what].start
        if event.kind is MemoryEventKind.HANG_DEVICE:
            self._hosts[event.what].hang(hang=True)
            return lambda: self._hosts[event.what].hang(hang=False)
        if event.kind is MemoryEventKind.MOVE:
            self._controller.move(event.what, event.to)
            return lambda: None
        if event.kind is MemoryEventKind.RESTART_SWITCH:
            self._switch.on = False
            self._switch.ways.clear()
            return lambda: setattr(self._switch, "on", True)
        if event.kind is MemoryEventKind.LOSE:
            return self._lose(event.what)
        self._controller.on = False
        return self._controller.restart

    def _lose(self, name: str) -> Callable[[], None]:
        """End all devices of a region. They come back empty, and the region is made anew once its loss was noticed."""
        hosts = [self._hosts[host] for host in self._plan.region(name).hosts]
        for host in hosts:
            host.kill()
        marker = f"{name} is made anew"
        self._happening.add(marker)
        renewing = self._renewing(name, self._network.now)

        def get_on() -> None:
            if next(renewing, None) is None:
                self._happening.discard(marker)
            else:
                self._network.later(_LOOK, get_on)

        def undo() -> None:
            for host in hosts:
                host.start()
            get_on()

        return undo

    def _renewing(self, name: str, lost: float) -> Iterator[str]:
        """Yields what it waits for."""
        numbers = self._plan.places_in(name)
        while not self._controller.is_lost(name):
            yield "it to be called lost"
        for client in self._clients:
            client.workload.pause(numbers)
        request = self._read(numbers)
        while any(number in numbers for client in self._clients for number, _ in client.unanswered):
            yield "what is asked of it to be refused"
        if not all(entry.lost for entry in request):
            self._totals.wrong += 1
            self._say(f"  WRONG: {name} is lost, and is read")
        self._switch.remove_region(self._regions[name].id)
        self._controller.delete(name)
        self._create(self._plan.region(name))
        while not self._controller.is_whole(name):
            yield "it to be made"
        self._lives.end(numbers, lost)
        for client in self._clients:
            client.workload.renew(numbers)
            client.turn()

    def _read_all(self) -> bool:
        """Read every place, once nothing else is in progress."""
        self._read(range(len(self._plan.places)))
        return self._until_over("last READs have no reply")

    def _read(self, numbers: Iterable[int]) -> list[HistoryEntry]:
        """Begin to read these places."""
        client, request = self._clients[0], []
        for number in numbers:
            for each in self._plan.places[number].reads():
                request.append(HistoryEntry(0, each, self._network.now))
                client.submit(number, request[-1])
        client.turn()
        return request

    def _compare(self) -> None:
        """All devices of a shard must have the same log, and the same bytes where they have executed as much of it."""
        for region in self._regions.values():
            for shard, hosts in enumerate(self._controller.holders(region.name)):
                found = [self._hosts[host].contents(region.id, shard) for host in hosts]
                logs = {each.end for each in found}
                states = {(each.executed, each.memory) for each in found}
                if len(logs) > 1 or len(states) > len({executed for executed, _ in states}):
                    self._totals.wrong += 1
                    self._say(f"  WRONG: {region.name}, shard {shard}: {' and '.join(hosts)} hold different bytes")

    def _count(self) -> None:
        totals = self._totals
        totals.operations += self._answered
        totals.faults.update(self._network.counts)
        for client in self._clients:
            totals.retransmissions += client.endpoint.stats.retransmissions
            totals.bytes += client.endpoint.stats.bytes_sent + client.endpoint.stats.bytes_received
            for line in client.refused:
                totals.wrong += 1
                self._say(f"  WRONG: refused: {line}")
