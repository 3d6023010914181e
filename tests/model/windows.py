# SPDX-License-Identifier: MIT
"""Real windows of the host library on the model's switch, over a network that loses, duplicates, delays and reorders, on a clock
of its own. In a job that degrades, ranks may sleep, and a controller may scan. Ranks of one host share memory, and it takes time
until one notices what another has written there."""

from __future__ import annotations

import heapq
import itertools
import os
import random
import select
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hypothesis import strategies as st
from netsum.core.blocks import Block
from netsum.core.endpoint_factory import open_endpoint
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.descriptor import Descriptor, HostAddress, SwitchAddress
from netsum.intranode.leader_endpoint import LeaderEndpoint
from netsum.intranode.member_endpoint import MemberEndpoint
from netsum.intranode.transport import LeaderTransport, MemberTransport
from netsum.packet_batch import Packet as SentPacket
from netsum.transports.base import Transport
from netsum.wire.codec import pack_header, parse_header
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, Lane, Op, Outcome, Status

from tests.model.rules import ALL_RULES, Job, Member, Packet, Reply, Rules, SwitchModel

JOB_ID = 9
SECONDS = 3600.0  # of the run's own clock; far more than it ever needs
HARMLESS = {Outcome.ACCEPTED, Outcome.COMPLETED, Outcome.DUPLICATE, Outcome.REPLAYED, Outcome.STALE, Outcome.AGED}


@dataclass
class Setting:
    """A random job and network."""

    workers: int
    window: int
    slots: int
    first_block_id: int
    loss: float
    duplication: float
    seed: int
    block_exp: float = 0.0  # seconds; 0: the job waits
    quorum: int = 0
    scans: bool = True  # a controller scans
    rules: Rules = ALL_RULES
    sleeps: tuple[tuple[int, float, float], ...] = ()  # (rank, from, to): it does and hears nothing
    hosts: tuple[int, ...] = ()  # how many ranks each host has, if some have several; a host is a source of the job

    @cached_property
    def host_of(self) -> list[int]:
        """The host of each rank."""
        sizes = self.hosts or (1,) * self.workers
        return [host for host, size in enumerate(sizes) for _ in range(size)]

    def ranks_of(self, host: int) -> tuple[int, ...]:
        return tuple(rank for rank, its in enumerate(self.host_of) if its == host)


@st.composite
def runs(draw: st.DrawFn) -> Setting:
    """Up to 5 workers, windows up to 8, ids that wrap, up to 30 % of packets lost each way."""
    window = draw(st.integers(1, 8))
    return Setting(
        workers=draw(st.integers(1, 5)),
        window=window,
        slots=1 << (2 * window - 1).bit_length(),
        first_block_id=draw(st.sampled_from([0, 77, 0x7FFFFFF8, 0xFFFFFFF0])),
        loss=draw(st.sampled_from([0.0, 0.01, 0.1, 0.3])),
        duplication=draw(st.sampled_from([0.0, 0.1, 0.5])),
        seed=draw(st.integers(0, 2**32)),
    )


def descriptor(run: Setting, rank: int) -> Descriptor:
    host = run.host_of[rank]
    return Descriptor(
        job="random", job_id=JOB_ID, block_exp_ms=run.block_exp * 1000, quorum=run.quorum,
        epoch=1, rank=rank, src_id=host, workers=run.workers, window=run.window,
        local_ranks=run.ranks_of(host), peer_key="00" * 16,
        first_block_id=run.first_block_id, block_bytes=CHUNK_BYTES, mtu=1500,
        switch=SwitchAddress("10.0.0.254", "02:00:00:00:00:fe"), host=HostAddress("10.0.0.1", "02:00:00:00:00:01", 1000 + host),
    )  # fmt: skip


