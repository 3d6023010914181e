# SPDX-License-Identifier: MIT
"""Packets: allreduces through switches that sum, with netsum's own window in every host, for hundreds of workers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from netsum.descriptor import Descriptor, HostAddress, SwitchAddress

from netsum_planner.errors import PlanError
from netsum_planner.simulator.aggregation import Tree, trees
from netsum_planner.simulator.flows import Change
from netsum_planner.simulator.network import SimulatedNetwork, Wire
from netsum_planner.simulator.outcome import Counts
from netsum_planner.simulator.packet_nodes import Contribution, JobOnSwitch, PacketHost, Part, Result, SumSwitch
from netsum_planner.simulator.packet_wire import Clock, Frame, PacketWire

NOWHERE: Final = "0.0.0.0", "00:00:00:00:00:00"
MOST_WORKERS: Final = 255
_REPORT: Final = 20_000
STUCK: Final = 120.0
"""Simulated seconds without a result after which a job cannot end."""


@dataclass(frozen=True)
class Faults:
    """``loss``: the probability that a link loses a packet. ``queue`` and ``ecn``: bytes in front of a link above which packets
    are dropped and marked; a host's own queue drops nothing. ``switch_pps``: packets a second that a switch can take (0: as they
    come), of which ``switch_queue`` may wait."""

    loss: float = 0.0
    queue: float = float("inf")
    ecn: float = float("inf")
    switch_pps: float = 0.0
    switch_queue: int = 1000


@dataclass
class PacketJob:
    """``hosts`` by rank; ``begins(rank, call, now)`` is when a rank that is ready ``now`` begins a call: it computes, or is late.
    ``began`` and ``ended`` get, for each call, when each rank began it and had its result."""

    name: str
    hosts: tuple[str, ...]
    blocks: int
    calls: int
    wire: Wire
    begins: Callable[[int, int, float], float]
    began: list[dict[int, float]]
    ended: list[dict[int, float]]


class PacketSimulation:
    """The network, its switches and all jobs; the same ``seed`` gives the same packets."""

    def __init__(self, network: SimulatedNetwork, faults: Faults, jobs: Sequence[PacketJob], seed: int = 0) -> None:
        self.network = network
        self.clock = Clock()
        self.jobs = list(jobs)
        self.hosts: list[dict[str, PacketHost]] = []
        self._random = random.Random(seed)
        self._faults = faults
        self._left = sum(job.calls * len(job.hosts) for job in jobs)
        self._all = self._left
        self._last = 0.0
        service = 1 / faults.switch_pps if faults.switch_pps else 0.0
        self.switches = {
            name: SumSwitch(name, self.clock, service, faults.switch_queue, self._from_switch)
            for name in network.topology.switches
        }
        self.wires = {ends: self._wire(ends) for ends in network.pairs}
        for number, job in enumerate(jobs):
            self._install(number, job)
            self.hosts.append(self._members(number, job))

    def _wire(self, ends: tuple[str, str]) -> PacketWire:
        source, target = ends
        number, faults = self.network.number[ends], self._faults
        own = source in self.network.topology.hosts
        arrive = self._at_host(target) if target in self.network.topology.hosts else self.switches[target].take
        return PacketWire(
            self.clock,
            float(self.network.capacity[number]),
            float(self.network.delay[number]),
            float("inf") if own else faults.queue,
            faults.ecn,
            faults.loss,
            self._random,
            arrive,
        )

    def _at_host(self, name: str) -> Callable[[Frame], None]:
        def arrive(frame: Frame) -> None:
            result = frame.data
            assert isinstance(result, Result)
            host = self.hosts[result.job].get(name)
            if host is not None:
                host.receive(result.data, frame.marked)

        return arrive

    def _install(self, number: int, job: PacketJob) -> None:
        found = trees(self.network, job.hosts)
        slots = 1 << (2 * job.wire.window - 1).bit_length()
        overhead = job.wire.packet - job.wire.block_bytes
        for name, switch in self.switches.items():
            within = [tree for tree in found if name == tree.root or name in tree.parents]
            sources = dict.fromkeys(child for tree in within for child in _children(tree).get(name, ()))
            part = None
            if sources:
                parents = tuple(tree.parents.get(name) for tree in found)
                part = JobOnSwitch(tuple(sources), parents, slots, len(job.hosts), overhead)
            switch.forget(number, part)

    def _members(self, number: int, job: PacketJob) -> dict[str, PacketHost]:
        if len(job.hosts) > MOST_WORKERS:
            raise PlanError(f"a job has {MOST_WORKERS} members at most, and {job.name} has {len(job.hosts)}")
        homes = {host: self._home(host) for host in job.hosts}
        members = {}
        for rank, host in enumerate(job.hosts):
            descriptor = Descriptor(
                job=job.name,
                job_id=number % 255 + 1,
                epoch=1,
                rank=rank,
                src_id=rank,
                workers=len(job.hosts),
                window=job.wire.window,
                first_block_id=0,
                block_bytes=job.wire.block_bytes,
                mtu=job.wire.mtu,
                switch=SwitchAddress(*NOWHERE),
                host=HostAddress(*NOWHERE, 1),
            )
            send = partial(self._from_host, host, homes[host])
            members[host] = PacketHost(host, descriptor, number, self.clock, job.wire.host_s, send, partial(self._over, job))
            self.clock.at(job.begins(rank, 0, 0.0), self._begin, job, members[host])
        return members

    def _home(self, host: str) -> str:
        return next(other for other in self.network.topology.neighbors[host] if other in self.switches)

    def _begin(self, job: PacketJob, host: PacketHost) -> None:
        job.began[host.calls][host.rank] = self.clock.now
        host.call(job.blocks)

    def _over(self, job: PacketJob, host: PacketHost) -> None:
        now = self._last = self.clock.now
        job.ended[host.calls - 1][host.rank] = now
        self._left -= 1
        if host.calls < job.calls:
            self.clock.at(job.begins(host.rank, host.calls, now), self._begin, job, host)

    def _from_host(self, host: str, home: str, part: Contribution, marked: bool) -> None:
        overhead = self.switches[home].jobs[part.job].overhead
        self.wires[host, home].send(Frame(part, part.room + overhead, marked))

    def _from_switch(self, switch: str, to: str, part: Part, size: int, marked: bool) -> None:
        self.wires[switch, to].send(Frame(part, size, marked))

    def change(self, change: Change) -> None:
        """Ask for a change at its time."""
        self.clock.at(change.time, self._change, change)

    def _change(self, change: Change) -> None:
        for number in change.links:
            self.wires[self.network.pairs[number]].up = not change.down
        if change.reroute:
            self.network.set_down(change.links, down=change.down)
            for number, job in enumerate(self.jobs):
                self._rebuild(number, job)

    def _rebuild(self, number: int, job: PacketJob) -> None:
        """A new epoch with new trees: all ranks go back to the first block that any of them lacks."""
        self._install(number, job)
        members = self.hosts[number].values()
        first = min((host.window.base for host in members), default=0)
        for host in members:
            host.resume(host.window.block_id(first))

    def run(self, progress: Callable[[float, float], None] = lambda _now, _share: None) -> None:
        """Run until every rank has every result. :class:`PlanError` if nothing arrives any longer."""
        while self._left:
            if not self.clock.step() or self.clock.now - self._last > STUCK:
                waiting = [job.name for job in self.jobs if any(len(each) < len(job.hosts) for each in job.ended)]
                raise PlanError(
                    f"{self.network.topology.name}: job {', '.join(waiting)} waits for ever: its packets do not get through"
                )
            if self.clock.count % _REPORT == 0:
                progress(self.clock.now, 1 - self._left / self._all)

    def counts(self) -> Counts:
        """Counts of all packets."""
        tallies = [wire.tally for wire in self.wires.values()]
        stats = [host.window.stats for members in self.hosts for host in members.values()]
        return Counts(
            packets=sum(each.sent for each in tallies),
            retransmissions=sum(each.retransmissions for each in stats),
            lost=sum(each.lost for each in tallies),
            dropped=sum(each.dropped for each in tallies) + sum(each.dropped for each in self.switches.values()),
            marked=sum(each.marked for each in tallies),
            longest_queue=max(self.wires[ends].tally.longest for ends in self.wires if ends[0] in self.switches),
        )


def _children(tree: Tree) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for child, parent in tree.parents.items():
        found.setdefault(parent, []).append(child)
    return found
