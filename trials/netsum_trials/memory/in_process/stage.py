"""A round in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from netsum.wire.memory import MEMORY_PORT
from netsum_controller.config.topologies import star
from netsum_controller.memory.model import Region

from netsum_trials.faults.scenario import Rates
from netsum_trials.memory.history import Entry
from netsum_trials.memory.in_process.clients import Client
from netsum_trials.memory.in_process.controller import LEASE, Controller, make_region
from netsum_trials.memory.in_process.devices import Host
from netsum_trials.memory.in_process.network import Network
from netsum_trials.memory.in_process.switch import Switch
from netsum_trials.memory.judge import judge
from netsum_trials.memory.places import Asker
from netsum_trials.memory.plan import CLIENTS, Event, Kind, Plan, Site
from netsum_trials.memory.report import MemoryTotals

TOPOLOGY: Final = star(6)
SITE: Final = Site(tuple(TOPOLOGY.hosts)[:5], settling=2 * LEASE)
FIRST_ADDRESS: Final = 1 << 32
PATIENCE: Final = 30.0
"""Seconds, of the network's, in which something must get on."""
HEARD: Final = 0.5
"""Seconds within which the controller has heard what has become of a device, and begun to do something about it."""
_LOOK: Final = 0.01


class Stage:
    """One round of a plan; devices' files go into a folder."""

    def __init__(self, plan: Plan, folder: Path, totals: MemoryTotals, say: Callable[[str], None]) -> None:
        self._plan, self._totals, self._say = plan, totals, say
        self._network = network = Network(f"network {plan.seed} {plan.index}", Rates())
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
        self._histories: list[list[Entry]] = [[] for _ in plan.places]
        self._clients: list[Client] = []
        self._waiting = list(plan.events)
        self._happening: set[str] = set()

    def run(self) -> None:
        try:
            regions = self._begin()
            if regions is not None and self._play(regions) and self._read_all():
                self._compare(regions)
        finally:
            for host in self._hosts.values():
                host.close()
            self._count()
        judge(self._plan, self._histories, self._totals, self._say)

    def _begin(self) -> dict[str, Region] | None:
        """Start devices, make regions; None if they are not made."""
        for host in self._hosts.values():
            host.start()
        self._controller.tend()
        regions, base = {}, FIRST_ADDRESS
        for number, plan in enumerate(self._plan.regions, 1):
            base = (base + plan.size - 1) // plan.size * plan.size
            regions[plan.name] = make_region(number, base, plan)
            self._switch.add_region(number, base, plan)
            self._controller.create(regions[plan.name])
            base += plan.size
        if not self._network.run(self._controller.whole, self._network.now + PATIENCE):
            self._hang("the regions are not made")
            return None
        self._network.rates = self._plan.rates
        return regions

    def _hang(self, what: str) -> None:
        self._totals.hangs += 1
        self._say(f"  HANG: {what} after {PATIENCE:g} s")

    def _play(self, regions: dict[str, Region]) -> bool:
        """Let the clients ask, and everything happen; False if that comes to no end."""
        plan = self._plan
        places = [(place, regions[place.region]) for place in plan.places]
        for number in range(CLIENTS):
            asker = Asker(number, plan.asker_seed(number), plan.places, plan.instructions)
            self._clients.append(Client(asker, places, self._histories, plan, self._switch, self._network))
        for client in self._clients:
            client.turn()
        self._look()
        return self._until_over("instructions have no reply")

    def _until_over(self, what: str) -> bool:
        answered = -1
        while not self._network.run(self._is_over, self._network.now + PATIENCE):
            if self._answered == answered:
                open_ones = [asking for client in self._clients for asking in client.unanswered]
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
            self._network.later(HEARD, lambda: self._happening.discard(event.whom))

        self._network.later(event.seconds, over)

    def _is_whole(self) -> bool:
        return not self._happening and self._controller.whole()

    def _do(self, event: Event) -> Callable[[], None]:
        """Begin it; returns how it is undone."""
        if event.kind is Kind.KILL_DEVICE:
            self._hosts[event.what].kill()
            return self._hosts[event.what].start
        if event.kind is Kind.HANG_DEVICE:
            self._hosts[event.what].hang(hang=True)
            return lambda: self._hosts[event.what].hang(hang=False)
        if event.kind is Kind.MOVE:
            self._controller.move(event.what, event.to)
            return lambda: None
        if event.kind is Kind.RESTART_SWITCH:
            self._switch.on = False
            self._switch.ways.clear()
            return lambda: setattr(self._switch, "on", True)
        self._controller.on = False
        return self._controller.restart

    def _read_all(self) -> bool:
        """Read every place when all is quiet."""
        client = self._clients[0]
        for number, place in enumerate(self._plan.places):
            for asked in place.reads():
                client.submit(number, Entry(0, asked, self._network.now))
        client.turn()
        return self._until_over("last READs have no reply")

    def _compare(self, regions: dict[str, Region]) -> None:
        """All devices of a shard must have the same log, and the same bytes where they have executed as much of it."""
        for region in regions.values():
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
            totals.retransmissions += client.window.stats.retransmissions
            totals.bytes += client.window.stats.bytes_sent + client.window.stats.bytes_received
            for line in client.refused:
                totals.wrong += 1
                self._say(f"  WRONG: refused: {line}")
        for entries in self._histories:
            totals.instructions.update(entry.asked.instruction.name.lower() for entry in entries)
