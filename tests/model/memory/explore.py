# SPDX-License-Identifier: MIT
"""Explores every behavior of a shard: loss, doubling, reordering, restarts, devices that only seem dead, changes of the group.

As in ``tests/model/explore.py``, **the network** is the set of all packets ever sent: any may come at any time, any number of
times, or never; alone, or with all others that are there for the same device, in one batch. A reply reaches its client at once
or never; later would only make it harder to see that something is wrong.

**Safety**, in every reachable state:

- All devices have executed beginnings of one sequence, in which nothing is twice: so replicas are bit-equal and everything is
  done exactly once, also after a restart or a promotion.
- All of that is in the logs of all members that count: so nothing acknowledged is lost with the others.
- Who is answered is shown at least all that any device was shown before the instruction was sent for the first time: histories
  are linearizable (each instruction takes effect at its position, each read behind the last position that it shows).

**Liveness**, from every reachable state: if nothing more is lost, no device fails and timers run, all clients come to their end,
and all members have executed the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import NamedTuple

from netsum_controller.memory.failover import Report, ShardLostError, next_group, noted
from netsum_controller.memory.model import ReplicaGroup

from tests.model.memory.device import Asked, Name
from tests.model.memory.scenario import R, Scenario
from tests.model.memory.transitions import LOST, After, Request, Transitions
from tests.model.search import search
from tests.model.transitions import bits

STUCK = "a device waits for ever"
ROUNDS = 40
"""More rounds of timers than any end takes."""


class Client(NamedTuple):
    """The number of complete instructions; what had been shown to any device when the present one was first sent, None before;
    what it was told itself."""

    complete: int = 0
    floor: int | None = None
    told: int = 0


class World(NamedTuple):
    """A state. ``network`` is a bit mask over packets; ``tables`` are the groups that the switches know."""

    devices: tuple[int, ...]
    tables: tuple[ReplicaGroup, ...]
    group: ReplicaGroup  # the controller's
    clients: tuple[Client, ...]
    network: int
    done: tuple[Name, ...] = ()  # the longest that any device has executed
    shown: int = 0  # the last position whose effect any device was shown
    changes: int = 0  # how many of the wanted changes have been made known
    restarts: tuple[int, ...] = ()  # devices that may still restart
    put_back: tuple[int, ...] = ()  # devices whose folder may still be put back
    wrong: str = ""


@dataclass
class Explorer:
    """One exploration. :meth:`run` returns the number of states or raises :class:`~tests.model.search.Violation`."""

    scenario: Scenario

    def __post_init__(self) -> None:
        self.by = Transitions(self.scenario)
        self._finishes = cache(self._finishes_once)

    def run(self, *, liveness: bool = True, seed: int | None = None) -> int:
        return len(
            search(
                self._start(),
                self._steps,
                lambda world: world.wrong or self._lacks(world),
                stuck=self._stuck if liveness else lambda _: "",
                name=self.scenario.name,
                limit=3_000_000,
                seed=seed,
            )
        )

    def _stuck(self, world: World) -> str:
        return "" if self._finishes(world._replace(network=0)) else STUCK

    def _lacks(self, world: World) -> str:
        """Which member that counts does not hold all that any device has executed, in that order."""
        for member in world.group.members:
            device = world.devices[int(member.host)]
            if self._is_back(world, int(member.host)):
                continue  # it is for the device or the controller to find out, once a device is to be shown something
            if not member.joining and member.incarnation == self._report(world, int(member.host)).incarnation:
                held = self.by.log(device)
                if held[: len(world.done)] != world.done:
                    return f"device {member.host} counts and holds {held}, done is {world.done}"
        return ""

    def _is_back(self, world: World, host: int) -> bool:
        return host in self.scenario.put_back and host not in world.put_back

    # --- what happens -------------------------------------------------------------------------------------------------

    def _start(self) -> World:
        scenario, group = self.scenario, self.scenario.first_group()
        devices = tuple(self.by.new() for _ in range(scenario.devices))
        clients = tuple(Client() for _ in scenario.programs)
        world = World(
            devices,
            (group,) * scenario.switches,
            group,
            clients,
            0,
            restarts=scenario.restarts,
            put_back=scenario.put_back,
        )
        for host in range(scenario.group):
            *_, world = self._became(world, host, self.by.regroup(world.devices[host], host, group))
        self._first = world.devices
        return world

    def _steps(self, world: World) -> Iterator[tuple[str, World]]:
        coming: dict[int, list[int]] = {}
        for packet, host in self.by.to_host(world.network):
            coming.setdefault(host, []).append(packet)
        for host, packets in coming.items():
            batches: list[tuple[int, ...]] = [(each,) for each in packets]
            if len(packets) > 1 and self.scenario.batches:
                batches += [tuple(packets), tuple(packets[::-1])]
            for batch in batches:
                after = self.by.deliver(world.devices[host], *batch)
                if self._matters(world, host, after):
                    label = f"device {host} gets {[self.by.packets.items[packet] for packet in batch]}"
                    yield from ((label, each) for each in self._became(world, host, after))
        for number, client in enumerate(world.clients):
            if client.complete < len(self.scenario.programs[number]):
                yield f"client {number} sends", self._sends(world, number)
        for host in sorted(set(world.restarts)):
            yield f"device {host} restarts", self._restarts(world, host)
        for host in world.put_back:
            older = self.by.put_back(world.devices[host], self._first[host])
            *_, back = self._became(world, host, older)
            left = tuple(each for each in world.put_back if each != host)
            yield f"device {host} is put back", back._replace(put_back=left)
        if self.scenario.timers:
            for host, device in enumerate(world.devices):
                for each in self._became(world, host, self.by.tend(device)):
                    yield f"device {host} tends", each
        yield from self._controls(world)

    def _matters(self, world: World, host: int, after: After) -> bool:
        new = after.device != world.devices[host] or after.sent & ~world.network
        return bool(new or any(self._waits(world, name) for name, _ in after.replies))

    def _became(self, world: World, host: int, after: After) -> Iterator[World]:
        """A device has changed: as if its replies were lost, and as if they have come."""
        devices = (*world.devices[:host], after.device, *world.devices[host + 1 :])
        world = self._executed(world._replace(devices=devices, network=world.network | after.sent), host, after)
        gone = 0
        for packet, to in self.by.to_host(world.network):
            if (to == host and self.by.is_dead(after.device, packet)) or self._over(world, packet, to):
                gone |= 1 << packet
        world = world._replace(network=world.network & ~gone)
        replied = world
        for name, position in after.replies:
            if self._waits(replied, name):
                replied = self._answered(replied, name, position)
        if replied is not world:
            yield replied
        yield world

    def _over(self, world: World, packet: int, host: int) -> bool:
        """True if a request has had all the effect that it can have."""
        item = self.by.packets.items[packet]
        if self.scenario.restarts or not isinstance(item, Request):
            return False
        client, sequence = item.asked.name
        complete = world.clients[client].complete >= sequence
        return complete and (item.asked.reads or self.by.has_done(world.devices[host], packet))

    def _executed(self, world: World, host: int, after: After) -> World:
        done = after.done
        if done is None:
            return world
        both = min(len(done), len(world.done))
        if done[:both] != world.done[:both]:
            return world._replace(wrong=f"device {host} has done {done}, another {world.done}")
        if len(set(done)) < len(done):
            return world._replace(wrong=f"device {host} has done something twice: {done}")
        return world._replace(done=max(done, world.done, key=len))

    @staticmethod
    def _waits(world: World, name: Name) -> bool:
        client, sequence = name
        return world.clients[client].complete == sequence - 1

    def _answered(self, world: World, name: Name, position: int) -> World:
        number, sequence = name
        client = world.clients[number]
        reads = self.scenario.programs[number][sequence - 1] == R
        assert client.floor is not None
        if position == LOST:
            if not self.scenario.put_back:
                return world._replace(wrong=f"{name} is told that its memory is lost, and it is not")
            ended = Client(len(self.scenario.programs[number]), told=client.told)
            return world._replace(clients=(*world.clients[:number], ended, *world.clients[number + 1 :]))
        if position < client.floor + (not reads):
            what = f"{name} is shown what was done up to {position}, and {client.floor} was shown to others before"
            return world._replace(wrong=what)
        told = Client(sequence, told=max(position, client.told))
        clients = (*world.clients[:number], told, *world.clients[number + 1 :])
        return world._replace(clients=clients, shown=max(world.shown, position))

    def _sends(self, world: World, number: int) -> World:
        """A client sends, for the first time or again: the switch sends it on as its table says."""
        client = world.clients[number]
        if client.floor is None:
            client = client._replace(floor=world.shown)
        table = world.tables[number % len(world.tables)]
        asked = Asked((number, client.complete + 1), self.scenario.programs[number][client.complete] == R)
        sent = 0
        clients = (*world.clients[:number], client, *world.clients[number + 1 :])
        world = world._replace(clients=clients)
        for place, member in enumerate(table.members[:1] if asked.reads else table.members):
            shown = client.told if self.scenario.says else 0
            packet = self.by.packets.number(Request(int(member.host), table.epoch, asked, shown))
            if place and self.scenario.swift:
                host = int(member.host)
                *_, world = self._became(world, host, self.by.deliver(world.devices[host], packet))
            else:
                sent |= 1 << packet
        return world._replace(network=world.network | sent)

    def _restarts(self, world: World, host: int) -> World:
        left = list(world.restarts)
        left.remove(host)
        *_, world = self._became(world, host, self.by.restart(world.devices[host]))
        return world._replace(restarts=tuple(left))

    # --- the controller -----------------------------------------------------------------------------------------------

    def _controls(self, world: World) -> Iterator[tuple[str, World]]:
        for number, table in enumerate(world.tables):
            if table.epoch != world.group.epoch:
                tables = (*world.tables[:number], world.group, *world.tables[number + 1 :])
                yield f"switch {number} is told of {world.group}", world._replace(tables=tables)
        yield from self._tellings(world)
        heard = noted(world.group, self._reports(world))
        if heard != world.group:
            yield f"the controller knows that {heard.members} are whole", world._replace(group=heard)
        if world.changes < len(self.scenario.wanted):
            yield "the group is to change", world._replace(changes=world.changes + 1)
        if self._may_go_on(world):
            for count in range(len(self.scenario.silent) + 1):
                for silent in combinations(self.scenario.silent, count):
                    for group in self._next(world, silent):
                        yield f"the controller decides on {group}, {silent} silent", world._replace(group=group)

    def _tellings(self, world: World) -> Iterator[tuple[str, World]]:
        """Devices are told once all switches know; those that know already are not."""
        group = world.group
        if self.scenario.control.switches_first and self._behind(world):
            return
        for member in group.members:
            host = int(member.host)
            report, told = self._report(world, host), self.by.report(world.devices[host])[1]
            if self.by.has_lost(world.devices[host]) and not member.joining:
                continue  # that is to be decided first
            if report.incarnation == member.incarnation and (report.epoch < group.epoch or not told):
                for each in self._became(world, host, self.by.regroup(world.devices[host], host, group)):
                    yield f"device {host} is told of {group}", each

    @staticmethod
    def _behind(world: World) -> bool:
        return any(table.epoch != world.group.epoch for table in world.tables)

    def _may_go_on(self, world: World) -> bool:
        return world.group.epoch < self.scenario.epochs and not self._behind(world)

    def _reports(self, world: World, silent: tuple[int, ...] = ()) -> dict[str, Report]:
        spoken = (host for host in range(len(world.devices)) if host not in silent)
        reports = {str(host): self._report(world, host) for host in spoken}
        for member in world.group.members:  # the same incarnation, and yet the memory is gone
            if not member.joining and member.host in reports and self.by.has_lost(world.devices[int(member.host)]):
                reports[member.host] = Report("")
        return reports

    def _report(self, world: World, host: int) -> Report:
        report, _ = self.by.report(world.devices[host])
        return report if self.scenario.control.same_memory else report._replace(incarnation="0")

    def _next(self, world: World, silent: tuple[int, ...]) -> set[ReplicaGroup]:
        """Decisions that are open to the controller: positions it has heard of may be of any earlier time, so any device may seem
        the most advanced."""
        reports = self._reports(world, silent)
        group = noted(world.group, reports)
        if not self.scenario.control.whole_only:
            group = ReplicaGroup(group.epoch, tuple(member._replace(joining=False) for member in group.members))
        found = set()
        for host, report in reports.items():
            seen = {**reports, host: report._replace(position=1 << 32)}
            with suppress(ShardLostError):
                following = next_group(group, seen, [str(host) for host in self._wanted(world)])
                found |= {following} if following else set()
        return found

    def _wanted(self, world: World) -> tuple[int, ...]:
        return self.scenario.wanted[world.changes - 1] if world.changes else tuple(range(self.scenario.group))

    # --- whether every device can finish ---------------------------------------------------------------------------------

    def _finishes_once(self, world: World) -> bool:
        """True if all clients come to their end, and all members to the same memory, when nothing more is lost and no device
        fails; also if the memory is lost."""
        for _ in range(ROUNDS):
            over = all(client.complete == len(program) for client, program in self._programs(world))
            world = self._round(world)
            if world.wrong:
                return True  # not what is asked here: it is found on its own way
            try:
                group = noted(world.group, self._reports(world))
                following = next_group(group, self._reports(world), [str(host) for host in self._wanted(world)])
            except ShardLostError:
                return bool(self.scenario.restarts or self.scenario.put_back)
            done = {self.by.executed(world.devices[int(member.host)]) for member in group.members}
            # No client may ever ask that is shown that something is gone.
            same = done == {len(world.done)} or (world.put_back != self.scenario.put_back and len(done) == 1)
            settled = same and not any(member.joining for member in group.members)
            if over and following is None and settled:
                return True
            world = world._replace(group=following or group)
        return False

    def _programs(self, world: World) -> Iterator[tuple[Client, tuple[str, ...]]]:
        return zip(world.clients, self.scenario.programs, strict=True)

    def _round(self, world: World) -> World:
        """Every device sends once, and all that comes of it is delivered, also what was delivered before and may have been
        lost."""
        world = world._replace(tables=(world.group,) * len(world.tables), network=0)
        while (told := next(self._tellings(world), None)) is not None:
            world = told[1]
        sent = world.network
        for number, (client, program) in enumerate(self._programs(world)):
            if client.complete < len(program):
                world = self._sends(world, number)
        sent |= world.network
        for host in range(len(world.devices)):
            after = self.by.tend(world.devices[host])
            sent |= after.sent
            world = next(self._became(world, host, after))
        queue = deque(bits(sent))
        while queue:
            packet = queue.popleft()
            host = self.by.packets.items[packet].host
            after = self.by.deliver(world.devices[host], packet)
            queue += bits(after.sent)
            world = next(self._became(world, host, after))
        return world


def explore(scenario: Scenario, *, liveness: bool = True, seed: int | None = None) -> int:
    """Number of states, or :class:`~tests.model.search.Violation`. With a ``seed``, a sample of them is visited."""
    return Explorer(scenario).run(liveness=liveness, seed=seed)
