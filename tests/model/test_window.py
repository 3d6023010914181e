"""The host library's window held to the model: real windows talk to the model's switch over a network that loses,
duplicates, delays and reorders, on a clock of its own; every result is the exact one and everybody comes to the end."""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from netsum.block import Block
from netsum.descriptor import Descriptor, HostAddress, SwitchAddress
from netsum.window import Refusal, Window
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import CHUNK_BYTES, EVERYONE, HEADER_BYTES, Lane, Op, Outcome, Status

from tests.model.rules import Job, Member, Packet, Reply, SwitchModel

JOB_ID = 9
SECONDS = 3600.0  # of the run's own clock; far more than it ever needs
HARMLESS = {Outcome.ACCEPTED, Outcome.COMPLETED, Outcome.DUPLICATE, Outcome.REPLAYED, Outcome.STALE}


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
    """A member's descriptor."""
    return Descriptor(
        job="random", job_id=JOB_ID, epoch=1, rank=rank, src_id=rank, workers=run.workers, window=run.window,
        first_block_id=run.first_block_id, block_bytes=CHUNK_BYTES, mtu=1500,
        switch=SwitchAddress("10.0.0.254", "02:00:00:00:00:fe"), host=HostAddress("10.0.0.1", "02:00:00:00:00:01", 1000 + rank),
    )  # fmt: skip


def contribution(rng: random.Random, status: Status) -> Block:
    """A random one-chunk contribution, or an empty one with or without room."""
    if status == Status.OK and rng.random() < 0.7:
        return Block(3, Op.SUM, Lane.L32, payload=rng.randbytes(CHUNK_BYTES))
    return Block(3, Op.SUM, Lane.L32, status=status, room=rng.choice((0, CHUNK_BYTES)))


@dataclass
class Network:
    """Windows, the model's switch and what flies between them, by time of arrival."""

    run: Setting
    rng: random.Random
    now: float = 0.0
    flying: list[tuple[float, int, Packet | Reply]] = field(default_factory=list)

    def __post_init__(self) -> None:
        run = self.run
        members = tuple(Member(rank, rank + 1, 1000 + rank, rank) for rank in range(run.workers))
        self.switch = SwitchModel({JOB_ID: Job(1, run.first_block_id, run.slots, 0, members)})
        self.windows = [Window(descriptor(run, rank)) for rank in range(run.workers)]
        self._serials = itertools.count()

    def fly(self, item: Packet | Reply) -> None:
        """Sent now; lost, or arrives once or twice after random delays."""
        if self.rng.random() < self.run.loss:
            return
        for _ in range(1 + (self.rng.random() < self.run.duplication)):
            delay = self.rng.choice((0.001, 0.001, self.rng.random() * 0.5))
            heapq.heappush(self.flying, (self.now + delay, next(self._serials), item))

    def send(self, rank: int) -> None:
        """What a window wants to send."""
        for packet in self.windows[rank].poll(self.now):
            data = b"".join(packet)
            chunks = (int.from_bytes(data[HEADER_BYTES:], "big"),) if len(data) > HEADER_BYTES else ()
            # The window's fetch asks with room for the largest block: one chunk of it is enough for the model's ints.
            self.fly(Packet(rank + 1, 1000 + rank, parse_header(data), chunks))

    def arrive(self, item: Packet | Reply) -> None:
        """At the switch or at a window."""
        if isinstance(item, Packet):
            step = self.switch.step(item)
            assert step.outcome in HARMLESS, step.outcome
            for reply in step.replies:
                self.fly(reply)
            return
        data = pack_header(item.header) + b"".join(chunk.to_bytes(CHUNK_BYTES, "big") for chunk in item.payload)
        self.windows[item.port - 1].receive(memoryview(data), self.now)
        self.send(item.port - 1)

    def play(self) -> None:
        """Until everybody holds everything."""
        for rank in range(self.run.workers):
            self.send(rank)
        while not all(window.idle for window in self.windows):
            deadlines = [d for window in self.windows if (d := window.next_deadline()) is not None]
            arrival = self.flying[0][0] if self.flying else SECONDS
            self.now = max(self.now, min([arrival, *deadlines]))
            assert self.now < SECONDS, "somebody waits for ever"
            if self.flying and arrival <= self.now:
                self.arrive(heapq.heappop(self.flying)[2])
            else:
                for rank in range(self.run.workers):
                    self.send(rank)


@settings(max_examples=60, deadline=None)
@given(runs())
def test_windows_are_exact_over_the_models_switch(run: Setting) -> None:
    rng = random.Random(run.seed)
    network = Network(run, rng)
    blocks = rng.randrange(1, 40)
    got: list[dict[int, tuple[Header, bytes]]] = [{} for _ in network.windows]
    expected: list[tuple[int, int, bytes]] = []
    for number in range(blocks):
        statuses = [rng.choice((Status.OK,) * 12 + (Status.RANGE, Status.ABORT)) for _ in network.windows]
        sent = [contribution(rng, status) for status in statuses]
        payloads = [int.from_bytes(block.payload, "big") for block in sent if block.payload]
        total = (sum(payloads) % (1 << (8 * CHUNK_BYTES))).to_bytes(CHUNK_BYTES, "big")
        status = max(block.status for block in sent)
        expected.append((status, len(payloads), total if payloads and status == Status.OK else b""))
        for rank, block in enumerate(sent):

            def take(header: Header, payload: memoryview, rank: int = rank, number: int = number) -> None:
                assert number not in got[rank], "a result is taken once"
                got[rank][number] = (header, bytes(payload))

            block.on_result = take
            network.windows[rank].submit(block)
    network.play()
    for results in got:
        for number, right in enumerate(expected):
            header, payload = results[number]
            assert (header.status, header.data_cnt, payload) == right
            assert (header.src_cnt, header.dest) == (run.workers, EVERYONE)


def test_an_abort_is_taken_whatever_its_generation() -> None:
    """A rank that aborts another call than the others make must learn that its block is over."""
    network = Network(Setting(2, 4, 8, 0, loss=0.0, duplication=0.0, seed=0), random.Random(0))
    statuses: list[int] = []
    for window, gen, status in zip(network.windows, (1, 2), (Status.OK, Status.ABORT), strict=True):
        taken = lambda header, _: statuses.append(header.status)  # noqa: E731
        window.submit(Block(gen, Op.SUM, Lane.L32, status=status, on_result=taken))
    network.play()
    assert statuses == [Status.ABORT, Status.ABORT]


def play_many(run: Setting, seeds: int) -> None:
    """Barriers over many networks."""
    for seed in range(seeds):
        network = Network(run, random.Random(seed))
        for window in network.windows:
            for _ in range(20):
                window.submit(Block(3, Op.SUM, Lane.L32))
        network.play()


def test_the_check_can_fail() -> None:
    """As many slots as the window has blocks, not twice as many: a rank is told STALE about a block that it needs."""
    run = Setting(3, window=4, slots=8, first_block_id=0, loss=0.1, duplication=0.1, seed=0)
    play_many(run, 10)
    with pytest.raises(Refusal, match="STALE"):
        play_many(replace(run, slots=4), 10)
