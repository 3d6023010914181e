# SPDX-License-Identifier: MIT
"""Rounds on a network."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, Self

from netsum.memory.array import MemoryArray
from netsum.transports.base import Transport
from netsum.transports.impairment import ImpairedTransport, ImpairmentCounts
from netsum_controller.config.topologies import star
from netsum_controller.errors import ControllerError
from netsum_controller.memory.model import RegionSpec, RegionState
from netsum_testbed.checking import Screen
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import NamespaceFabric

from tests.system.faults.fabrics import OutsideRootless, ServesOutside
from tests.system.faults.scenario import Rates
from tests.system.memory.model import HistoryEntry
from tests.system.memory.on_network.clients import Client
from tests.system.memory.places import Workload
from tests.system.memory.plan import CLIENTS, Event, MemoryEventKind, MemoryPlan, RegionPlan, Site
from tests.system.memory.round import MemoryTotals, Round, has_all

DEVICES: Final = {"h9": True, "h10": True, "h11": True, "h12": False, "h13": False}
"""By host, whether a device has its memory in files."""
SETTLES: Final = 6.0
"""Seconds until everything is whole after an event, more or less."""
WHOLE: Final = 60.0
"""Seconds within which everything must be whole again."""
_POLL: Final = 0.02


def open_site(switch: str, *, rootless: bool) -> Fabric:
    """Hosts of clients and devices around one switch. Without root the controller is a process of its own, which can be
    killed."""
    topology = star(CLIENTS + len(DEVICES))
    return OutsideRootless(topology, switch) if rootless else NamespaceFabric(topology, switch)


def start_devices(fabric: Fabric) -> Site:
    """Start `netsum-memory` on the devices' hosts; returns what can happen there."""
    for files in (True, False):
        fabric.memory.start([host for host, kept in DEVICES.items() if kept is files], folders=files)
    outside = isinstance(fabric, ServesOutside)
    kinds = [kind for kind in MemoryEventKind if outside or kind is not MemoryEventKind.RESTART_CONTROLLER]
    return Site(tuple(DEVICES), settling=SETTLES, kinds=kinds, files=DEVICES)


class Wires:
    """Faults of packets: at the ports of a rootless fabric's switch, where all of clients and devices pass; else at the
    clients. It is counted in ``faults``."""

    def __init__(self, fabric: Fabric, rates: Rates, seed: int, faults: Counter[str]) -> None:
        self._fabric, self._rates, self._seed, self._faults = fabric, rates, seed, faults
        self._counts = ImpairmentCounts()

    def __enter__(self) -> Self:
        if isinstance(self._fabric, ServesOutside):
            rates = self._rates.model_dump(exclude_defaults=True)
            hosts = self._fabric.topology.hosts.values()
            ports = {str(host.port): {"in": rates, "out": rates} for host in hosts} if rates else {}
            self._fabric.set_wires("s1", {"seed": self._seed, "ports": ports})
        return self

    def wrap(self, transport: Transport) -> Transport:
        """A client's transport."""
        if isinstance(self._fabric, ServesOutside):
            return transport
        self._seed += 1
        return ImpairedTransport(transport, self._rates.faults(), self._seed, counts=self._counts)

    def __exit__(self, *_: object) -> None:
        """Let everything pass again."""
        if isinstance(self._fabric, ServesOutside):
            self._faults.update(self._fabric.good_wires())
            return
        counts = self._counts
        done = {"loss": counts.dropped, "duplicate": counts.duplicated, "reorder": counts.reordered}
        self._faults.update({name: number for name, number in done.items() if number > 0})


