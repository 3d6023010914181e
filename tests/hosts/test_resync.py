# SPDX-License-Identifier: MIT
"""Coming back into step: ranks join again together, and take over the state of the one that is furthest."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from netsum import (
    CallTimeoutError,
    Communicator,
    CommunicatorError,
    DesynchronizedError,
    EvictedError,
    MismatchError,
    NotReadyError,
    UnsupportedError,
)
from netsum.transports import InMemoryTransport

from tests.hosts.calls import allreduce, closing_all, good, on_each, running
from tests.hosts.network import MemoryNetwork
from tests.hosts.restarts import RestartingNetwork
from tests.threads import repeatedly, together

READ_ONLY = np.zeros(3)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("progress", "root"), [((0, 0, 0), 0), ((3, 9, 4), 1), ((5, 7, 7), 1), ((2, 2, 8), 2), ((2**40, 1, 2), 0)]
)
def test_all_get_the_state_of_the_furthest(progress: tuple[int, ...], root: int) -> None:
    with running(RestartingNetwork(3)) as (_, communicators):
        weights = [np.random.default_rng(rank).standard_normal((40, 30)) for rank in range(3)]
        steps = [np.full((), rank, np.int16) for rank in range(3)]
        flags = [np.arange(70) % (rank + 2) == 0 for rank in range(3)]
        before = [weights[root].copy(), steps[root].copy(), flags[root].copy()]

        def back(comm: Communicator) -> int:
            rank = comm.rank
            return comm.resync(weights[rank], steps[rank], flags[rank], progress=progress[rank])

        assert on_each(communicators, back) == [max(progress)] * 3
        for rank in range(3):
            for mine, expected in zip((weights[rank], steps[rank], flags[rank]), before, strict=True):
                assert mine.tobytes() == expected.tobytes()
        assert good(allreduce(communicators, [np.ones(5)] * 3)).tolist() == [3.0] * 5


def test_it_brings_back_ranks_whose_communicators_have_ended() -> None:
    with running(RestartingNetwork(2)) as (network, communicators):
        outcomes = on_each(communicators, lambda comm: comm.allreduce(np.ones(5 + comm.rank)))
        assert [type(outcome) for outcome in outcomes] == [MismatchError] * 2
        epoch = network.epoch
        assert on_each(communicators, Communicator.resync) == [0, 0]
        assert network.epoch > epoch
        assert good(allreduce(communicators, [np.ones(5)] * 2)).tolist() == [2.0] * 5
        assert {comm.descriptor.epoch for comm in communicators} == {network.epoch}


def test_the_others_hear_of_it_in_their_calls() -> None:
    """One comes back by itself; the others are told by the switch and the controller, and follow."""
    with running(RestartingNetwork(3)) as (_, communicators):

        def follow(comm: Communicator) -> Any:
            try:
                return comm.allreduce(np.ones(5))
            except DesynchronizedError:
                return comm.resync(progress=comm.rank)

        got = together([partial(communicators[0].resync, progress=1), *(partial(follow, comm) for comm in communicators[1:])])
        assert got == [2, 2, 2]


def test_nothing_is_predicted_or_remembered_of_before() -> None:
    with running(RestartingNetwork(2)) as (_, communicators):
        for _ in range(2):
            good(allreduce(communicators, [np.full(5, 1e20)] * 2, scale="predicted"))
        on_each(communicators, Communicator.resync)
        assert good(allreduce(communicators, [np.full(5, 1e-20)] * 2, scale="predicted")).tolist() == [2e-20] * 5
        assert all(comm.stats.redone == 0 for comm in communicators)


def test_a_rank_that_joins_anew_meanwhile_begins_it_anew() -> None:
    """Rank 1 has joined, and dies while the state is shared: the others' state is whole, not half of it from rank 1."""
    with running(RestartingNetwork(3)) as (network, communicators):
        states = [[np.full(3000, rank), np.full(50_000, rank)] for rank in range(3)]
        dying = communicators[1]

        def broken_off() -> Any:
            # It is the furthest, shares its first array and then dies.
            descriptor = network.join_anew(1)
            comm = Communicator(descriptor, network.open(descriptor), timeout=60.0)
            for number in (9, 2):
                comm.allreduce(np.array([number], np.int64), "max", on_late="wait")
            comm.broadcast(states[1][0], 1)
            comm.close()
            return dying.resync(*[np.full(each.size, 7) for each in states[1]], progress=0)

        def back(rank: int) -> Any:
            return communicators[rank].resync(*states[rank], progress=rank + 1)

        network.join_anew(0)  # so that rank 1 begins no epoch of its own
        got = together([lambda: back(0), broken_off, lambda: back(2)])
        assert got == [3, 3, 3], got
        for first, second in (states[0], states[2]):
            assert set(first.tolist()) == set(second.tolist()) == {2}


def test_who_loses_the_end_of_it_begins_it_once_more() -> None:
    """In a job that degrades the others have all, and go on without rank 2 until the last results are gone from the switch."""
    network = RestartingNetwork(3, quorum=2)

    def go_on(comm: Communicator) -> Any:
        comm.resync(np.full(3, comm.rank))
        for _ in range(60):
            comm.allreduce(np.ones(300))
        if comm.rank == 0:
            network.lost = lambda _rank, _header: False
        with pytest.raises(DesynchronizedError):
            comm.barrier()
        return comm.resync(np.full(3, comm.rank), progress=60)

    with closing_all(network.communicators()) as communicators:
        first = network.join_anew(0).first_block_id  # so that all join the epoch that begins here
        network.joined.clear()
        network.lost = lambda rank, header: rank == 2 and header.block_id == first + 5  # the broadcast's data
        state = np.full(3, 2)
        with repeatedly(network.age, 0.002):
            back = partial(communicators[2].resync, state)
            assert together([*(partial(go_on, comm) for comm in communicators[:2]), back]) == [60] * 3
        assert state.tolist() == [0, 0, 0]


def test_errors_of_joining_come_through_and_it_may_be_tried_again() -> None:
    with running(RestartingNetwork(2)) as (network, communicators):
        network.away = True
        with pytest.raises(NotReadyError):
            communicators[0].resync()
        with pytest.raises(CommunicatorError):
            communicators[0].barrier()
        network.away = False
        network.evicted.add(0)
        with pytest.raises(EvictedError):
            communicators[0].resync()
        network.evicted.clear()
        assert on_each(communicators, Communicator.resync) == [0, 0]


@pytest.mark.parametrize(
    ("state", "progress"),
    [([[1.0, 2.0]], 0), ([np.array([None])], 0), ([READ_ONLY], 0), ([], -1), ([], 2**63), ([], 1.5), ([], "3")],
    ids=str,
)
def test_wrong_arguments_change_nothing(state: Any, progress: Any) -> None:
    with running(RestartingNetwork(2)) as (_, communicators):
        with pytest.raises(UnsupportedError):
            communicators[0].resync(*state, progress=progress)
        assert good(allreduce(communicators, [np.ones(3)] * 2)).tolist() == [2.0] * 3


def test_a_rank_that_does_not_come_is_a_timeout() -> None:
    with running(RestartingNetwork(2)) as (_, communicators), pytest.raises(CallTimeoutError):
        communicators[0].resync(timeout=0.4)


def test_without_a_controller_there_is_none() -> None:
    network = MemoryNetwork(2)
    comm = network.communicators()[0]
    with pytest.raises(CommunicatorError, match="new descriptors"):
        comm.resync()
    comm.close()
    assert isinstance(network.transports[1], InMemoryTransport)
