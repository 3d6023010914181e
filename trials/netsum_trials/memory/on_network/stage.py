"""Rounds on a network."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from netsum.memory.array import MemoryArray
from netsum_controller.memory.spec import RegionSpec
from netsum_testbed.checking import Screen
from netsum_testbed.fabric import Fabric

from netsum_trials.memory.history import Entry
from netsum_trials.memory.judge import judge
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
        self._histories: list[list[Entry]] = [[] for _ in plan.places]
        self._before = totals.operations

    def run(self) -> None:
        plan, say = self._plan, self._screen.say
        say(f"round {plan.index}: {plan.describe()}")
        with ExitStack() as stack:
            for region in plan.regions:
                self._create(region)
                stack.callback(self._fabric.controller.delete_region, region.name)
            wires = stack.enter_context(Wires(self._fabric, plan.rates, plan.seed, self._totals.faults))
            events = Events(self._fabric, plan, wires, self._totals, say)
            stack.callback(events.close)
            arrays = [self._open(number, wires, stack) for number in range(CLIENTS)]
            askers = [Asker(each, plan.asker_seed(each), plan.places, plan.instructions) for each in range(CLIENTS)]
            clients = [
                Client(asker, plan, opened, self._histories) for asker, opened in zip(askers, arrays, strict=True)
            ]
            try:
                self._play(events, clients)
            finally:
                self._count(clients, arrays)
        judge(plan, self._histories, self._totals, say)

    def _create(self, region: RegionPlan) -> None:
        spec = RegionSpec(
            name=region.name,
            size=region.size,
            granule=region.granule,
            shards=region.shards,
            replicas=region.replicas,
            dtype=region.dtype,  # type: ignore[arg-type]  # pydantic checks it
            devices=region.hosts,
        )
        self._fabric.memory.create(spec)

    def _open(self, number: int, wires: Wires, stack: ExitStack) -> Mapping[str, MemoryArray]:
        """All regions as one client, on the host with this number."""
        host = list(self._fabric.topology.hosts)[number]
        opened: dict[str, MemoryArray] = {}
        for region in self._plan.regions:
            shared = next(iter(opened.values())).client if opened else None
            opened[region.name] = self._fabric.memory.open(region.name, host, wrap=wires.wrap, client=shared)
            stack.callback(opened[region.name].close)
        return opened

    def _play(self, events: Events, clients: Sequence[Client]) -> None:
        """Let the clients ask and everything happen, then read all that is there."""
        for client in clients:
            client.start()
        try:
            while any(client.is_alive() for client in clients):
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
        for number, place in enumerate(self._plan.places):
            for asked in place.reads():
                entry = Entry(0, asked, time.monotonic())
                clients[0].finish_one(number, entry, clients[0].start_one(number, entry))

    def _count(self, clients: Sequence[Client], arrays: Sequence[Mapping[str, MemoryArray]]) -> None:
        totals = self._totals
        totals.operations = self._before + sum(client.answered for client in clients)
        for client, opened in zip(clients, arrays, strict=True):
            stats = next(iter(opened.values())).stats
            totals.retransmissions += stats.retransmissions
            totals.bytes += stats.bytes_sent + stats.bytes_received
            totals.wrong += len(client.refused)
            totals.hangs += len(client.late)
            for line in client.refused:
                self._screen.say(f"  WRONG: refused: {line}")
            for line in client.late:
                self._screen.say(f"  HANG: {line}")
        for entries in self._histories:
            totals.instructions.update(entry.asked.instruction.name.lower() for entry in entries)
