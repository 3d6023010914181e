# SPDX-License-Identifier: MIT
"""The explored trees on the program: one switch of a tree, its root or a leaf, is the program, the others are models; every
hop loses, duplicates and reorders from a seed. Every reply is compared with the model's, every result with the exact one."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.model import forest
from tests.model.host import JOB_ID
from tests.model.rules import Job, Packet, Reply
from tests.model.scenario import Scenario
from tests.protocol import star
from tests.protocol.frame_model import FrameModel, Sent, without_padding
from tests.protocol.frames import RIGHT, Datagram
from tests.protocol.replay import Change, Event, Scan, Step, compare_state, follow, play
from tests.protocol.targets import Target
from tests.protocol.test_scenarios import Run, frame_of, reply_in

SCENARIOS = (
    forest.TREE, forest.MIXED, forest.DEEP, forest.TREE_BARE, forest.DEEP_BARE, forest.TREE_DEST, forest.TREE_REDO,
    forest.TREE_ABORT, forest.LEAVES_DIFFER, forest.TREE_RESTART, forest.STRIPES, forest.TREE_LATE, forest.LATE_REUSE,
    forest.DEEP_LATE, forest.BARE_LATE, forest.LATE_DIFFER, forest.TREE_EVICTED, forest.LEAF_EVICTED,
    forest.TREE_CONGESTED,
)  # fmt: skip


class End(NamedTuple):
    """One end of a wire between two switches."""

    switch: int
    port: int


class Crossing(NamedTuple):
    """A frame on its way to a switch's port."""

    to: End
    frame: bytes


def wired(scenario: Scenario) -> tuple[dict[End, End], list[dict[int, int]]]:
    """The wires, both ways, and by switch the port among its own that stands for a port of the model's."""
    wires: dict[int, list[End]] = {}
    ports: list[dict[int, int]] = []
    for number, node in enumerate(scenario.nodes):
        mine = {child.port: child.port for child in node.children if child.switch is None}
        free = (port for port in star.PORTS if port not in mine.values())
        edges = [port for port, _ in node.parents] + [child.port for child in node.children if child.switch is not None]
        for edge, port in zip(edges, free, strict=False):
            mine[edge] = port
            wires.setdefault(edge, []).append(End(number, port))
        ports.append(mine)
    return {one: other for ends in wires.values() for one, other in (ends, ends[::-1])}, ports


class TreeRun(Run):
    """One scenario on one target, which is the switch number ``at`` of the tree."""

    flying: list[Packet | Reply | Crossing]  # type: ignore[assignment]

    def __init__(self, scenario: Scenario, target: Target, seed: int, at: int) -> None:
        self.at = at
        self.wires, self.ports = wired(scenario)
        self.evicted: frozenset[int] = frozenset()
        super().__init__(scenario, target, seed)

    def load(self, first_block_id: int) -> None:
        self.jobs = self.planned(first_block_id)
        self.models = [FrameModel() for _ in self.jobs]
        for number in range(len(self.jobs)):
            self.boot(number)

    def planned(self, first_block_id: int, *, begun: bool = False) -> list[Job | None]:
        """The items of each switch, with its own port numbers."""
        jobs = self.scenario.jobs(self.epoch, first_block_id, self.evicted, begun=begun)
        return [job and self.moved(number, job) for number, job in enumerate(jobs)]

    def moved(self, number: int, job: Job) -> Job:
        ports = self.ports[number]
        return job._replace(
            members=tuple(member._replace(port=ports[member.port]) for member in job.members),
            uplinks=tuple(up._replace(port=ports[up.port]) for up in job.uplinks),
        )

    def boot(self, number: int) -> None:
        """Give an empty switch its job."""
        job = self.jobs[number]
        self.models[number] = FrameModel({JOB_ID: job} if job else {})
        if number == self.at:
            self.target.reset(star.items({JOB_ID: job} if job else {}))

    def to_switch(self, packet: Packet) -> None:
        nodes = enumerate(self.scenario.nodes)
        number = next(number for number, node in nodes if packet.port in {child.port for child in node.children})
        self.process(number, Step(packet.port, frame_of(packet)))

    def deliver(self, item: Packet | Reply | Crossing) -> None:
        if not isinstance(item, Crossing):
            super().deliver(item)
            return
        came = Datagram.parse(item.frame).but(
            eth_src=star.neighbor(item.to.port).mac, ip_src=star.neighbor(item.to.port).ip, ip_dst=star.SWITCH_IP,
            eth_dst=star.SWITCH_MAC, ip_checksum=RIGHT,
        )  # fmt: skip
        self.process(item.to.switch, Step(item.to.port, came.to_bytes()))

    def process(self, number: int, event: Event) -> None:
        """Apply an event to a switch's model and, if it is the target, to that too."""
        model = self.models[number]
        if number != self.at:
            self.take_from(number, follow(model, event)[1])
            return
        closed, got = play(self.target, model, event)
        right, expected = follow(model, event)
        assert (closed, without_padding(got)) == (right, without_padding(expected)), event
        self.take_from(number, got)

    def take_from(self, number: int, sent: Sent) -> None:
        """Packets that have left a switch fly to hosts and to other switches."""
        for port, frame in sent:
            between = Datagram.parse(frame).header.hop
            self.flying.append(Crossing(self.wires[End(number, port)], frame) if between else reply_in(port, frame))

    def age(self, block_exp: int) -> None:
        for number, job in enumerate(self.jobs):
            if job:
                self.become(number, job._replace(block_exp=block_exp))

    def become(self, number: int, job: Job | None) -> None:
        """A switch's entries change; without members it has none."""
        before = self.jobs[number]
        if job is None:
            if before is not None and number == self.at:
                self.target.replace(star.job_items(JOB_ID, before), [])
            self.models[number].switch.jobs.pop(JOB_ID, None)
        else:
            self.process(number, Change(JOB_ID, job))
        self.jobs[number] = job

    def scan(self) -> None:
        for number, job in enumerate(self.jobs):
            if job:
                self.process(number, Scan(JOB_ID))

    def evict(self, rank: int) -> None:
        self.evicted |= {rank}
        root = self.jobs[0]
        assert root is not None
        for number, job in enumerate(self.planned(root.first_block_id, begun=True)):
            self.become(number, job)
        self.scan()

    def restart(self) -> None:
        """One switch loses everything; all get a new epoch at the lowest block that any rank lacks."""
        lost = self.rng.choice((self.at, self.rng.randrange(len(self.jobs))))
        self.epoch += 1
        first = min(host.prefix for host in self.hosts)
        before, self.jobs = self.jobs, self.planned(self.hosts[0].origin + first)
        for number, job in enumerate(self.jobs):
            if number == lost:
                self.boot(number)
            else:
                self.jobs[number] = before[number]
                self.become(number, job)
        self.rejoin(first)

    def compare(self) -> None:
        if self.jobs[self.at]:
            compare_state(self.models[self.at], self.target)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_as_a_leaf(target: Target, scenario: Scenario) -> None:
    TreeRun(scenario, target, len(scenario.name), at=scenario.roots).play()


@pytest.mark.parametrize("scenario", SCENARIOS[3::2], ids=lambda scenario: scenario.name)
def test_as_the_root(target: Target, scenario: Scenario) -> None:
    TreeRun(scenario, target, len(scenario.name), at=0).play()
