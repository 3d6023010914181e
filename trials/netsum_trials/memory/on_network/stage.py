"""Rounds on a network."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Final

from netsum.memory.array import MemoryArray
from netsum_controller.memory.model import RegionSpec
from netsum_testbed.checking import Screen
from netsum_testbed.fabric import Fabric

from netsum_trials.memory.history import Entry
from netsum_trials.memory.judge import Lives, judge
from netsum_trials.memory.on_network.clients import Client
from netsum_trials.memory.on_network.events import WHOLE, Events
from netsum_trials.memory.on_network.site import DEVICES, Wires, open_site, possible_on
from netsum_trials.memory.places import Asker
from netsum_trials.memory.plan import CLIENTS, Plan, RegionPlan
from netsum_trials.memory.report import MemoryTotals
from netsum_trials.memory.run import NETWORK, Options, play_rounds

_POLL: Final = 0.02


def play_on_network(options: Options, totals: MemoryTotals, screen: Screen) -> None:
    """The second stage."""
    with open_site(totals.switch, rootless=options.rootless) as fabric:
        where = "rootless" if fabric.rootless else "namespace"
        screen.say(f"memory-check on the {totals.switch} switch ({where}), seed {options.seed}")
        for files in (True, False):
            fabric.memory.start([host for host, kept in DEVICES.items() if kept is files], folders=files)

        def play(plan: Plan) -> None:
            _Round(fabric, plan, totals, screen).run()

        play_rounds(options, NETWORK, possible_on(fabric), totals, screen, play)


class _Round:
    """One plan on the network."""

    def __init__(self, fabric: Fabric, plan: Plan, totals: MemoryTotals, screen: Screen) -> None:
        self._fabric, self._plan, self._totals, self._screen = fabric, plan, totals, screen
        self._lives = Lives(plan)
        self._clients: list[Client] = []
        self._before = totals.operations

    def run(self) -> None:
        plan, say = self._plan, self._screen.say
        say(f"round {plan.index}: {plan.describe()}")
        with ExitStack() as stack:
            for region in plan.regions:
                self._create(region)
                stack.callback(self._fabric.controller.delete_region, region.name)
            wires = stack.enter_context(Wires(self._fabric, plan.rates, plan.seed, self._totals.faults))
            events = Events(self._fabric, plan, wires, self._totals, say, self._renewing)
            stack.callback(events.close)
            for number in range(CLIENTS):
                asker = Asker(number, plan.asker_seed(number), plan.places, plan.instructions)
                arrays = self._open(number, wires)
                stack.callback(next(iter(arrays.values())).client.close)
                self._clients.append(Client(asker, plan, arrays, self._lives))
            try:
                self._play(events)
            finally:
                self._count()
        judge(plan, self._lives, self._totals, say)

    def _create(self, region: RegionPlan) -> None:
        given = {
            name: getattr(region, name) for name in ("name", "size", "granule", "shards", "replicas", "dtype", "kind")
        }
        self._fabric.memory.create(RegionSpec(**given, options=dict(region.options), devices=region.hosts))

    def _open(self, number: int, wires: Wires) -> Mapping[str, MemoryArray]:
        """All regions as one client, on the host with this number."""
        opened: dict[str, MemoryArray] = {}
        for region in self._plan.regions:
            shared = next(iter(opened.values())).client if opened else None
            opened[region.name] = self._fabric.memory.open(
                region.name, self._host(number), wrap=wires.wrap, client=shared
            )
        return opened

    def _host(self, number: int) -> str:
        return list(self._fabric.topology.hosts)[number]

    def _renewing(self, name: str, lost: float) -> Iterator[str]:
        """Make a region anew whose devices all went then; yields what it waits for."""
        memory, numbers = self._fabric.controller.context.memory, self._plan.places_in(name)
        while not all(placed.now.lost and placed.next is None for placed in memory.state().shards[name]):
            yield "it to be called lost"
        for client in self._clients:
            client.pause(numbers)
        if not all(entry.lost for entry in self._read(numbers)):
            self._totals.wrong += 1
            self._screen.say(f"  WRONG: {name} is lost, and is read")
        while any(client.asks(numbers) for client in self._clients):
            yield "what is asked of it to be refused"
        self._fabric.controller.delete_region(name)
        self._create(self._plan.region(name))
        self._lives.end(numbers, lost)
        for number, client in enumerate(self._clients):
            shared = client.arrays[name].client
            client.renew(numbers, self._fabric.memory.open(name, self._host(number), client=shared))

    def _play(self, events: Events) -> None:
        """Let the clients ask and everything happen, then read all that is there."""
        clients = self._clients
        for client in clients:
            client.start()
        try:
            while not all(client.over for client in clients):
                events.look(sum(client.answered for client in clients))
                self._totals.operations = self._before + sum(client.answered for client in clients)
                self._screen.show(self._totals)
                time.sleep(_POLL)
        finally:
            for client in clients:
                client.stopped.set()
            for client in clients:
                client.join()
        if not events.wait_whole():
            self._totals.hangs += 1
            self._screen.say(f"  HANG: not everything is whole again after {WHOLE:g} s")
            return
        self._read(range(len(self._plan.places)))

    def _read(self, numbers: Iterable[int]) -> list[Entry]:
        """Read these places, one after the other."""
        client, entries = self._clients[0], []
        for number in numbers:
            for asked in self._plan.places[number].reads():
                entry = Entry(0, asked, time.monotonic())
                client.finish_one(number, entry, client.start_one(number, entry))
                entries.append(entry)
        return entries

    def _count(self) -> None:
        totals = self._totals
        totals.operations = self._before + sum(client.answered for client in self._clients)
        for client in self._clients:
            stats = next(iter(client.arrays.values())).stats
            totals.retransmissions += stats.retransmissions
            totals.bytes += stats.bytes_sent + stats.bytes_received
            totals.wrong += len(client.refused)
            totals.hangs += len(client.late)
            for line in client.refused:
                self._screen.say(f"  WRONG: refused: {line}")
            for line in client.late:
                self._screen.say(f"  HANG: {line}")