def contribution(rng: random.Random, status: Status) -> Block:
    """A random one-chunk contribution, or an empty one with or without room."""
    if status == Status.OK and rng.random() < 0.7:
        return Block(3, Op.SUM, Lane.L32, payload=rng.randbytes(CHUNK_BYTES))
    return Block(3, Op.SUM, Lane.L32, status=status, room=rng.choice((0, CHUNK_BYTES)))


class Link:
    """The link of a host's leader: what it sends flies."""

    def __init__(self, network: Network, host: int) -> None:
        self._network = network
        self._host = host

    def send(self, packets: Sequence[SentPacket]) -> None:
        for packet in packets:
            self._network.fly(contributed(self._host, packet))

    def recv(self, timeout: float | None) -> Sequence[memoryview]:  # noqa: ARG002
        return []

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        pass


def contributed(host: int, packet: SentPacket) -> Packet:
    """A packet of a host as the model takes it."""
    data = b"".join(packet)
    chunks = (int.from_bytes(data[HEADER_BYTES:], "big"),) if len(data) > HEADER_BYTES else ()
    # The window's fetch asks with room for the largest block: one chunk of it is enough for the model's ints.
    return Packet(host + 1, 1000 + host, parse_header(data), chunks)


def open_for_model(each: Descriptor) -> SwitchEndpoint | LeaderEndpoint | MemberEndpoint:
    endpoint = open_endpoint(each)
    assert isinstance(endpoint, SwitchEndpoint | LeaderEndpoint | MemberEndpoint)
    return endpoint


def is_readable(transport: LeaderTransport | MemberTransport) -> bool:
    """True if another rank of the host has rung."""
    return bool(select.select([transport.group.fileno()], [], [], 0)[0])


@dataclass
class Doorbell:
    """Something may be new in the memory that a rank shares with others."""

    rank: int


