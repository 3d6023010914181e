"""Explores every behaviour of a scenario: all interleavings of loss, duplication, reordering and delay.

**The network** is the set of all packets that were ever sent. Any of them may be delivered at any time, any number of
times, or never: that is every loss, duplication, reordering and delay there is, without a bound. Retransmission changes
nothing in it (the packet is there already), so safety is explored without timers.

**Safety**, in every reachable state: a result that a worker takes is the exact one; nobody is told STALE or REFUSED
about a block still needed. **Liveness**, from every reachable state: throw away all that is in flight, then let the
timers run and the network deliver; everybody must come to the end.

**Time** is a choice: wherever it matters whether a block is old enough to be closed, both are explored. Sweeps look at any
slot at any time; for liveness, where somebody may be late, they must do with each member sending again once.

Cost: hosts, switches and packets are interned, and what one packet does to one host or switch is computed once; a step
of the exploration is then a look-up. Breadth first, so that a counterexample is a shortest one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from netsum.wire.schema import Status

from tests.model import host as host_rules
from tests.model import truth
from tests.model.host import Host
from tests.model.rules import ID_MASK, Packet, Record, Reply
from tests.model.scenario import Epoch, Scenario
from tests.model.transitions import Switch, Transitions, bits


class World(NamedTuple):
    """A state: numbers of interned things; ``network`` is a bit mask over packets."""

    switch: int
    hosts: tuple[int, ...]
    epoch: Epoch
    network: int


class Violation(Exception):
    """What went wrong and the shortest way there, one line an event."""

    def __init__(self, what: str, trace: list[str]) -> None:
        super().__init__("\n".join([what, *trace]))
        self.what = what


@dataclass
class Explorer:
    """One exploration. :meth:`run` returns the number of states or raises :class:`Violation`."""

    scenario: Scenario
    limit: int = 400_000  # states; more is an error, not a success

    def __post_init__(self) -> None:
        self.by = Transitions(self.scenario)
        self._finishes = cache(self._finishes_once)
        self._odd_switch = cache(self._odd_switch_once)
        self._differ = cache(self._differ_once)

    def run(self) -> int:
        """Explore everything."""
        start = self._start()
        came: dict[World, tuple[World, str] | None] = {start: None}
        queue = deque([start])
        while queue:
            world = queue.popleft()
            what = self._wrong_world(world)
            if what:
                raise Violation(f"{self.scenario.name}: {what}", self._trace(world, came))
            for label, following in self._steps(world):
                if following not in came:
                    came[following] = (world, label)
                    queue.append(following)
            if len(came) > self.limit:
                raise RuntimeError(f"{self.scenario.name}: more than {self.limit} states, make it smaller")
        for world in came:
            if not self._finishes(world.switch, world.hosts, world.epoch):
                raise Violation(f"{self.scenario.name}: not everybody can finish", self._trace(world, came))
        return len(came)

    # --- what happens -------------------------------------------------------------------------------------------------

    def _start(self) -> World:
        scenario = self.scenario
        epoch = Epoch(
            switch_restarts=scenario.switch_restarts, replacements=scenario.replacements, mortals=scenario.mortals
        )
        switch = Switch(scenario.job(1, scenario.first_block_id))
        return self._world(self.by.switches.number(switch), scenario.hosts(0, 1), epoch, 0)

    def _world(self, switch: int, hosts: tuple[Host, ...], epoch: Epoch, network: int) -> World:
        numbers = tuple(self.by.hosts.number(host) for host in hosts)
        return self._pruned(World(switch, numbers, epoch, network))

    def _pruned(self, world: World) -> World:
        """With what the hosts send, without what means nothing to anybody any more."""
        network = world.network
        for number in world.hosts:
            network |= self.by.sends(number)
        for packet in bits(network):
            item = self.by.packets.items[packet]
            if isinstance(item, Reply) and self.by.dead(world.hosts[item.port - 1], packet):
                network &= ~(1 << packet)
        return world._replace(network=network)

    def _steps(self, world: World) -> Iterator[tuple[str, World]]:
        for packet in bits(world.network):
            item = self.by.packets.items[packet]
            if isinstance(item, Packet):
                for old in (False, True) if self.scenario.degrades else (False,):
                    switch, replies = self.by.at_switch(world.switch, packet, old)
                    if switch != world.switch or replies & ~world.network:
                        after = world._replace(switch=switch, network=world.network | replies)
                        yield "to the switch, its block is old: " if old else "to the switch: ", self._pruned(after)
            else:
                rank = item.port - 1
                host = self.by.at_host(world.hosts[rank], packet)
                if host != world.hosts[rank]:
                    hosts = (*world.hosts[:rank], host, *world.hosts[rank + 1 :])
                    yield "to a host: ", self._pruned(world._replace(hosts=hosts))
        for slot, old, switch, replies in self.by.looks(world.switch):
            after = world._replace(switch=switch, network=world.network | replies)
            yield f"a sweep closes slot {slot}{', old' if old else ''}", self._pruned(after)
        yield from self._events(world)

    def _events(self, world: World) -> Iterator[tuple[str, World]]:
        epoch = world.epoch
        if epoch.switch_restarts and epoch.reports is None and not epoch.away:
            yield "the switch restarts", self._restart(world)
        if epoch.reports is not None:
            for rank, report in enumerate(epoch.reports):
                if report is None and rank not in epoch.dead:
                    yield f"rank {rank} rejoins", self._report(world, rank)
        if epoch.replacements and epoch.reports is None and not epoch.away:
            yield "rank 0 is replaced", self._replace_rank(world)
        for rank in epoch.mortals:
            yield f"rank {rank} dies", self._die(world, rank)
        if self.scenario.evicts:
            for rank in epoch.dead:
                yield f"rank {rank} is evicted", self._evict(world, rank)
        for rank in epoch.away:
            yield f"rank {rank} joins the new run", self._follow(world, rank)

    def _restart(self, world: World) -> World:
        """The switch loses everything; without the rule it gets its old tables back and nobody is told."""
        epoch = world.epoch._replace(switch_restarts=world.epoch.switch_restarts - 1)
        if not self.scenario.epoch_rules.raised_after_restart:
            job = self.by.switches.items[world.switch].job
            return world._replace(switch=self.by.switches.number(Switch(job)), epoch=epoch)
        if (epoch.evicted or self.scenario.degrades) and self.scenario.epoch_rules.only_whole_epochs_resume:
            return self._give_up(world._replace(epoch=epoch))
        gone = epoch.evicted
        epoch = epoch._replace(reports=tuple(ID_MASK if rank in gone else None for rank in range(len(world.hosts))))
        return world._replace(switch=self.by.switches.number(Switch(None)), epoch=epoch)

    def _report(self, world: World, rank: int) -> World:
        """A rank says which block it does not hold; when all have, or the rule is off, the new epoch starts."""
        epoch = world.epoch
        assert epoch.reports is not None
        hosts = [self.by.hosts.items[number] for number in world.hosts]
        reports = (*epoch.reports[:rank], hosts[rank].prefix, *epoch.reports[rank + 1 :])
        hosts[rank] = host_rules.leave(hosts[rank])
        if None in reports and self.scenario.epoch_rules.lowest_of_all:
            return self._world(world.switch, tuple(hosts), epoch._replace(reports=reports), world.network)
        first = min(report for report in reports if report is not None)
        number = epoch.number + 1
        job = self.scenario.job(number, hosts[0].origin + first, epoch.evicted)
        rejoined = (
            host
            if host.dead
            else host_rules.rejoin(host, self.scenario.udp_port(host.rank, number), first, self.scenario.host_rules)
            for host in hosts
        )
        epoch = epoch._replace(number=number, reports=None, resumed=True)
        return self._world(self.by.switches.number(Switch(job)), tuple(rejoined), epoch, world.network)

    def _replace_rank(self, world: World) -> World:
        """A new process joins rank 0: a new epoch for all, on a switch that keeps its records."""
        scenario, epoch = self.scenario, world.epoch
        number = epoch.number + 1
        epoch = epoch._replace(number=number, run=1, replacements=epoch.replacements - 1)
        switch = self.by.switches.items[world.switch]
        newcomer, *others = scenario.hosts(1, number)
        if not scenario.epoch_rules.new_epoch_for_taken_rank:
            newcomer = scenario.hosts(0, epoch.number - 1)[0]
            hosts = (newcomer, *(self.by.hosts.items[each] for each in world.hosts[1:]))
            return self._world(world.switch, hosts, epoch, world.network)
        job = scenario.job(number, newcomer.origin)
        if scenario.followers_at_once:
            hosts = (newcomer, *others)
        else:
            epoch = epoch._replace(away=frozenset(other.rank for other in others))
            hosts = (newcomer, *(self.by.hosts.items[each] for each in world.hosts[1:]))
        return self._world(self.by.switches.number(switch._replace(job=job)), hosts, epoch, world.network)

    def _die(self, world: World, rank: int) -> World:
        hosts = [self.by.hosts.items[number] for number in world.hosts]
        hosts[rank] = host_rules.die(hosts[rank])
        mortals = tuple(each for each in world.epoch.mortals if each != rank)
        epoch = world.epoch._replace(mortals=mortals, dead=world.epoch.dead | {rank})
        return self._world(world.switch, tuple(hosts), epoch, world.network)

    def _evict(self, world: World, rank: int) -> World:
        """The controller takes a member's entries and its bit away; the epoch goes on, if it can."""
        if world.epoch.reports is not None or not self._goes_on_without(world):
            return self._give_up(world._replace(epoch=world.epoch._replace(dead=frozenset(), reports=None)))
        epoch = world.epoch._replace(dead=world.epoch.dead - {rank}, evicted=world.epoch.evicted | {rank})
        switch = self.by.switches.items[world.switch]
        assert switch.job is not None
        job = self.scenario.job(epoch.number, switch.job.first_block_id, epoch.evicted)
        return self._pruned(world._replace(switch=self.by.switches.number(switch._replace(job=job)), epoch=epoch))

    def _goes_on_without(self, world: World) -> bool:
        """Whether all results that anybody holds were made in this epoch, or settled in an earlier one: somebody is two
        windows on."""
        if not world.epoch.resumed or not self.scenario.epoch_rules.no_eviction_after_resume:
            return True
        job, slots, _ = self.by.switches.items[world.switch]
        assert job is not None
        record = dict(slots).get(job.slot_base, Record())
        ahead = (record.block_id - job.first_block_id) & ID_MASK
        return record.epoch == job.epoch and 2 * self.scenario.window <= ahead < 1 << 31

    def _give_up(self, world: World) -> World:
        """The epoch cannot be continued: every call under way raises."""
        hosts = tuple(host_rules.desynchronized(self.by.hosts.items[number]) for number in world.hosts)
        epoch = world.epoch._replace(mortals=(), switch_restarts=0)
        return self._world(world.switch, hosts, epoch, 0)

    def _follow(self, world: World, rank: int) -> World:
        """Another rank's call has raised and it joins the new run."""
        hosts = [self.by.hosts.items[number] for number in world.hosts]
        hosts[rank] = self.scenario.hosts(1, world.epoch.number)[rank]
        epoch = world.epoch._replace(away=world.epoch.away - {rank})
        return self._world(world.switch, tuple(hosts), epoch, world.network)

    # --- what must hold -----------------------------------------------------------------------------------------------

    def _wrong_world(self, world: World) -> str:
        for number in world.hosts:
            what = self._wrong(self.by.hosts.items[number])
            if what:
                return what
        if not self.scenario.partial:
            return ""
        pairs = ((one, other) for one in world.hosts for other in world.hosts if one < other)
        return self._odd_switch(world.switch) or next(filter(None, (self._differ(*pair) for pair in pairs)), "")

    def _odd_switch_once(self, switch: int) -> str:
        job, slots, _ = self.by.switches.items[switch]
        odd = (truth.odd_record(self.scenario, job, record) for _, record in slots) if job else ()
        return self.by.changed.get(switch, "") or next(filter(None, odd), "")

    def _differ_once(self, one: int, other: int) -> str:
        return truth.differ(self.by.hosts.items[one], self.by.hosts.items[other])

    def _wrong(self, host: Host) -> str:
        if host.broken:
            return f"rank {host.rank}: {host.broken}"
        if host.mismatched and not self.scenario.calls_differ:
            return f"rank {host.rank} is refused: SIGNATURE"
        for index, result in enumerate(host.results):
            if self.scenario.partial:
                what = truth.odd_result(self.scenario, host, index, result) if result is not None else ""
                if what:
                    return what
                continue
            expected = self.scenario.expected(host, host.plan[index])
            if expected is None and self.scenario.calls_differ:
                return ""
            mismatch = result is not None and result.status == Status.MISMATCH
            if result in (None, expected) or (mismatch and self.scenario.calls_differ):
                continue
            return f"rank {host.rank} takes a wrong result for block {index}: {result}, right is {expected}"
        return ""

    def _over(self, host: Host) -> bool:
        return host.ended if self.scenario.calls_differ else host.done

    def _finishes_once(self, switch: int, hosts: tuple[int, ...], epoch: Epoch) -> bool:
        """Whether everybody comes to the end when nothing more is lost and no more disaster strikes. Where somebody may
        be late and the controller sweeps, that must do: a member sends again once, and then only fetches results."""
        epoch = epoch._replace(switch_restarts=0, replacements=0, mortals=())
        world = World(switch, hosts, epoch, 0)
        swept = self.scenario.partial and self.scenario.sweeper
        sent = [0] * len(hosts)
        while True:
            before = world, tuple(sent)
            _, world = next(self._events(world), ("", world))
            world = world._replace(network=0)
            for rank, number in enumerate(world.hosts):
                sends = self.by.sends(number)
                world = self._deliver(world, sends & ~sent[rank] | self.by.fetches(number) if swept else sends)
                sent[rank] |= sends
            while looks := self.by.looks(world.switch):
                _, _, switch, notices = looks[0]
                world = self._hand_out(world._replace(switch=switch), notices)
            if all(self._over(self.by.hosts.items[number]) for number in world.hosts) and world.epoch.reports is None:
                return True
            if (world, tuple(sent)) == before:
                return False

    def _deliver(self, world: World, packets: int) -> World:
        """Deliver packets to the switch, and its replies to the hosts, once each."""
        replies = 0
        old = self.scenario.degrades and not self.scenario.sweeper
        for packet in bits(packets):
            switch, more = self.by.at_switch(world.switch, packet, old)
            world, replies = world._replace(switch=switch), replies | more
        return self._hand_out(world, replies)

    def _hand_out(self, world: World, replies: int) -> World:
        hosts = list(world.hosts)
        for packet in bits(replies):
            rank = self.by.packets.items[packet].port - 1
            hosts[rank] = self.by.at_host(hosts[rank], packet)
        return world._replace(hosts=tuple(hosts))

    def _trace(self, world: World, came: dict[World, tuple[World, str] | None]) -> list[str]:
        lines: list[str] = []
        step = came[world]
        while step is not None:
            before, label = step
            lines.append(label + self._difference(before, world))
            world, step = before, came[before]
        return lines[::-1]

    def _difference(self, before: World, after: World) -> str:
        """Which packets could have made this step: the first that does."""
        for packet in bits(before.network):
            item = self.by.packets.items[packet]
            if isinstance(item, Packet):
                both = [self.by.at_switch(before.switch, packet, old) for old in (False, True)]
                made = any(
                    self._pruned(before._replace(switch=switch, network=before.network | replies)) == after
                    for switch, replies in both
                )
            else:
                rank = item.port - 1
                made = self.by.at_host(before.hosts[rank], packet) == after.hosts[rank] != before.hosts[rank]
            if made:
                return f"port {item.port}, UDP {item.udp_port}, {item.header}, {item.payload}"
        return ""


def explore(scenario: Scenario) -> int:
    """Number of states, or :class:`Violation`."""
    return Explorer(scenario).run()
