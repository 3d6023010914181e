"""A job whose switch dies goes on among its members, in the middle of calls, and back to a switch; with the same bits."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from netsum import Communicator, Desynchronized, silence
from netsum.descriptor import CHAIN, HOST_ALGORITHMS, Descriptor
from netsum.peers.peer_window import PeerWindow
from netsum.silence import MAX_PATIENCE, PATIENCE, Silence
from netsum.transports import Faults, FaultyTransport, Transport

from tests.hosts.calls import allreduce, closing_all, good, on_each, running
from tests.hosts.moving import MovingNetwork
from tests.threads import until


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "PATIENCE", 0.1)
    monkeypatch.setattr(silence, "LOOK", 0.1)


def train(comm: Communicator, steps: int, reached: list[int]) -> list[bytes]:
    """Calls of several kinds, whose results depend on all before."""
    weights: Any = np.linspace(-1.0, 1.0, 700).astype(np.float32)
    got = []
    for step in range(steps):
        reached[comm.rank] = step
        gradient = weights * (comm.rank + 1) + np.float32(step)
        weights = weights - 0.015625 * comm.allreduce(gradient, "mean", scale="predicted")
        part = comm.reduce_scatter(np.arange(300) + comm.rank + step)
        whole = comm.all_gather(part)
        told = comm.broadcast(weights * (comm.rank + 1), root=1)
        got += [each.tobytes() for each in (weights, whole, told)]
    return got


def undisturbed(workers: int, steps: int) -> list[list[bytes]]:
    with running(MovingNetwork(workers)) as (_, communicators):
        return on_each(communicators, lambda comm: train(comm, steps, [0] * workers))


@pytest.mark.parametrize(
    ("algorithm", "window"),
    [("auto", 1), pytest.param("ring", 8, marks=pytest.mark.full), ("double_binary_tree", 200), (CHAIN, 8)],
)
def test_the_switch_dies_in_the_middle_and_another_comes(algorithm: str, window: int) -> None:
    expected = undisturbed(3, 20)
    with (
        running(MovingNetwork(3, algorithm=algorithm, window=window)) as (network, communicators),
        ThreadPoolExecutor(1) as elsewhere,
    ):
        reached = [0] * 3
        training = elsewhere.submit(on_each, communicators, lambda comm: train(comm, 20, reached))
        until(lambda: min(reached) >= 5)
        network.die()
        network.move(by_switch=False)
        until(lambda: min(reached) >= 12)
        assert all(isinstance(comm._window, PeerWindow) for comm in communicators)
        network.move(by_switch=True)
        assert training.result() == expected, "the same as undisturbed, to the bit"
        assert [comm.stats.resumes for comm in communicators] == [2] * 3


def asks(comm: Communicator) -> None:
    """Make a member ask as if it had heard nothing for long."""
    assert comm._recovery is not None
    comm._recovery.wonder()


class BadNetwork(MovingNetwork):
    """Packets to whoever combines are lost, duplicated and reordered."""

    opened = 0

    def open(self, member: Descriptor) -> Transport:
        self.opened += 1
        return FaultyTransport(super().open(member), Faults(drop=0.02, duplicate=0.02, reorder=0.02), self.opened)


@pytest.mark.full
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_any_moves_over_a_bad_network(seed: int) -> None:
    rng = random.Random(seed)
    workers, window = rng.choice([2, 3, 5]), rng.choice([1, 3, 8, 64])
    expected = undisturbed(workers, 24)
    network = BadNetwork(workers, window, algorithm=rng.choice((*HOST_ALGORITHMS, CHAIN)))
    with closing_all(network.communicators()) as communicators:
        reached = [0] * workers
        moves = 0
        with ThreadPoolExecutor(1) as elsewhere:
            training = elsewhere.submit(on_each, communicators, lambda comm: train(comm, 24, reached))
            while moves < 6:
                goal = min(reached) + 2

                def settled(goal: int = goal) -> bool:
                    there = all(comm.descriptor.epoch == network.epoch for comm in communicators)
                    return training.done() or (there and min(reached) >= goal)

                until(settled)
                if training.done():
                    break
                if network.by_switch and rng.random() < 0.4:
                    network.cut_off()
                else:
                    network.move(by_switch=rng.random() < 0.4)
                moves += 1
                asks(rng.choice(communicators))
            assert training.result() == expected
        assert moves > 2
        assert {comm.stats.resumes for comm in communicators} in ({moves}, {moves - 1}), "all, or all but the last"


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
    """They move when somebody asks: from then on it sends nothing more, so that what it has told remains true."""
    expected = undisturbed(3, 20)
    with running(MovingNetwork(3, window=2)) as (network, communicators), ThreadPoolExecutor(1) as elsewhere:
        reached = [0] * 3
        training = elsewhere.submit(on_each, communicators, lambda comm: train(comm, 20, reached))
        until(lambda: min(reached) >= 5)
        network.cut_off()
        until(lambda: min(reached) >= 8)
        asks(communicators[1])
        assert training.result() == expected
        assert [comm.stats.resumes for comm in communicators] == [1] * 3


def test_members_hear_by_asking_that_somebody_new_has_come() -> None:
    with running(MovingNetwork(2)) as (network, communicators):
        network.move(by_switch=False)
        good(allreduce(communicators, [np.ones(10)] * 2))
        network.join_anew(1)
        with pytest.raises(Desynchronized, match="has begun"):
            communicators[0].allreduce(np.ones(10))


def test_waiting_for_a_rank_asks_now_and_then_and_changes_nothing() -> None:
    with running(MovingNetwork(2)) as (network, communicators):
        work = communicators[0].allreduce_async(np.ones(10))
        while network.asked < 2:
            assert not work.finished(0.01)
        assert good([communicators[1].allreduce(np.ones(10)), work.wait()]).tolist() == [2.0] * 10
        assert [comm.stats.resumes for comm in communicators] == [0, 0]


def test_silence_is_asked_about_less_and_less() -> None:
    quiet = Silence()
    assert not quiet.too_long(3, 0.0, waiting=True)
    asked = [now / 100 for now in range(10_000) if quiet.too_long(3, now / 100, waiting=True)]
    pauses = np.diff([0.0, *asked])
    assert pauses[0] == pytest.approx(silence.PATIENCE)
    assert (np.diff(pauses) > -0.02).all()
    assert pauses[-1] == pytest.approx(MAX_PATIENCE, abs=0.02)
    assert not quiet.too_long(4, 200.0, waiting=True), "a result has come"
    assert not quiet.too_long(4, 300.0, waiting=False), "nobody waits"
    assert not quiet.too_long(4, 300.05, waiting=True)
    assert quiet.too_long(4, 300.0 + PATIENCE, waiting=True)
