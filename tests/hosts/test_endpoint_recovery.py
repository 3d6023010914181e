# SPDX-License-Identifier: MIT
"""Windows whose switch restarts at any moment, again and again: every rank ends with the exact results, each delivered once."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.core.blocks import BlockRejected
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.descriptor import Descriptor
from netsum.wire.codec import pack_header, parse_header
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, Outcome

from tests.hosts.network import FIRST_UDP_PORT, JOB_ID, contribution, descriptor, job, key_of, reply_bytes
from tests.hosts.test_switch_endpoint import Host
from tests.model.rules import SwitchModel

MASK = 0xFFFFFFFF


class Flying(NamedTuple):
    """A packet in flight; a result that comes to a port which its member has left is lost."""

    rank: int
    up: bool
    port: int
    data: bytes


class Member(Host):
    """Which has a port, too, and an epoch in which it is."""

    def __init__(self, first: Descriptor, values: list[int]) -> None:
        super().__init__(SwitchEndpoint(first))
        self.epoch = first.epoch
        self.port = first.host.udp_port
        self.asking = False
        for value in values:
            self.submit(value)


class Story:
    """A network that misbehaves, a switch that restarts, and a controller that restores its job."""

    def __init__(self, seed: int, workers: int, blocks: int, size: int, first: int, *, keyed: bool = False) -> None:
        self.random = random.Random(seed)
        self.values = [[self.random.randrange(1 << 20) for _ in range(blocks)] for _ in range(workers)]
        keys = [key_of(rank, 7) if keyed else "" for rank in range(workers)]
        described = [descriptor(rank, workers, window=size, first_block_id=first, key=key) for rank, key in enumerate(keys)]
        self.hosts = [Member(each, mine) for each, mine in zip(described, self.values, strict=True)]
        self.epoch, self.first, self.ports = described[0].epoch, first, FIRST_UDP_PORT
        self.whole = job(described[0])
        self.switch = SwitchModel({JOB_ID: self.whole})
        self.needs: dict[int, int] = {}
        self.waiting = False
        self.flying: list[Flying] = []
        self.now = 0.0
        self.restarts = 0
        self.keyed = keyed
        self.refused: set[Outcome | None] = set()

    def restart(self) -> None:
        """The switch forgets everything, and the controller begins an epoch that resumes."""
        self.switch.restart()
        self.restarts += 1
        self.epoch += 1
        self.ports += 100
        self.needs, self.waiting = {}, True

    def ask(self, rank: int) -> None:
        """Let a member ask the controller what has become of its epoch."""
        host = self.hosts[rank]
        if host.epoch == self.epoch:
            host.asking = False
            return
        if self.waiting:
            self.needs[rank] = host.endpoint.block_id(host.endpoint.prefix)
            if len(self.needs) < len(self.hosts):
                return
            self.first = min(self.needs.values(), key=lambda need: (need - self.first) & MASK)
            keys = [int(key_of(each.rank, self.epoch), 16) if self.keyed else 0 for each in self.whole.members]
            members = tuple(
                each._replace(udp_port=self.ports + each.rank, key=key)
                for each, key in zip(self.whole.members, keys, strict=True)
            )
            self.switch.jobs[JOB_ID] = self.whole._replace(epoch=self.epoch, first_block_id=self.first, members=members)
            self.waiting = False
        key = key_of(rank, self.epoch) if self.keyed else ""
        assert host.endpoint.resume(self.first, key=key), "a contribution that is needed again is gone"
        host.epoch, host.port, host.asking = self.epoch, self.ports + rank, False

    def poll(self, rank: int) -> None:
        host = self.hosts[rank]
        self.flying += [Flying(rank, True, host.port, b"".join(packet)) for packet in host.endpoint.poll(self.now)]

    def arrive(self, packet: Flying) -> None:
        if packet.up:
            for reply in self.switch.step(contribution(packet.data, packet.rank, packet.port)).replies:
                self.flying.append(Flying(reply.port - 1, False, reply.udp_port, reply_bytes(reply)))
            return
        host = self.hosts[packet.rank]
        if packet.port != host.port:
            return
        try:
            host.endpoint.receive([memoryview(packet.data)], self.now)
        except BlockRejected as refusal:
            self.refused.add(refusal.reason)
            host.asking = True

    def step(self, loss: float) -> None:
        """Let one random thing happen."""
        rng = self.random
        rank = rng.randrange(len(self.hosts))
        host = self.hosts[rank]
        done = host.endpoint.idle and host.epoch != self.epoch  # its next call would tell it
        if (host.asking or done) and rng.random() < 0.5:
            self.ask(rank)
        if self.keyed and rng.random() < 0.02:  # the network gives it another address
            host.port += 10_000
        self.poll(rank)
        if self.flying and rng.random() < 0.9:
            packet = self.flying.pop(rng.randrange(min(len(self.flying), 12)))
            if rng.random() < loss:
                return
            if rng.random() < loss:
                self.flying.append(packet)
            self.arrive(packet)
        else:
            deadlines = [host.endpoint.next_deadline() for host in self.hosts]
            self.now = max(self.now, min((each for each in deadlines if each is not None), default=self.now))

    @property
    def over(self) -> bool:
        return all(host.endpoint.idle for host in self.hosts)


@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.integers(1, 40),
    st.sampled_from([1, 2, 3, 8]),
    st.sampled_from([0, 4096, 2**32 - 20]),
    st.sampled_from([0.0, 0.1, 0.3]),
    st.lists(st.integers(1, 400), max_size=5),
    st.booleans(),
)
def test_results_are_exact_and_come_once_whenever_the_switch_restarts(
    seed: int, workers: int, blocks: int, size: int, first: int, loss: float, pauses: list[int], keyed: bool
) -> None:
    story = Story(seed, workers, blocks, size, first, keyed=keyed)
    for pause in pauses:
        for _ in range(pause):
            story.step(loss)
        story.restart()
    for _ in range(200_000):
        if story.over:
            break
        story.step(loss)
    assert story.over, [(host.endpoint.base, host.asking, host.epoch) for host in story.hosts]
    for host in story.hosts:
        assert host.got == {serial: sum(mine[serial] for mine in story.values) for serial in range(blocks)}
        assert host.endpoint.stats.malformed == 0
    assert story.refused <= {Outcome.UNKNOWN_JOB, Outcome.BAD_KEY if keyed else Outcome.WRONG_PORT}
    assert all(host.endpoint.stats.resumes <= story.restarts for host in story.hosts)


def test_a_rank_that_holds_everything_helps_those_that_do_not() -> None:
    """One rank has all its results when the switch restarts; the others have none, and cannot get them without its part."""
    story = Story(1, 3, 8, 8, 4096)
    for rank in range(3):
        story.poll(rank)
    while any(packet.up for packet in story.flying):
        story.arrive(story.flying.pop(next(n for n, packet in enumerate(story.flying) if packet.up)))
    for packet in [packet for packet in story.flying if packet.rank == 0]:
        story.arrive(packet)
    story.flying.clear()
    assert [len(host.got) for host in story.hosts] == [8, 0, 0]
    story.restart()
    for host in story.hosts:
        host.asking = True
    while not story.over:
        story.step(0.0)
    for host in story.hosts:
        assert host.got == {serial: sum(mine[serial] for mine in story.values) for serial in range(8)}


@pytest.mark.parametrize(("first", "possible"), [(4136, True), (4132, True), (4131, False), (4096, False), (4137, False)])
def test_contributions_go_back_one_window(first: int, possible: bool) -> None:
    """A rank with a window of 4 has sent 40 blocks, from 4096 on, and has their results."""
    (host,) = Story(1, 1, 40, 4, 4096).hosts
    while not host.endpoint.idle:
        for packet in host.endpoint.poll(0.0):
            result = parse_header(b"".join(packet)[:HEADER_BYTES])
            host.endpoint.receive([memoryview(pack_header(result) + bytes(CHUNK_BYTES))], 0.0)
    assert host.endpoint.block_id(host.endpoint.prefix) == 4136
    assert host.endpoint.resume(first) is possible
    assert len(host.endpoint.poll(0.0)) == (4136 - first if possible else 0)
