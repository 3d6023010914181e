# SPDX-License-Identifier: MIT
"""The explored scenarios on the program: the model's hosts talk through frames to a real switch, over a network that
loses, duplicates and reorders from a seed. Every reply is compared with the model's, every result with the exact one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from netsum.wire.schema import Status

from tests.model import host as host_rules
from tests.model import truth
from tests.model.host import JOB_ID, Host
from tests.model.late import LATE_SCENARIOS
from tests.model.rules import Job, Packet, Reply
from tests.model.scenario import Scenario
from tests.model.scenarios import SCENARIOS
from tests.protocol import star
from tests.protocol.frame_model import NEVER, FrameModel, Sent
from tests.protocol.frames import CE, Datagram, chunks_of, netsum_body
from tests.protocol.replay import Change, Scan, compare_state, follow, play
from tests.protocol.targets import InProcess, Target

ROUNDS = 400


def frame_of(packet: Packet) -> bytes:
    """A host's packet on the wire."""
    at, body = star.station(packet.port), netsum_body(packet.header, packet.payload)
    tos = CE * packet.congested
    return Datagram(star.SWITCH_MAC, at.mac, at.ip, star.SWITCH_IP, packet.udp_port, body=body, tos=tos).to_bytes()


def reply_in(port: int, frame: bytes) -> Reply:
    """Fields of a frame that has left the switch for a host."""
    datagram = Datagram.parse(frame)
    payload = chunks_of(datagram.payload)
    return Reply(port, None, datagram.udp_dst, datagram.header, payload, int(datagram.congested))


