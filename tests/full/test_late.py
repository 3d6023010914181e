# SPDX-License-Identifier: MIT
"""Stragglers on both switches: partial results that say so, equal on all ranks, and how a rank that slept too long comes back."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from netsum import Communicator, DesynchronizedError, ResultLostError

from tests.full.calls import allreduce_whole, on_all, results
from tests.full.conftest import Members
from tests.full.trouble import Nap, Training, naps
from tests.threads import PATIENCE, until

DEGRADE: dict[str, Any] = {"late": "degrade", "block_exp": 40.0, "window": 16}
PATIENT: dict[str, Any] = {**DEGRADE, "block_exp": 400.0}
"""Longer than a busy machine delays a rank that is not to be late."""
COMES_BACK = (ResultLostError, DesynchronizedError)
SIZE = 2500


def share(rank: int, step: int) -> Any:
    return np.random.default_rng([rank, step]).integers(-500, 500, SIZE).astype(np.float32)


def second_call(comm: Communicator, sleeper: int, gone: threading.Event, **options: Any) -> Any:
    """A sum in which one rank is late and calls when all others are done."""
    if comm.rank == sleeper:
        assert gone.wait(PATIENCE)
    got = comm.allreduce(share(comm.rank, 1), timeout=PATIENCE, **options)
    if comm.rank == (sleeper + 1) % comm.size:
        gone.set()
    return got


@pytest.mark.parametrize("late", [0, 3])
def test_a_partial_sum_is_the_same_everywhere_and_the_next_one_whole(members: Members, late: int) -> None:
    with members(4, quorum=3, **PATIENT) as communicators:
        gone = threading.Event()

        def sums(comm: Communicator) -> list[Any]:
            first = allreduce_whole(comm, share(comm.rank, 0))
            return [first, second_call(comm, late, gone), allreduce_whole(comm, share(comm.rank, 2))]

        got = results(on_all(communicators, sums))
        for mine in got:
            for step in range(3):
                assert mine[step].tobytes() == got[0][step].tobytes()
        np.testing.assert_array_equal(got[0][0], sum(share(rank, 0) for rank in range(4)))
        np.testing.assert_array_equal(got[0][1], sum(share(rank, 1) for rank in range(4) if rank != late))
        np.testing.assert_array_equal(got[0][2], sum(share(rank, 2) for rank in range(4)))
        assert communicators[late].stats.late > 0
        assert all(comm.stats.degraded > 0 for comm in communicators)


def test_what_was_missed_is_carried_over_once(members: Members) -> None:
    with members(3, quorum=2, **PATIENT) as communicators:
        gone = threading.Event()

        def sums(comm: Communicator) -> list[Any]:
            got = [comm.allreduce(share(comm.rank, 0), timeout=PATIENCE, on_late="carry")]
            got.append(second_call(comm, 1, gone, on_late="carry"))
            got.append(comm.allreduce(share(comm.rank, 2), timeout=PATIENCE, on_late="carry"))
            while comm.report.degraded:  # the last of it may itself come late
                comm.barrier(timeout=PATIENCE)
                got.append(comm.allreduce(np.zeros(SIZE, np.float32), timeout=PATIENCE, on_late="carry"))
            return got

        got = results(on_all(communicators, sums))
        np.testing.assert_array_equal(sum(got[0]), sum(share(rank, step) for rank in range(3) for step in range(3)))
        assert len({np.concatenate(mine).tobytes() for mine in got}) == 1


def test_fewer_than_the_quorum_wait(members: Members) -> None:
    """Two of four are late: with a quorum of three no rank continues before one of them has called."""
    with members(4, quorum=3, **DEGRADE) as communicators:
        works = [comm.allreduce_async(share(comm.rank, 0), timeout=PATIENCE) for comm in communicators[:2]]
        assert not any(work.finished(0.4) for work in works)
        works.append(communicators[2].allreduce_async(share(2, 0), timeout=PATIENCE))
        got = [work.wait() for work in works]
        for result in got:
            np.testing.assert_array_equal(result, share(0, 0) + share(1, 0) + share(2, 0))
        np.testing.assert_array_equal(communicators[3].allreduce(share(3, 0), timeout=PATIENCE), got[0])


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_a_rank_that_slept_through_thousands_of_blocks_comes_back(members: Members, dtype: str) -> None:
    """ResultLostError, or DesynchronizedError when it cannot know what the others have called. Either way resync brings all
    together."""
    nap = Nap(2, 5)
    with (
        members(3, quorum=1, **DEGRADE) as communicators,
        Training(communicators, resync=COMES_BACK, check=False, pause=nap, dtype=dtype) as training,
    ):
        until(nap.asleep.is_set, training)
        blocks = communicators[0].stats.blocks
        # A rank that a busy machine holds up for long comes back too, which needs the sleeper.
        until(lambda: communicators[0].stats.blocks > blocks + 3000 or any(training.came_back), training)
        nap.wake.set()
        until(lambda: training.came_back[2], training)
        training.finish(20)
        assert isinstance(training.came_back[2][0], COMES_BACK)


def test_ranks_that_sleep_at_random_stay_equal(members: Members) -> None:
    """Each rank sometimes sleeps for longer than block_exp, sometimes two at once; one that misses too much comes back."""
    with (
        members(4, quorum=2, **DEGRADE) as communicators,
        Training(communicators, resync=COMES_BACK, check=False, pause=naps(4, 0.03, 0.1)) as training,
    ):
        training.finish(200)
        assert sum(comm.stats.degraded for comm in communicators) > 0
