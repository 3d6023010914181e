# SPDX-License-Identifier: MIT
"""A controller that hangs slows no call, however many ranks there are; in simulated time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import pytest
from netsum import controller_http
from netsum.core import progress, recovery, session
from netsum.core.blocks import Block
from netsum.core.progress import Flow, ProgressEngine, Work
from netsum.core.recovery import JITTER, InactivityTimer, Recovery
from netsum.core.session import JobSession
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.transports import InMemoryTransport
from netsum.transports.base import Packet
from netsum.wire.schema import CHUNK_BYTES, Lane, Op

from tests.hosts.network import JOB_ID, contribution, descriptor, job, reply_bytes
from tests.model.rules import SwitchModel

RANKS = 255
LATE = 1.5
"""Seconds by which one rank of a call is late: the others ask the controller meanwhile."""
SERVICE = 0.00002
"""Seconds that the switch takes for a packet."""
LINK = 0.0005
GLANCE = 0.1
"""A rank that hears nothing looks at its clock so often."""


class Clock:
    """Takes the place of the module ``time``."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Rank(InMemoryTransport):
    """One rank: its engine, and the link on which its packets leave."""

    def __init__(self, network: Network, rank: int) -> None:
        super().__init__(lambda _data: None)
        self._network, self._rank = network, rank
        first = descriptor(rank, RANKS)
        asks = Recovery(first, network.hang, lambda _descriptor: self)
        self.session = JobSession(SwitchEndpoint(first), self, recovery=asks)
        self.session._inactivity = InactivityTimer(RANKS, seed=rank)
        self.engine: ProgressEngine[Work[Any]] = ProgressEngine(self.session)
        self.call: Work[Any] | None = None

    def send(self, packets: Sequence[Packet]) -> None:
        for packet in packets:
            self._network.send(self._rank, b"".join(packet))

    def begin(self, gen: int) -> None:
        """Begin a call of two blocks, the second of which follows the first's result."""
        self.call = self.engine.start(Work(self.engine, self._flow(gen), gen, 60.0), background=False)

    def _flow(self, gen: int) -> Flow:
        endpoint = self.session.endpoint
        for op in (Op.MAX, Op.SUM):
            endpoint.submit(Block(gen, op, Lane.L32, bytes(CHUNK_BYTES)))
            yield lambda: endpoint.base == endpoint.submitted


class Network:
    """A switch, which takes one packet after the other, and ranks in one thread. ``hang`` is their query to the controller."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked: list[float] = []
        self._free = clock.now  # when the switch has taken what has been sent to it so far
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._switch = SwitchModel({JOB_ID: job(descriptor(0, RANKS))})
        self._lost: set[bytes] = set()
        self.ranks = [Rank(self, rank) for rank in range(RANKS)]

    def hang(self, _epoch: int, _stopped: object) -> NoReturn:
        raise AssertionError("queries are never asked on a thread")

    def at(self, when: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), event))

    def send(self, rank: int, data: bytes) -> None:
        if rank == 3 and data not in self._lost:  # what it sends arrives only when it is repeated
            self._lost.add(data)
            return
        self._free = max(self._free, self.clock.now + LINK) + SERVICE
        self.at(self._free, lambda: self._take(rank, data))

    def _take(self, rank: int, data: bytes) -> None:
        for reply in self._switch.step(contribution(data, rank)).replies:
            there = self.ranks[reply.port - 1]
            there.put(reply_bytes(reply))
            self.at(self.clock.now + LINK, lambda there=there: self._step(there))  # type: ignore[misc]

    def _step(self, rank: Rank) -> None:
        if rank.call is not None and not rank.call.over and rank.session.endpoint.submitted:
            rank.engine._turn(wait=False)

    def _glance(self, rank: Rank) -> None:
        if rank.call is not None and not rank.call.over:
            rank.engine._turn(wait=False)
            self.at(self.clock.now + GLANCE, lambda: self._glance(rank))

    def call(self, gen: int) -> float:
        """Make a call on every rank, on one of them later; returns how long it takes."""
        began = self.clock.now
        for rank in self.ranks:
            rank.begin(gen)
            late = LATE if rank._rank == 7 + gen else rank._rank * LINK
            self.at(began + late, lambda rank=rank: self._glance(rank))  # type: ignore[misc]
        while not all(rank.call is not None and rank.call.over for rank in self.ranks):
            when, _, event = heapq.heappop(self._events)
            self.clock.now = max(self.clock.now, when)
            event()
        for rank in self.ranks:
            assert rank.call is not None
            rank.call.wait()
        return self.clock.now - began


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    clock = Clock()
    for module in (controller_http, progress, recovery, session):
        monkeypatch.setattr(module, "time", clock)
    made = Network(clock)

    class Unanswered(controller_http.BackgroundRequest[Any]):
        """A query to a controller that accepts connections and says nothing."""

        def __init__(self, ask: Callable[[], Any]) -> None:  # noqa: ARG002
            self.begun = clock.now
            made.asked.append(clock.now)

        def done(self, timeout: float = 0.0) -> bool:
            clock.now += timeout
            return False

    monkeypatch.setattr(recovery, "BackgroundRequest", Unanswered)
    return made


def test_a_call_of_255_ranks_waits_for_its_ranks_alone(network: Network) -> None:
    took = [network.call(gen) for gen in range(2)]
    assert network.asked, "some rank was silent for long enough"
    assert max(took) < LATE + 0.5, took


def test_silent_ranks_ask_one_after_the_other() -> None:
    """Of 255 ranks that fall silent at once, the first asks soon after a second, and no moment has many queries."""
    asking: list[float] = []
    ranks = [InactivityTimer(RANKS, seed=seed) for seed in range(RANKS)]
    for rank in ranks:
        rank.expired(0, 0.0, waiting=True)
    for tick in range(400):
        asking += [tick / 100 for rank in ranks if rank.expired(0, tick / 100, waiting=True)]
    first = asking[:RANKS]
    assert 1.0 <= first[0] < 1.0 + 10 * JITTER
    assert max(first) <= 1.0 + RANKS * JITTER + 0.01
    assert max(asking.count(when) for when in set(asking)) <= 8
