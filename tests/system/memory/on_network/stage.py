"""Rounds on a network."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Final, Self

from netsum.memory.array import MemoryArray
from netsum.transports.base import Transport
from netsum.transports.impairment import ImpairedTransport, ImpairmentCounts
from netsum_controller.config.topologies import star
from netsum_controller.errors import ControllerError
from netsum_controller.memory.model import RegionSpec, RegionState, Shard
from netsum_testbed.checking import Screen
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import NamespaceFabric
from netsum_testbed.memory_devices import MemoryDevice

from tests.system.faults.scenario import Rates
from tests.system.memory.model import HistoryEntry
from tests.system.memory.on_network.clients import Client
from tests.system.memory.oracle import Lives, judge
from tests.system.memory.places import Workload
from tests.system.memory.plan import CLIENTS, Event, MemoryEventKind, MemoryPlan, RegionPlan, Site
from tests.system.memory.report import MemoryTotals
from tests.system.memory.run import NETWORK, MemoryCheckOptions, play_rounds
from tests.system.soak.workers import OutsideRootless, ServesOutside

# A network of clients' and devices' hosts around one switch, whose wires can be bad.


DEVICES: Final = {"h9": True, "h10": True, "h11": True, "h12": False, "h13": False}
"""By host, whether a device has its memory in files."""
SETTLES: Final = 6.0
"""Seconds until everything is whole after an event, more or less."""


def open_site(switch: str, *, rootless: bool) -> Fabric:
    """Without root the controller is a process of its own, which can be killed."""
    topology = star(CLIENTS + len(DEVICES))
    return OutsideRootless(topology, switch) if rootless else NamespaceFabric(topology, switch)


def possible_on(fabric: Fabric) -> Site:
    """Events that can happen there."""
    outside = isinstance(fabric, ServesOutside)
    kinds = [kind for kind in MemoryEventKind if outside or kind is not MemoryEventKind.RESTART_CONTROLLER]
    return Site(tuple(DEVICES), settling=SETTLES, kinds=kinds, files=DEVICES)


class Wires:
    """Faults of packets: at the ports of a rootless fabric's switch, where all of clients and devices pass; else at the
    clients. It is counted in ``faults``."""

    def __init__(self, fabric: Fabric, rates: Rates, seed: int, faults: Counter[str]) -> None:
        self._fabric, self._rates, self._seed, self._faults = fabric, rates, seed, faults
        self._counts = ImpairmentCounts()
        self._before: Counter[str] | None = None

    def __enter__(self) -> Self:
        if isinstance(self._fabric, ServesOutside):
            rates = self._rates.model_dump(exclude_defaults=True)
            hosts = self._fabric.topology.hosts.values()
            ports = {str(host.port): {"in": rates, "out": rates} for host in hosts} if rates else {}
            self._before = self._fabric.set_wires("s1", {"seed": self._seed, "ports": ports})
        return self

    def wrap(self, transport: Transport) -> Transport:
        """A client's transport."""
        if self._before is not None:
            return transport
        self._seed += 1
        return ImpairedTransport(transport, self._rates.faults(), self._seed, counts=self._counts)

    def begin_anew(self) -> None:
        """The switch's process has ended, and the next one counts from zero."""
        if self._before is not None:
            self._before = Counter()

    def __exit__(self, *_: object) -> None:
        """Let everything pass again."""
        if isinstance(self._fabric, ServesOutside) and self._before is not None:
            found = self._fabric.set_wires("s1", {})
            found.subtract(self._before)
            done = {"loss": found["lost"], "duplicate": found["duplicated"], "reorder": found["reordered"]}
        else:
            counts = self._counts
            done = {"loss": counts.dropped, "duplicate": counts.duplicated, "reorder": counts.reordered}
        self._faults.update({name: number for name, number in done.items() if number > 0})


# A round's events, which happen to devices, regions, the switch and the controller, one after the other.


REPORTS: Final = 1.5
"""Seconds within which the controller has noticed what happened to a device, and begun to act."""
WHOLE: Final = 60.0
"""Seconds within which everything must be whole again."""
_EVENT_POLL: Final = 0.05