class Run:
    """One scenario on one target. A rank's port is its rank + 1."""

    def __init__(self, scenario: Scenario, target: Target, seed: int) -> None:
        self.scenario, self.target, self.rng = scenario, target, random.Random(seed)
        self.hosts = list(scenario.hosts(0, 1))
        self.epoch = 1
        self.deaf: int | None = None
        self.flying: list[Packet | Reply] = []
        self.disasters: list[Callable[[], None]] = []
        self.load(scenario.first_block_id)
        self.flying += scenario.forgeries(tuple(self.hosts)) if scenario.forger else ()

    def load(self, first_block_id: int) -> None:
        """Give an empty switch the job of this epoch."""
        self.job = self.scenario.job(self.epoch, first_block_id)
        self.model = FrameModel({JOB_ID: self.job})
        self.target.reset(star.items({JOB_ID: self.job}))

    def to_switch(self, packet: Packet) -> None:
        """Put one frame through model and target; what leaves flies back."""
        frame = frame_of(packet)
        expected = sorted(self.model.process(packet.port, frame))
        got = sorted(self.target.exchange(packet.port, frame))
        assert got == expected, packet
        self.take(got)

    def deliver(self, item: Packet | Reply) -> None:
        if isinstance(item, Packet):
            self.to_switch(item)
            return
        rank = item.port - 1
        before = self.hosts[rank]
        after = self.hosts[rank] = host_rules.receive(before, item)
        known = set(host_rules.outstanding(before))
        self.flying += [packet for packet in host_rules.outstanding(after) if packet not in known]
        self.check(after)

    def check(self, host: Host) -> None:
        """Check that results are exact wherever the ranks' calls agree."""
        assert not host.broken, host.broken
        if self.scenario.partial:
            odd = (truth.odd_result(self.scenario, host, at, each) for at, each in enumerate(host.results) if each)
            assert not any(odd)
            assert not any(truth.differ(host, other) for other in self.hosts)
            return
        for todo, result in zip(host.plan, host.results, strict=False):
            expected = self.scenario.expected(host, todo)
            if expected is None and self.scenario.calls_differ:
                return
            if result is not None and not (self.scenario.calls_differ and result.status == Status.MISMATCH):
                assert self.scenario.agree(result, expected)

    def round(self) -> None:
        """Timers fire; then whatever flies arrives in a random order, some of it twice, some not at all; now and then a
        rank hears nothing for a while."""
        if self.rng.random() < 0.3:
            self.deaf = self.rng.choice((None, *range(len(self.hosts))))
        if self.scenario.degrades and self.rng.random() < 0.3:
            self.age(self.rng.choice((1, NEVER)))
        if self.scenario.partial and self.scenario.scanner and self.rng.random() < 0.5:
            self.scan()
        for host in self.hosts:
            self.flying += host_rules.outstanding(host)
            if self.scenario.forger and host.workers == len(self.job.members) < self.scenario.workers:
                self.flying += self.scenario.forgeries_of_evicted(host)  # which knows of the eviction
        burst, self.flying = self.flying, []
        self.rng.shuffle(burst)
        for item in burst:
            if isinstance(item, Reply) and item.port - 1 == self.deaf:
                continue
            for _ in range(self.rng.choice((0, 1, 1, 1, 2))):
                self.deliver(item)
        self.flying += self.rng.sample(burst, len(burst) // 4)  # late duplicates

    def age(self, block_exp: int) -> None:
        """Let blocks age at once from now on, or in an hour."""
        self.change(self.job._replace(block_exp=block_exp))

    def change(self, job: Job) -> None:
        """The controller changes the job within its epoch."""
        play(self.target, self.model, event := Change(JOB_ID, job))
        follow(self.model, event)
        self.job = job

    def scan(self) -> None:
        """The controller scans; what leaves flies."""
        closed, got = play(self.target, self.model, event := Scan(JOB_ID))
        right, expected = follow(self.model, event)
        assert (closed, sorted(got)) == (right, sorted(expected))
        self.take(got)

    def take(self, sent: Sent) -> None:
        """Send what has left the switch to the hosts."""
        self.flying += [reply_in(port, answer) for port, answer in sent]

    def die(self, rank: int) -> None:
        """A process is gone; sooner or later it is evicted, if that is how the scenario goes."""
        self.hosts[rank] = host_rules.die(self.hosts[rank])
        if self.scenario.evicts:
            self.disasters.insert(0, lambda: self.evict(rank))

    def evict(self, rank: int) -> None:
        """Evict the rank: the others go on without it."""
        members = tuple(member._replace(joined=False) for member in self.job.members if member.rank != rank)
        self.change(self.job._replace(members=members, quorum=min(self.job.quorum, len(members)), group=None))
        self.scan()

    def install(self, job: Job) -> None:
        """The switch gets this job in the place of the one that it has."""
        self.target.replace(star.job_items(JOB_ID, self.job), star.job_items(JOB_ID, job))
        self.model.switch.jobs[JOB_ID] = self.job = job
        self.model.let_in.clear()

    def rebind(self) -> None:
        """The network gives rank 0 another address."""
        self.hosts[0] = host_rules.rebind(self.hosts[0])

    def restart(self) -> None:
        """The switch loses everything; all ranks rejoin in a new epoch at the lowest block that any rank lacks."""
        self.epoch += 1
        first = min(host.prefix for host in self.hosts)
        self.load(self.hosts[0].origin + first)
        self.rejoin(first)

    def rejoin(self, first: int) -> None:
        """All ranks go on in this epoch, from the block of that number."""
        ports = [self.scenario.udp_port(host.rank, self.epoch) for host in self.hosts]
        self.hosts = [host_rules.rejoin(host, port, first) for host, port in zip(self.hosts, ports, strict=True)]

    def replace_rank(self) -> None:
        """A new process takes a rank, which is a new run for all."""
        self.epoch += 1
        self.hosts = list(self.scenario.hosts(1, self.epoch))
        self.install(self.scenario.job(self.epoch, self.hosts[0].origin))

    def over(self) -> bool:
        """True if every rank is at the end."""
        return all(map(self.scenario.is_over, self.hosts))

    def play(self) -> None:
        """Run to the end, with the scenario's disasters on the way."""
        self.disasters += [self.restart] * self.scenario.switch_restarts
        self.disasters += [self.rebind] * self.scenario.rebinds
        self.disasters += [self.replace_rank] * self.scenario.replacements
        self.disasters += [partial(self.die, rank) for rank in self.scenario.mortals]
        for _ in range(ROUNDS):
            if self.disasters and (self.over() or self.rng.random() < 0.3):
                self.disasters.pop()()
            elif self.over():
                break
            self.round()
        assert self.over(), "not every rank could finish"
        self.compare()

    def compare(self) -> None:
        compare_state(self.model, self.target)


def run(scenario: Scenario, target: Target, seeds: int) -> None:
    for seed in range(seeds):
        Run(scenario, target, seed).play()


@pytest.mark.parametrize("scenario", SCENARIOS + LATE_SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario(target: Target, scenario: Scenario) -> None:
    run(scenario, target, seeds=2 if target.kind == InProcess.kind else 1)


def test_the_check_can_fail(target: Target) -> None:
    """Half the slots that the window needs: a worker is told STALE about a block that it needs."""
    scenario = replace(SCENARIOS[0], slots=2)
    with pytest.raises(AssertionError, match="STALE and still needed"):
        run(scenario, target, seeds=20)
