# SPDX-License-Identifier: MIT
"""The controller evicts members and admits them again while the others go on training."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
from netsum import AbortedError, Communicator, DesynchronizedError, EvictedError, ResultLostError, UnknownRankError
from netsum.compression import Rotated, TopBlocks
from netsum_testbed.fabric import Fabric

from tests.full.calls import on_all, results
from tests.full.conftest import joined
from tests.full.trouble import Training, restart_switch, share, start_worker
from tests.threads import PATIENCE, until

WORKERS = 4
COMES_BACK = (ResultLostError, DesynchronizedError)
DEGRADE: dict[str, Any] = {"late": "degrade", "block_exp": 400.0, "quorum": 1}


def crew(fabric: Fabric, name: str, here: Sequence[int], **options: Any) -> AbstractContextManager[list[Communicator]]:
    """A job of four, of whose ranks those ``here`` have joined in this process."""
    return joined(fabric, WORKERS, name=name, here=here, window=8, **options)


def test_the_others_finish_without_a_dead_member_that_is_evicted(fragile: Fabric) -> None:
    """Their current call, and all later ones, end with the sum of the rest and no error."""
    with crew(fragile, "dead", (0, 1, 3)) as communicators:
        worker = start_worker(fragile, "dead", 2, steps=20)
        try:
            with Training(communicators) as training:
                training.expected = lambda step: range(WORKERS) if step < 20 else (0, 1, 3)
                until(lambda: min(training.steps) == 20, training)
                worker.kill()
                retried = communicators[0].stats.retransmissions
                until(lambda: communicators[0].stats.retransmissions > retried + 1, "they wait for it")
                assert training.steps == [20] * 3
                fragile.controller.evict("dead", 2)
                training.finish()
                assert [comm.active_size for comm in communicators] == [3] * 3
                assert [comm.size for comm in communicators] == [WORKERS] * 3
                assert all(comm.stats.degraded == 0 for comm in communicators)
        finally:
            worker.stop()


@pytest.mark.parametrize("options", [{}, DEGRADE], ids=["wait", "degrade"])
def test_a_live_member_that_is_evicted_is_told(fragile: Fabric, options: dict[str, Any]) -> None:
    with crew(fragile, "alive", range(WORKERS), **options) as communicators:
        with Training(communicators, check=False) as training:
            training.on()
            fragile.controller.evict("alive", 1)
            until(lambda: training.errors[1] is not None, training)
            others = [training.steps[rank] for rank in (0, 2, 3)]
            until(lambda: all(training.steps[rank] > others[0] + 10 for rank in (0, 2, 3)), training)
            training.stop()
            assert training.kinds() == [None, EvictedError, None, None]
            assert len({training.states[rank].tobytes() for rank in (0, 2, 3)}) == 1
        (got,) = on_all(communicators[1:2], lambda comm: comm.resync(timeout=PATIENCE))
        assert isinstance(got.error, EvictedError)


def test_no_rank_takes_data_that_an_evicted_root_has_not_sent(fragile: Fabric) -> None:
    with crew(fragile, "bereft", range(WORKERS)) as communicators:
        fragile.controller.evict("bereft", 1)
        others = [comm for comm in communicators if comm.rank != 1]
        got = on_all(others, lambda comm: comm.broadcast(np.ones(3000), root=1))
        assert [type(each.error) for each in got] == [AbortedError] * 3
        assert [float(x[0]) for x in results(on_all(others, lambda comm: comm.allreduce(np.ones(4))))] == [3.0] * 3


@pytest.mark.parametrize("options", [{}, DEGRADE], ids=["wait", "degrade"])
def test_whose_state_all_were_to_get_is_evicted(
    fragile: Fabric, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in step with the furthest of the others."""
    with crew(fragile, "orphans", range(WORKERS), **options) as communicators:

        def be_evicted(*_args: Any, **_options: Any) -> None:
            fragile.controller.evict("orphans", 1)
            raise EvictedError("in the middle of it")

        monkeypatch.setattr(communicators[1], "broadcast", be_evicted)
        progress, states = (2, 9, 4, 3), [np.full(3000, rank) for rank in range(WORKERS)]
        got = on_all(communicators, lambda comm: comm.resync(states[comm.rank], progress=progress[comm.rank], timeout=PATIENCE))
        assert isinstance(got[1].error, EvictedError)
        assert results([got[0], got[2], got[3]]) == [4] * 3
        assert [int(states[rank][-1]) for rank in (0, 2, 3)] == [2] * 3