class Events:
    """To be looked after by one thread."""

    def __init__(
        self,
        fabric: Fabric,
        plan: MemoryPlan,
        wires: Wires,
        totals: MemoryTotals,
        say: Callable[[str], None],
        renewing: Callable[[str, float], Iterator[str]],
    ) -> None:
        """``renewing``: makes a region anew that was lost at that time, and yields what it waits for."""
        self._fabric, self._plan, self._wires, self._totals, self._say = fabric, plan, wires, totals, say
        self._renewing = renewing
        self._renewed: Iterator[str] = iter(())
        self._waiting = list(plan.events)
        self._undo: dict[str, tuple[float, Callable[[], None]]] = {}
        self._calm = 0.0

    def look(self, answered: int) -> None:
        """Begin the events that are due after so many answers, and end those whose time is up."""
        for whom, (due, undo) in list(self._undo.items()):
            if time.monotonic() >= due:
                undo()
                del self._undo[whom]
                self._calm = time.monotonic() + REPORTS
        if next(self._renewed, None) is not None:
            self._calm = time.monotonic() + REPORTS
            return
        if not self._waiting or answered < self._waiting[0].after:
            return
        event = self._waiting[0]
        if event.whom not in self._undo and (self.whole() or not event.waits):
            self._waiting.pop(0)
            self._say(f"  {event.describe()}")
            self._undo[event.whom] = time.monotonic() + event.seconds, self._do(event)
            self._totals.faults[event.kind.value] += 1

    def whole(self) -> bool:
        """True if no event is in progress, and every shard has all its devices with all contents."""
        if self._undo or time.monotonic() < self._calm:
            return False
        state = self._fabric.controller.context.memory.state()
        if not all(state.devices[host].alive for host in self._plan.devices):
            return False
        return all(
            state.regions[plan.name].state is RegionState.READY
            and all(placed.next is None and _has_all(placed.now, plan.replicas) for placed in state.shards[plan.name])
            for plan in self._plan.regions
        )

    def wait_whole(self) -> bool:
        """End what lasts, and wait; False if things do not get whole."""
        deadline = time.monotonic() + WHOLE
        while not self.whole():
            if time.monotonic() > deadline:
                return False
            self.look(-1)
            time.sleep(_EVENT_POLL)
        return True

    def close(self) -> None:
        """Undo what lasts, whatever it is."""
        while self._undo:
            self._undo.popitem()[1][1]()

    def _do(self, event: Event) -> Callable[[], None]:
        """Begin it; returns how it is undone."""
        fabric = self._fabric
        if event.kind is MemoryEventKind.KILL_DEVICE:
            device = fabric.memory.devices[event.what]
            device.kill()
            return lambda: _start(device)
        if event.kind is MemoryEventKind.HANG_DEVICE:
            pid = fabric.memory.devices[event.what].pid
            os.kill(pid, signal.SIGSTOP)
            return lambda: os.kill(pid, signal.SIGCONT)
        if event.kind is MemoryEventKind.MOVE:
            try:
                fabric.controller.move_region(event.what, event.to)
            except ControllerError as error:
                self._say(f"  no move: {error}")
            return lambda: None
        if event.kind is MemoryEventKind.RESTART_SWITCH:
            fabric.kill_switch()
            self._wires.begin_anew()
            return fabric.start_switch
        if event.kind is MemoryEventKind.LOSE:
            return self._lose(event.what)
        assert isinstance(fabric, ServesOutside), "only there it is a process"
        fabric.served.kill()
        return fabric.served.start

    def _lose(self, name: str) -> Callable[[], None]:
        """End all devices of a region; they are back with nothing."""
        devices = [self._fabric.memory.devices[host] for host in self._plan.region(name).hosts]
        for device in devices:
            device.kill()
        lost = time.monotonic()

        def undo() -> None:
            for device in devices:
                _start(device)
            self._renewed = self._renewing(name, lost)

        return undo


def _start(device: MemoryDevice) -> None:
    device.start()
    device.wait_ready()


def _has_all(shard: Shard, replicas: int) -> bool:
    members = shard.group.members
    return shard.lost or (shard.target is None and len(members) >= replicas and not any(each.joining for each in members))


_POLL: Final = 0.02


def play_on_network(options: MemoryCheckOptions, totals: MemoryTotals, screen: Screen) -> None:
    """The second stage."""
    with open_site(totals.switch, rootless=options.rootless) as fabric:
        where = "rootless" if fabric.rootless else "namespace"
        screen.say(f"memory-check on the {totals.switch} switch ({where}), seed {options.seed}")
        for files in (True, False):
            fabric.memory.start([host for host, kept in DEVICES.items() if kept is files], folders=files)

        def play(plan: MemoryPlan) -> None:
            _Round(fabric, plan, totals, screen).run()

        play_rounds(options, NETWORK, possible_on(fabric), totals, screen, play)


class _Round:
    """One plan on the network."""

    def __init__(self, fabric: Fabric, plan: MemoryPlan, totals: MemoryTotals, screen: Screen) -> None:
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
                workload = Workload(number, plan.workload_seed(number), plan.places, plan.instructions)
                arrays = self._open(number, wires)
                stack.callback(next(iter(arrays.values())).client.close)
                self._clients.append(Client(workload, plan, arrays, self._lives))
            try:
                self._play(events)
            finally:
                self._count()
        judge(plan, self._lives, self._totals, say)

    def _create(self, region: RegionPlan) -> None:
        given = {name: getattr(region, name) for name in ("name", "size", "granule", "shards", "replicas", "dtype", "kind")}
        self._fabric.memory.create(RegionSpec(**given, options=dict(region.options), devices=region.hosts))

    def _open(self, number: int, wires: Wires) -> Mapping[str, MemoryArray]:
        """All regions as one client, on the host with this number."""
        opened: dict[str, MemoryArray] = {}
        for region in self._plan.regions:
            shared = next(iter(opened.values())).client if opened else None
            opened[region.name] = self._fabric.memory.open(region.name, self._host(number), wrap=wires.wrap, client=shared)
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
        while any(client.has_open(numbers) for client in self._clients):
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

    def _read(self, numbers: Iterable[int]) -> list[HistoryEntry]:
        """Read these places, one after the other."""
        client, entries = self._clients[0], []
        for number in numbers:
            for request in self._plan.places[number].reads():
                entry = HistoryEntry(0, request, time.monotonic())
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
