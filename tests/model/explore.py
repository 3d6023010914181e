# SPDX-License-Identifier: MIT
"""Explores every behavior of a scenario: all interleavings of loss, duplication, reordering and delay.

**The network** is the set of all packets that were ever sent. Any of them may be delivered at any time, any number of
times, or never: that is every loss, duplication, reordering and delay there is, without a bound. Retransmission changes
nothing in it (the packet is there already), so safety is explored without timers.

**Safety**, in every reachable state: a result that a worker takes is the exact one; no rank is told STALE or REFUSED
about a block still needed. **Liveness**, from every reachable state: throw away all that is in flight, then let the
timers run and the network deliver; every rank must come to the end.

**Time** is a choice: wherever it matters whether a block is old enough to be closed, both are explored. Scans look at any
slot at any time; for liveness, where a rank may be late, they must do with each member sending again once.

Cost: hosts, switches and packets are interned, and what one packet does to one host or switch is computed once; a step
of the exploration is then a look-up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from tests.model import host as host_rules
from tests.model import truth
from tests.model.host import Host
from tests.model.rules import ID_MASK, Job, Packet, Record, Reply
from tests.model.safety import Safety
from tests.model.scenario import Epoch, Scenario
from tests.model.search import search
from tests.model.transitions import Switch, Transitions, bits

DELIVERIES = 10_000
"""More packets than any round brings about: those that go on for ever do not bring a rank to the end."""


class World(NamedTuple):
    """A state: numbers of interned things; ``network`` is a bit mask over packets."""

    switches: tuple[int, ...]  # parents before children
    hosts: tuple[int, ...]
    epoch: Epoch
    network: int


@dataclass
class Explorer:
    """One exploration. :meth:`run` returns the number of states or raises :class:`~tests.model.search.Violation`."""

    scenario: Scenario
    liveness_at_once: bool = False
    """Ask of each state as it is found whether every rank can finish from it, and not when all are known to be safe."""

    def __post_init__(self) -> None:
        self.by = Transitions(self.scenario)
        self._finishes = cache(self._finishes_once)
        self._safety = Safety(self.scenario, self.by)
        self._over = cache(self._over_once)

    def run(self) -> int:
        name, words = self.scenario.name, self._difference
        return len(search(self._start(), self._steps, self._wrong, stuck=self._stuck, name=name, words=words))

    def _wrong(self, world: World) -> str:
        wrong = self._safety.wrong(world.switches, world.hosts)
        return self._stuck(world) if self.liveness_at_once and not wrong else wrong

    def _stuck(self, world: World) -> str:
        # A rank that has taken a forged result may no longer send what the others wait for.
        fooled = any(host_rules.is_fooled(self.by.hosts.items[number]) for number in world.hosts)
        return "" if fooled or self._finishes(world.switches, world.hosts, world.epoch) else truth.STUCK

    # --- what happens -------------------------------------------------------------------------------------------------

    def _start(self) -> World:
        scenario = self.scenario
        epoch = Epoch(
            switch_restarts=scenario.switch_restarts,
            moves=scenario.moves,
            rebinds=scenario.rebinds,
            replacements=scenario.replacements,
            state_losses=scenario.state_losses,
            mortals=scenario.mortals,
            in_group=frozenset(scenario.multicast),
            joins=scenario.joins,
        )
        switches = tuple(self.by.switches.number(Switch(job)) for job in scenario.jobs(1, scenario.first_block_id))
        hosts, forged = scenario.hosts(0, 1), 0
        for item in scenario.forgeries(hosts) if scenario.forger else ():
            number = self.by.packets.number(item)
            forged |= 1 << number
            if isinstance(item, Reply):
                self.by.to_host[item.port - 1] |= 1 << number
        return self._world(switches, hosts, epoch, forged)

    def _world(self, switches: tuple[int, ...], hosts: tuple[Host, ...], epoch: Epoch, network: int) -> World:
        numbers = tuple(self.by.hosts.number(host) for host in hosts)
        return self._pruned(World(switches, numbers, epoch, network))

    def _installed(self, world: World, jobs: tuple[Job | None, ...]) -> tuple[int, ...]:
        """The switches with these jobs; their records stay."""
        before = (self.by.switches.items[number] for number in world.switches)
        return tuple(self.by.switches.number(each._replace(job=job)) for each, job in zip(before, jobs, strict=True))

    def _pruned(self, world: World) -> World:
        """With what the hosts send, without what means nothing to any rank any more."""
        network = world.network
        for number in world.hosts:
            network |= self.by.sends(number)
            if world.epoch.evicted and self.scenario.forger:
                network |= self.by.forged(number)
        dead = 0
        for rank, number in enumerate(world.hosts):
            dead |= self.by.dead(number, network & self.by.to_host[rank])
        for switch, mine in zip(world.switches, self.by.down_to, strict=True):
            dead |= self.by.ignored(switch, network & mine)
        return World(world.switches, world.hosts, world.epoch, network & ~dead)

    def _steps(self, world: World) -> Iterator[tuple[str, World]]:
        ages = (False, True) if self.scenario.degrades else (False,)
        for packet in bits(world.network):
            item = self.by.packets.items[packet]
            if isinstance(item, Packet):
                at = self.by.where(packet)
                for old in ages:
                    switch, sent = self.by.at_switch(world.switches[at], packet, old)
                    if switch != world.switches[at] or sent & ~world.network:
                        after = self._pruned(self._became(world, at, switch, sent))
                        yield "to the switch, its block is old: " if old else "to the switch: ", after
            else:
                rank = item.port - 1
                host = self.by.at_host(world.hosts[rank], packet)
                if host != world.hosts[rank]:
                    hosts = (*world.hosts[:rank], host, *world.hosts[rank + 1 :])
                    yield "to a host: ", self._pruned(World(world.switches, hosts, world.epoch, world.network))
        for number, switch in enumerate(world.switches):
            for slot, old, *closed in self.by.looks(switch):
                after = self._became(world, number, *closed)
                yield f"a scan of switch {number} closes slot {slot}{', old' if old else ''}", self._pruned(after)
        yield from self._events(world)

    def _arrives(self, world: World, packet: int, old: bool) -> World:
        """A packet comes to its switch."""
        number = self.by.where(packet)
        return self._became(world, number, *self.by.at_switch(world.switches[number], packet, old))

    @staticmethod
    def _became(world: World, number: int, switch: int, sent: int) -> World:
        """A switch has changed and sent something."""
        switches = (*world.switches[:number], switch, *world.switches[number + 1 :])
        return World(switches, world.hosts, world.epoch, world.network | sent)

    def _events(self, world: World) -> Iterator[tuple[str, World]]:
        epoch = world.epoch
        if epoch.switch_restarts and epoch.reports is None and not epoch.away:
            for number in range(len(world.switches)):
                yield f"switch {number} restarts", self._restart(world, number)
        if epoch.moves and epoch.reports is None and not epoch.away:
            reports = tuple(None for _ in world.hosts)
            yield "the job moves", world._replace(epoch=epoch._replace(moves=epoch.moves - 1, reports=reports))
        if epoch.rebinds and self.by.hosts.items[world.hosts[0]].udp_port > 0:
            yield "rank 0 has another address", self._rebind(world)
        yield from self._reports(world)
        if epoch.replacements and epoch.reports is None and not epoch.away:
            yield "rank 0 is replaced", self._replace_rank(world)
        if epoch.state_losses:
            lost = epoch._replace(state_losses=epoch.state_losses - 1, forgotten=True)
            yield "the controller's state is an old copy", world._replace(epoch=lost)
        for rank in epoch.mortals:
            yield f"rank {rank} dies", self._die(world, rank)
        if self.scenario.evicts:
            for rank in epoch.dead:
                yield f"rank {rank} is evicted", self._evict(world, rank)
        for rank in epoch.away:
            yield f"rank {rank} joins the new run", self._follow(world, rank)
        yield from self._joins(world)

    def _joins(self, world: World) -> Iterator[tuple[str, World]]:
        """Ranks join the IP multicast group of their descriptors, and their reports come to the controller."""
        epoch, rules = world.epoch, self.scenario.epoch_rules
        evictions = len(epoch.evicted)
        for rank in epoch.joins:
            joins = tuple(each for each in epoch.joins if each != rank)
            after = epoch._replace(joins=joins, joined=epoch.joined | {(rank, evictions)})
            hosts = [self.by.hosts.items[number] for number in world.hosts]
            key = self.scenario.group_key(epoch.number, epoch.evicted)
            hosts[rank] = host_rules.join_group(hosts[rank], key, self.scenario.workers - evictions)
            yield f"rank {rank} joins the group", self._world(world.switches, tuple(hosts), after, world.network)
        for rank, told in sorted(epoch.joined):
            if rank not in epoch.in_group | epoch.evicted and (told == evictions or not rules.report_names_group):
                after = epoch._replace(in_group=epoch.in_group | {rank})
                yield f"the controller takes rank {rank}'s report that it has joined", self._with_group(world, after)

    def _with_group(self, world: World, epoch: Epoch) -> World:
        """The switches know who has joined the group, and who is evicted."""
        root = self.by.switches.items[world.switches[0]].job
        assert root is not None
        jobs = self.scenario.jobs(
            epoch.number, root.first_block_id, epoch.evicted, begun=bool(epoch.evicted), in_group=epoch.in_group
        )
        return self._pruned(world._replace(switches=self._installed(world, jobs), epoch=epoch))

    def _rebind(self, world: World) -> World:
        host = self.by.hosts.number(host_rules.rebind(self.by.hosts.items[world.hosts[0]]))
        epoch = world.epoch._replace(rebinds=world.epoch.rebinds - 1)
        return self._pruned(world._replace(hosts=(host, *world.hosts[1:]), epoch=epoch))

    def _restart(self, world: World, number: int) -> World:
        """A switch loses everything; without the rule it gets its old tables back and no rank is told."""
        epoch = world.epoch._replace(switch_restarts=world.epoch.switch_restarts - 1)
        if not self.scenario.epoch_rules.raised_after_restart:
            job = self.by.switches.items[world.switches[number]].job
            return self._became(world._replace(epoch=epoch), number, self.by.switches.number(Switch(job)), 0)
        if (epoch.evicted or self.scenario.degrades) and self.scenario.epoch_rules.only_whole_epochs_resume:
            return self._give_up(world._replace(epoch=epoch))
        gone = epoch.evicted
        epoch = epoch._replace(reports=tuple(ID_MASK if rank in gone else None for rank in range(len(world.hosts))))
        return self._became(world._replace(epoch=epoch), number, self.by.switches.number(Switch(None)), 0)

    def _reports(self, world: World) -> Iterator[tuple[str, World]]:
        """Reports that come to the controller, and those that ranks send once they are told of the epoch that resumes theirs."""
        epoch, rules = world.epoch, self.scenario.epoch_rules
        if not self.scenario.reports_fly:
            for rank, report in enumerate(epoch.reports or ()):
                if report is None and rank not in epoch.dead:
                    yield f"rank {rank} rejoins", self._report(world, rank)
            return
        if epoch.reports is not None:
            for rank, resuming, needs in sorted(epoch.told):
                before = epoch.reports[rank]
                newer = before is None or before < needs
                if newer and (resuming == epoch.number + 1 or not rules.report_names_epoch):
                    yield (
                        f"the controller takes rank {rank}'s report of block {needs}",
                        self._report(world, rank, needs),
                    )
        elif rules.report_names_epoch:
            return
        for rank, number in enumerate(world.hosts):
            host = self.by.hosts.items[number]
            stopped = host._replace(stopped=True) if rules.stops_to_report and epoch.reports is not None else host
            told = epoch.told | {(rank, epoch.number + 1, host.prefix)}
            if (stopped, told) != (host, epoch.told):
                hosts = (*world.hosts[:rank], self.by.hosts.number(stopped), *world.hosts[rank + 1 :])
                yield f"rank {rank} reports", world._replace(hosts=hosts, epoch=epoch._replace(told=told))

    def _report(self, world: World, rank: int, needs: int | None = None) -> World:
        """A rank says which block it does not hold, or has said so; when all have, or the rule is off, the new epoch starts."""
        epoch = world.epoch
        assert epoch.reports is not None
        hosts = [self.by.hosts.items[number] for number in world.hosts]
        reports = (*epoch.reports[:rank], hosts[rank].prefix if needs is None else needs, *epoch.reports[rank + 1 :])
        if needs is None:
            hosts[rank] = host_rules.leave(hosts[rank])
        if None in reports and self.scenario.epoch_rules.lowest_of_all:
            return self._world(world.switches, tuple(hosts), epoch._replace(reports=reports), world.network)
        first = min(report for report in reports if report is not None)
        number = epoch.number + 1
        jobs = self.scenario.jobs(number, hosts[0].origin + first, epoch.evicted)
        rejoined = (
            host
            if host.dead
            else host_rules.rejoin(host, self.scenario.udp_port(host.rank, number), first, self.scenario.host_rules)
            for host in hosts
        )
        told = frozenset() if self.scenario.epoch_rules.report_names_epoch else epoch.told  # else no rank takes them now
        epoch = epoch._replace(number=number, reports=None, told=told, resumed=True)
        return self._world(self._installed(world, jobs), tuple(rejoined), epoch, world.network)

    def _replace_rank(self, world: World) -> World:
        """A new process joins rank 0: a new epoch for all, on switches that keep their records."""
        scenario, epoch = self.scenario, world.epoch
        again = epoch.forgotten and not scenario.epoch_rules.asks_switches
        number = 1 if again else epoch.number + 1
        epoch = epoch._replace(number=number, run=1, replacements=epoch.replacements - 1)
        newcomer, *others = scenario.hosts(1, number, ids_again=again)
        left = [self.by.hosts.items[each] for each in world.hosts[1:]]
        behind = frozenset(other.rank for other in others)
        if scenario.files:
            epoch = epoch._replace(number=number - 1, away=behind)
            return self._world(world.switches, (newcomer, *left), epoch, world.network)
        if not scenario.epoch_rules.new_epoch_for_taken_rank:
            newcomer = scenario.hosts(0, epoch.number - 1)[0]
            return self._world(world.switches, (newcomer, *left), epoch, world.network)
        switches = self._installed(world, scenario.jobs(number, newcomer.origin))
        if scenario.followers_at_once:
            return self._world(switches, (newcomer, *others), epoch, world.network)
        return self._world(switches, (newcomer, *left), epoch._replace(away=behind), world.network)

    def _die(self, world: World, rank: int) -> World:
        hosts = [self.by.hosts.items[number] for number in world.hosts]
        hosts[rank] = host_rules.die(hosts[rank])
        mortals = tuple(each for each in world.epoch.mortals if each != rank)
        epoch = world.epoch._replace(mortals=mortals, dead=world.epoch.dead | {rank})
        return self._world(world.switches, tuple(hosts), epoch, world.network)

    def _evict(self, world: World, rank: int) -> World:
        """The controller takes a member's entries and its bit away; the epoch goes on, if it can."""
        if world.epoch.reports is not None or not self._goes_on_without(world):
            return self._give_up(world._replace(epoch=world.epoch._replace(dead=frozenset(), reports=None)))
        epoch = world.epoch._replace(dead=world.epoch.dead - {rank}, evicted=world.epoch.evicted | {rank})
        if self.scenario.epoch_rules.eviction_changes_group:
            epoch = epoch._replace(in_group=frozenset())
        return self._with_group(world, epoch)

    def _goes_on_without(self, world: World) -> bool:
        """True if all results that any rank holds were made in this epoch, or settled in an earlier one: a rank is two
        windows on."""
        if not world.epoch.resumed or not self.scenario.epoch_rules.no_eviction_after_resume:
            return True
        job, slots, *_ = self.by.switches.items[world.switches[0]]
        assert job is not None
        record = dict(slots).get(job.slot_base, Record())
        ahead = (record.block_id - job.first_block_id) & ID_MASK
        return record.epoch == job.epoch and 2 * self.scenario.window <= ahead < 1 << 31

    def _give_up(self, world: World) -> World:
        """The epoch cannot be continued: every call in progress raises."""
        hosts = tuple(host_rules.desynchronized(self.by.hosts.items[number]) for number in world.hosts)
        epoch = world.epoch._replace(mortals=(), switch_restarts=0)
        return self._world(world.switches, hosts, epoch, 0)

    def _follow(self, world: World, rank: int) -> World:
        """Another rank's call has raised and it joins the new run."""
        hosts = [self.by.hosts.items[number] for number in world.hosts]
        hosts[rank] = self.scenario.hosts(1, world.epoch.number)[rank]
        epoch = world.epoch._replace(away=world.epoch.away - {rank})
        return self._world(world.switches, tuple(hosts), epoch, world.network)

    # --- whether every rank can finish ---------------------------------------------------------------------------------

    def _over_once(self, number: int) -> bool:
        return self.scenario.is_over(self.by.hosts.items[number])

    def _finishes_once(self, switches: tuple[int, ...], hosts: tuple[int, ...], epoch: Epoch) -> bool:
        """True if every rank comes to the end when nothing more is lost and no more disaster strikes. Where a rank may
        be late and the controller scans, that must do: a member sends again once (or so often as the scenario says), and then
        only what it is asked for."""
        epoch = epoch._replace(
            switch_restarts=0, moves=0, rebinds=0, told=frozenset(), replacements=0, state_losses=0, mortals=(), joins=(),
            joined=frozenset(),
        )  # fmt: skip
        world = World(switches, hosts, epoch, 0)
        scanned = self.scenario.partial and self.scenario.scanner
        sent, rounds = [0] * len(hosts), 1
        while True:
            before = world, tuple(sent)
            _, world = next(self._events(world), ("", world))
            world = world._replace(network=0)
            for rank, number in enumerate(world.hosts):
                sends = self.by.sends(number)
                world = self._deliver(world, sends & ~sent[rank] if scanned else sends)
                sent[rank] |= sends
            for number in range(len(world.switches)):
                while looks := self.by.looks(world.switches[number]):
                    _, _, *closed = looks[0]
                    after = self._became(world, number, *closed)
                    world = self._deliver(after._replace(network=0), after.network)
            # Where files are used again, the others wait in vain for a rank whose process has found that out.
            over = all(map(self._over, world.hosts)) or (
                self.scenario.files and any(self.by.hosts.items[number].ended for number in world.hosts)
            )
            if over and world.epoch.reports is None:
                return True
            if (world, tuple(sent)) == before:
                if rounds == self.scenario.sends:
                    return False
                sent, rounds = [0] * len(hosts), rounds + 1

    def _deliver(self, world: World, packets: int) -> World:
        """Deliver packets, then what they bring about, and so on, once each."""
        queue = deque(bits(packets))
        old = self.scenario.degrades and not self.scenario.scanner
        for _ in range(DELIVERIES):
            if not queue:
                return world
            packet = queue.popleft()
            item = self.by.packets.items[packet]
            if isinstance(item, Packet):
                after = self._arrives(world, packet, old)
                queue += bits(after.network)
                world = World(after.switches, after.hosts, after.epoch, 0)
            else:
                rank = item.port - 1
                queue += bits(self.by.told(world.hosts[rank], packet))
                host = self.by.at_host(world.hosts[rank], packet)
                hosts = (*world.hosts[:rank], host, *world.hosts[rank + 1 :])
                world = World(world.switches, hosts, world.epoch, world.network)
        return world

    def _difference(self, before: World, after: World) -> str:
        """Which packets could have made this step: the first that does."""
        for packet in bits(before.network):
            item = self.by.packets.items[packet]
            if isinstance(item, Packet):
                made = any(self._pruned(self._arrives(before, packet, old)) == after for old in (False, True))
            else:
                rank = item.port - 1
                made = self.by.at_host(before.hosts[rank], packet) == after.hosts[rank] != before.hosts[rank]
            if made:
                return f"port {item.port}, UDP {item.udp_port}, {item.header}, {item.payload}"
        return ""


def explore(scenario: Scenario, *, liveness_at_once: bool = False) -> int:
    """Number of states, or :class:`~tests.model.search.Violation`."""
    return Explorer(scenario, liveness_at_once=liveness_at_once).run()
