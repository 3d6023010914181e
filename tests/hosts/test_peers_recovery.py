# SPDX-License-Identifier: MIT
"""A job whose switch dies goes on among its members, in the middle of calls, and back to a switch; with the same bits."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from netsum import Communicator, DesynchronizedError
from netsum.core import recovery
from netsum.core.recovery import MAX_PATIENCE, PATIENCE, InactivityTimer
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.descriptor import CHAIN, HOST_ALGORITHMS, Descriptor
from netsum.intranode.leader_endpoint import LeaderEndpoint
from netsum.intranode.member_endpoint import MemberEndpoint
from netsum.peers.peer_endpoint import PeerEndpoint
from netsum.transports import ImpairedTransport, Impairment, Transport

from tests.hosts.calls import allreduce, closing_all, good, on_each, running
from tests.hosts.moving import MovingHosts, MovingNetwork
from tests.threads import until


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "PATIENCE", 0.1)
    monkeypatch.setattr(recovery, "POLL_INTERVAL", 0.1)


class Training:
    """Steps of every rank, each of several kinds of calls whose results depend on all before. In every step rank 0 tells the
    others whether it is the last: so a test that disturbs it has all the time that it needs."""

    def __init__(self, communicators: Sequence[Communicator], steps: int | None = None) -> None:
        """``steps``: how many; None: until :meth:`results`."""
        self._communicators, self._steps = communicators, steps
        self._reached = [0] * len(communicators)
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._running = self._pool.submit(on_each, communicators, self._train)

    @property
    def reached(self) -> int:
        """The step in which the last rank is."""
        return min(self._reached)

    def results(self) -> list[list[bytes]]:
        """End after the steps in progress: what each rank has got."""
        self._over.set()
        with self._pool:
            return self._running.result()

    def go_on(self, steps: int = 3) -> None:
        """Return after some more steps."""
        goal = self.reached + steps
        until(lambda: self.reached >= goal or self._running.done())

    def _train(self, comm: Communicator) -> list[bytes]:
        weights: Any = np.linspace(-1.0, 1.0, 700).astype(np.float32)
        got, last = [], False
        while not last:
            step = self._reached[comm.rank]
            gradient = weights * (comm.rank + 1) + np.float32(step)
            weights = weights - 0.015625 * comm.allreduce(gradient, "mean", scale="predicted")
            part = comm.reduce_scatter(np.arange(300) + comm.rank + step)
            whole = comm.all_gather(part)
            told = comm.broadcast(weights * (comm.rank + 1), root=1)
            got += [each.tobytes() for each in (weights, whole, told)]
            self._reached[comm.rank] = step + 1
            last = bool(comm.broadcast(np.array([self._is_last(step)]), root=0)[0])
        return got

    def _is_last(self, step: int) -> bool:
        return self._over.is_set() if self._steps is None else step + 1 == self._steps


def until_resumed(communicators: Sequence[Communicator], times: int) -> None:
    until(lambda: all(comm.stats.resumes == times for comm in communicators))


def check(training: Training) -> None:
    """The results are the same as of an undisturbed training, to the bit."""
    results = training.results()
    with running(MovingNetwork(len(results))) as (_, communicators):
        assert results == Training(communicators, training.reached).results()


@pytest.mark.parametrize(
    ("algorithm", "window"),
    [("auto", 1), pytest.param("ring", 8, marks=pytest.mark.full), ("double_binary_tree", 200), (CHAIN, 8)],
)
def test_the_switch_dies_in_the_middle_and_another_comes(algorithm: str, window: int) -> None:
    with running(MovingNetwork(3, algorithm=algorithm, window=window)) as (network, communicators):
        training = Training(communicators)
        training.go_on()
        network.die()
        network.move(by_switch=False)
        training.go_on()
        assert all(isinstance(comm._endpoint, PeerEndpoint) for comm in communicators)
        network.move(by_switch=True)
        until_resumed(communicators, 2)
        training.go_on()
        check(training)
        assert [comm.stats.resumes for comm in communicators] == [2] * 3


def asks(comm: Communicator) -> None:
    """Make a member ask as if it had heard nothing for long."""
    assert comm._recovery is not None
    comm._recovery.note_inactivity()


class BadNetwork(MovingNetwork):
    """Packets to the combining member are lost, duplicated and reordered."""

    opened = 0

    def open(self, member: Descriptor) -> Transport:
        self.opened += 1
        return ImpairedTransport(super().open(member), Impairment(drop=0.02, duplicate=0.02, reorder=0.02), self.opened)


@pytest.mark.full
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_any_moves_over_a_bad_network(seed: int) -> None:
    rng = random.Random(seed)
    workers, endpoint = rng.choice([2, 3, 5]), rng.choice([1, 3, 8, 64])
    network = BadNetwork(workers, endpoint, algorithm=rng.choice((*HOST_ALGORITHMS, CHAIN)))
    with closing_all(network.communicators()) as communicators:
        training = Training(communicators)
        for moves in range(1, 7):
            training.go_on(2)
            if network.by_switch and rng.random() < 0.4:
                network.cut_off()
            else:
                network.move(by_switch=rng.random() < 0.4)
            asks(rng.choice(communicators))
            until_resumed(communicators, moves)
        training.go_on(2)
        check(training)


def test_it_dies_while_one_rank_is_between_calls_and_moves_again_among_members() -> None:
    with running(MovingNetwork(3)) as (network, communicators):
        good(allreduce(communicators, [np.ones(10)] * 3))
        works = [comm.allreduce_async(np.full(9000, comm.rank)) for comm in communicators[:2]]
        assert not works[0].finished(0.1)
        network.die()
        network.move(by_switch=False)
        last = communicators[2].allreduce(np.full(9000, 2))
        np.testing.assert_array_equal(good([*[work.wait() for work in works], last]), np.full(9000, 3))
        network.move(by_switch=False)
        while communicators[0].stats.resumes < 2:
            assert good(allreduce(communicators, [np.ones(3)] * 3)).tolist() == [3.0] * 3
        assert [comm.stats.resumes for comm in communicators] == [2] * 3


def test_a_switch_that_only_the_controller_takes_for_dead() -> None:
    """Members move when one asks: from then on it sends nothing more, so that what it has told remains true."""
    with running(MovingNetwork(3, window=2)) as (network, communicators):
        training = Training(communicators)
        training.go_on()
        network.cut_off()
        training.go_on()
        asks(communicators[1])
        until_resumed(communicators, 1)
        training.go_on()
        check(training)
        assert [comm.stats.resumes for comm in communicators] == [1] * 3


@pytest.mark.parametrize("to_switch", [True, False])
@pytest.mark.parametrize("host", [0, 1, 2])
def test_hosts_with_several_ranks_leave_a_switch_that_udp_does_not_reach(host: int, to_switch: bool) -> None:
    """The last host has one rank. What its ranks have summed already is kept by each of them, too."""
    with running(MovingHosts(5)) as (network, communicators):
        training = Training(communicators)
        training.go_on()
        kinds = [type(comm._endpoint) for comm in communicators]
        assert kinds == [LeaderEndpoint, MemberEndpoint, LeaderEndpoint, MemberEndpoint, SwitchEndpoint]
        stats = communicators[network.hosts.leader(host)].stats
        sent = stats.retransmissions
        network.block(host, to_switch=to_switch)
        until(lambda: stats.retransmissions > sent + 3, "a call in the middle, whose results do not come")
        network.cut_off()
        training.go_on()
        assert all(isinstance(comm._endpoint, PeerEndpoint) for comm in communicators)
        check(training)
        assert [comm.stats.resumes for comm in communicators] == [1] * 5


def test_members_learn_on_request_that_a_rank_was_replaced() -> None:
    with running(MovingNetwork(2)) as (network, communicators):
        network.move(by_switch=False)
        good(allreduce(communicators, [np.ones(10)] * 2))
        network.join_anew(1)
        with pytest.raises(DesynchronizedError, match="has begun"):
            communicators[0].allreduce(np.ones(10))


def test_waiting_for_a_rank_asks_now_and_then_and_changes_nothing() -> None:
    with running(MovingNetwork(2)) as (network, communicators):
        work = communicators[0].allreduce_async(np.ones(10))
        while network.asked < 2:
            assert not work.finished(0.01)
        assert good([communicators[1].allreduce(np.ones(10)), work.wait()]).tolist() == [2.0] * 10
        assert [comm.stats.resumes for comm in communicators] == [0, 0]


def test_silence_is_asked_about_less_and_less() -> None:
    quiet = InactivityTimer()
    assert not quiet.expired(3, 0.0, waiting=True)
    asked = [now / 100 for now in range(10_000) if quiet.expired(3, now / 100, waiting=True)]
    pauses = np.diff([0.0, *asked])
    assert pauses[0] == pytest.approx(recovery.PATIENCE)
    assert (np.diff(pauses) > -0.02).all()
    assert pauses[-1] == pytest.approx(MAX_PATIENCE, abs=0.02)
    assert not quiet.expired(4, 200.0, waiting=True), "a result has come"
    assert not quiet.expired(4, 300.0, waiting=False), "no rank waits"
    assert not quiet.expired(4, 300.05, waiting=True)
    assert quiet.expired(4, 300.0 + PATIENCE, waiting=True)