class NetworkRound(Round):
    """One plan on the network."""

    reported = 1.5

    def __init__(self, fabric: Fabric, plan: MemoryPlan, totals: MemoryTotals, screen: Screen) -> None:
        super().__init__(plan, totals, screen.say)
        self._fabric, self._screen = fabric, screen
        self._wires = Wires(fabric, plan.rates, plan.seed, totals.faults)
        self._clients: list[Client] = []
        self._before = totals.operations

    def run(self) -> None:
        plan = self.plan
        self.say(f"round {plan.index}: {plan.describe()}")
        with ExitStack() as stack:
            for region in plan.regions:
                self.create(region)
                stack.callback(self.delete, region.name)
            stack.enter_context(self._wires)
            stack.callback(self.end_events)
            for number in range(CLIENTS):
                workload = Workload(number, plan.workload_seed(number), plan.places, plan.instructions)
                arrays = self._open(number)
                stack.callback(next(iter(arrays.values())).client.close)
                self._clients.append(Client(workload, plan, arrays, self.lives))
            try:
                self._play()
            finally:
                self._count()
        self.judge()

    def _open(self, number: int) -> Mapping[str, MemoryArray]:
        """All regions as one client, on the host with this number."""
        opened: dict[str, MemoryArray] = {}
        for region in self.plan.regions:
            shared = next(iter(opened.values())).client if opened else None
            opened[region.name] = self._fabric.memory.open(region.name, self._host(number), wrap=self._wires.wrap, client=shared)
        return opened

    def _host(self, number: int) -> str:
        return list(self._fabric.topology.hosts)[number]

    def _play(self) -> None:
        """Let the clients ask and everything happen, then read all that is there."""
        clients = self._clients
        for client in clients:
            client.start()
        try:
            while not all(client.over or not client.is_alive() for client in clients):
                self.look()
                self.totals.operations = self._before + self.answered
                self._screen.show(self.totals)
                time.sleep(_POLL)
        finally:
            for client in clients:
                client.stopped.set()
            for client in clients:
                client.join()
        deadline = self.now() + WHOLE
        while not self.is_whole():
            if self.now() > deadline:
                self.report_hang(f"not everything is whole again after {WHOLE:g} s")
                return
            self.look(begin=False)
            time.sleep(_POLL)
        self.read(range(len(self.plan.places)))

    def _count(self) -> None:
        totals = self.totals
        totals.operations = self._before + self.answered
        for client in self._clients:
            stats = next(iter(client.arrays.values())).stats
            totals.retransmissions += stats.retransmissions
            totals.bytes += stats.bytes_sent + stats.bytes_received
            for line in client.late:
                self.report_hang(line)

    def _do(self, event: Event) -> Callable[[], object]:
        self.say(f"  {event.describe()}")
        return super()._do(event)

    # What a round needs.

    @property
    def clients(self) -> Sequence[Client]:
        return self._clients

    def now(self) -> float:
        return time.monotonic()

    def kill(self, device: str) -> None:
        self._fabric.memory.devices[device].kill()

    def start(self, device: str) -> None:
        process = self._fabric.memory.devices[device]
        process.start()
        process.wait_ready()

    def hang(self, device: str, *, hang: bool) -> None:
        os.kill(self._fabric.memory.devices[device].pid, signal.SIGSTOP if hang else signal.SIGCONT)

    def move(self, region: str, hosts: tuple[str, ...]) -> None:
        try:
            self._fabric.controller.move_region(region, hosts)
        except ControllerError as error:
            self.say(f"  no move: {error}")

    def restart_switch(self) -> Callable[[], object]:
        self._fabric.kill_switch()
        return self._fabric.start_switch

    def restart_controller(self) -> Callable[[], object]:
        assert isinstance(self._fabric, ServesOutside), "only there it is a process"
        self._fabric.served.kill()
        return self._fabric.served.start

    def create(self, region: RegionPlan) -> None:
        given = {name: getattr(region, name) for name in ("name", "size", "granule", "shards", "replicas", "dtype", "kind")}
        self._fabric.memory.create(RegionSpec(**given, options=dict(region.options), devices=region.hosts))
        for number, client in enumerate(self._clients):  # if there are any, it was lost
            shared = client.arrays[region.name].client
            client.arrays[region.name] = self._fabric.memory.open(region.name, self._host(number), client=shared)

    def delete(self, region: str) -> None:
        self._fabric.controller.delete_region(region)

    def is_lost(self, region: str) -> bool:
        shards = self._fabric.controller.context.memory.state().shards[region]
        return all(placed.now.lost and placed.next is None for placed in shards)

    def is_made(self, region: str | None = None) -> bool:
        state = self._fabric.controller.context.memory.state()
        plans = [plan for plan in self.plan.regions if region in (None, plan.name)]
        return all(state.devices[host].alive for host in self.plan.devices) and all(
            state.regions[plan.name].state is RegionState.READY
            and all(placed.next is None and has_all(placed.now, plan.replicas) for placed in state.shards[plan.name])
            for plan in plans
        )

    def read(self, numbers: Iterable[int]) -> list[HistoryEntry]:
        client, entries = self._clients[0], []
        for number in numbers:
            for request in self.plan.places[number].reads():
                entries.append(HistoryEntry(0, request, self.now()))
                client.read_one(number, entries[-1])
        return entries