@pytest.mark.parametrize("options", [{}, DEGRADE], ids=["wait", "degrade"])
def test_every_call_goes_on_without_an_evicted_member(fragile: Fabric, options: dict[str, Any]) -> None:
    """The remaining ranks can also make their own communicator, in which ranks have no gaps."""

    def calls(comm: Communicator) -> list[Any]:
        row = np.array([[comm.rank]])
        got: list[Any] = [comm.all_gather(row).ravel().tolist(), comm.report.evicted]
        got += [comm.allreduce(row + 1, "product", on_late="wait").ravel().tolist()]
        ones = np.ones(4000, np.float32)
        got += [bool(abs(Rotated(comm, bits).allreduce(ones).mean() - 1) < 0.2) for bits in (8, 4)]
        got += [TopBlocks(comm, 1.0).allreduce(ones, "sum").sum().tolist()]
        with comm.split(0, timeout=PATIENCE) as group:  # type: ignore[union-attr]
            got += [group.size, group.rank, group.all_gather(row).ravel().tolist()]
        return got

    with crew(fragile, "without", range(WORKERS), **options) as communicators:
        fragile.controller.evict("without", 1)
        others = [comm for comm in communicators if comm.rank != 1]
        for _ in range(2):
            assert results(on_all(others, calls)) == [
                [[0, 2, 3], (1,), [12], True, True, 12000.0, 3, index, [0, 2, 3]] for index in range(3)
            ]


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, DEGRADE], ids=["wait", "degrade"])
def test_a_member_that_is_admitted_again_gets_the_state_of_the_others(fragile: Fabric, options: dict[str, Any]) -> None:
    """Admission begins a new epoch; the newcomer, a new process, comes in with their state, and all go on together."""
    with crew(fragile, "elastic", range(WORKERS - 1), **options) as communicators:
        fragile.controller.evict("elastic", 3)
        with Training(communicators, resync=COMES_BACK, check=False) as training:
            training.on()
            fragile.controller.admit("elastic", 3)
            goal = max(training.steps) + 300
            training.end_after(goal)
            newcomer = start_worker(fragile, "elastic", 3, resync=True, steps=goal)
            try:
                training.join()
                training.check_equal()
                assert newcomer.wait(PATIENCE) == 0, newcomer.last_words()
                said = newcomer.stdout.read().splitlines()
                assert said
                assert f'"sum": {int(training.states[0].sum())}' in said[-1]
                assert all(training.came_back)
                assert [comm.active_size for comm in communicators] == [WORKERS] * 3
            finally:
                newcomer.stop()


@pytest.mark.full
def test_a_restarted_switch_does_not_bring_an_evicted_member_back(fragile: Fabric) -> None:
    with crew(fragile, "smaller", range(WORKERS - 1)) as communicators:
        fragile.controller.evict("smaller", 3)
        with Training(communicators) as training:
            training.expected = lambda _step: (0, 1, 2)
            training.on()
            restart_switch(fragile)
            training.finish()
            assert int(training.states[0][0]) == sum(int(share(rank, 0, 1)[0]) for rank in (0, 1, 2)) * training.steps[0]


@pytest.mark.full
def test_those_that_are_left_come_back_together_after_a_restart(fragile: Fabric) -> None:
    """Some may hold results with the evicted member's part, which cannot be reproduced: all hear of it, and all come back."""
    with (
        crew(fragile, "left", range(WORKERS)) as communicators,
        Training(communicators, resync=COMES_BACK, check=False) as training,
    ):
        training.on()
        fragile.controller.evict("left", 1)
        until(lambda: training.errors[1] is not None, training)
        training.on()
        restart_switch(fragile)
        training.on()
        training.stop()
        assert training.kinds() == [None, EvictedError, None, None]
        assert len({training.states[rank].tobytes() for rank in (0, 2, 3)}) == 1
        assert [bool(came_back) for came_back in training.came_back] == [True, False, True, True]
        assert [communicators[rank].active_size for rank in (0, 2, 3)] == [3] * 3


def test_members_of_a_job_that_is_deleted_are_told(fragile: Fabric) -> None:
    with crew(fragile, "deleted", range(WORKERS)) as communicators, Training(communicators) as training:
        training.on()
        fragile.controller.delete_job("deleted")
        training.join()
        assert training.kinds() == [UnknownRankError] * WORKERS
        for error in training.errors:
            assert "no job 'deleted'" in str(error)