@dataclass
class Network:
    """Windows, the model's switch and what flies between them, by time of arrival. To be closed if ranks share memory."""

    run: Setting
    rng: random.Random
    now: float = 0.0
    flying: list[tuple[float, int, Packet | Reply | Doorbell]] = field(default_factory=list)

    def __post_init__(self) -> None:
        run = self.run
        hosts = [run.ranks_of(host) for host in sorted({*run.host_of})]
        members = tuple(Member(host, host + 1, 1000 + host, ranks[0], len(ranks)) for host, ranks in enumerate(hosts))
        aging = (round(run.block_exp * 1e6), run.quorum, run.window)
        self.switch = SwitchModel({JOB_ID: Job(1, run.first_block_id, run.slots, 0, members, *aging)}, rules=run.rules)
        self.began: dict[int, float] = {}  # when a block's first contribution came, by id
        self.scanned = 0.0
        key = os.urandom(16).hex()  # two networks of one process have nothing in common
        descriptors = [replace(descriptor(run, rank), peer_key=key) for rank in range(run.workers)]
        self.endpoints = [open_for_model(each) for each in descriptors]
        links = [Link(self, host) for host in run.host_of]
        self.transports: list[Transport] = [each.attach(link) for each, link in zip(self.endpoints, links, strict=True)]
        self._serials = itertools.count()
        self.rung: set[int] = set()  # ranks with a doorbell on its way
        for rank in range(run.workers):
            self.ring(rank)

    def close(self) -> None:
        for transport in self.transports:
            transport.close()

    def ring(self, rank: int) -> None:
        """A rank has acted: those of its host for which there is something notice that, each after a while."""
        for other in self.run.ranks_of(self.run.host_of[rank]):
            transport = self.transports[other]
            if isinstance(transport, LeaderTransport | MemberTransport) and other not in self.rung and is_readable(transport):
                self.rung.add(other)
                delay = self.rng.choice((0.0001, 0.0001, self.rng.random() * 0.1))
                heapq.heappush(self.flying, (self.now + delay, next(self._serials), Doorbell(other)))

    def fly(self, item: Packet | Reply) -> None:
        """Sent now; lost, or arrives once or twice after random delays."""
        if self.rng.random() < self.run.loss:
            return
        for _ in range(1 + (self.rng.random() < self.run.duplication)):
            delay = self.rng.choice((0.001, 0.001, self.rng.random() * 0.5))
            heapq.heappush(self.flying, (self.now + delay, next(self._serials), item))

    def send(self, rank: int) -> None:
        """Packets that a window wants to send."""
        if packets := self.endpoints[rank].poll(self.now):
            self.transports[rank].send(packets)
            self.ring(rank)

    def old(self, block_id: int) -> bool:
        """True if a block began long enough ago."""
        return 0 < self.run.block_exp <= self.now - self.began.get(block_id, self.now)

    def receiver(self, item: Reply | Doorbell) -> int:
        """The rank that it comes to."""
        return item.rank if isinstance(item, Doorbell) else self.run.ranks_of(item.port - 1)[0]

    def look(self, rank: int) -> None:
        """A rank takes what is in the memory that it shares, and acts."""
        endpoint, transport = self.endpoints[rank], self.transports[rank]
        self.rung.discard(rank)
        while packets := transport.recv(0.0):
            endpoint.receive(packets, self.now)
        endpoint.receive([], self.now)
        self.ring(rank)
        self.send(rank)

    def arrive(self, item: Packet | Reply | Doorbell) -> None:
        """At the switch or at a window."""
        if isinstance(item, Doorbell):
            self.look(item.rank)
            return
        if isinstance(item, Packet):
            block_id = item.header.block_id
            step = self.switch.step(item, old=self.old(block_id))
            assert step.outcome in HARMLESS, step.outcome
            if step.outcome == Outcome.ACCEPTED:
                self.began.setdefault(block_id, self.now)
            for reply in step.replies:
                self.fly(reply)
            return
        data = pack_header(item.header) + b"".join(chunk.to_bytes(CHUNK_BYTES, "big") for chunk in item.payload)
        rank = self.receiver(item)
        self.endpoints[rank].receive([memoryview(data)], self.now)
        self.ring(rank)
        self.send(rank)

    def scan(self) -> None:
        """The controller's timer."""
        self.scanned = self.now
        for slot in self.switch.scanned_slots(JOB_ID):
            record = self.switch.records.get(slot)
            for reply in self.switch.look(JOB_ID, slot, old=self.old(record.block_id)) if record else ():
                self.fly(reply)

    def awake(self, rank: int) -> float:
        """The time at which a rank receives and acts next: now, if it is not asleep."""
        return max([self.now, *(end for who, begin, end in self.run.sleeps if who == rank and begin <= self.now < end)])

    def play(self) -> None:
        """Until every rank holds everything."""
        for rank in range(self.run.workers):
            self.send(rank)
        while not all(endpoint.idle for endpoint in self.endpoints):
            self.turn()
            assert self.now < SECONDS, "a rank waits for ever"

    def turn(self) -> None:
        """The next event: something arrives, a timer fires, a scan is due, a rank wakes up."""
        times = [max(due, self.awake(rank)) for rank, endpoint in enumerate(self.endpoints)
                 if (due := endpoint.next_deadline()) is not None]  # fmt: skip
        scanning = self.run.block_exp > 0 and self.run.scans
        if scanning:
            times.append(self.scanned + self.run.block_exp / 2)
        if self.flying:
            times.append(self.flying[0][0])
        assert times, "no rank has anything to do, and not every rank is done"
        self.now = max(self.now, min(times))
        if scanning and self.now >= self.scanned + self.run.block_exp / 2:
            self.scan()
        if self.flying and self.flying[0][0] <= self.now:
            _, serial, item = heapq.heappop(self.flying)
            wakes = self.now if isinstance(item, Packet) else self.awake(self.receiver(item))
            if wakes > self.now:
                heapq.heappush(self.flying, (wakes, serial, item))
            else:
                self.arrive(item)
        else:
            for rank in range(self.run.workers):
                if self.awake(rank) <= self.now:
                    self.look(rank)
