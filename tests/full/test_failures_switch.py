# SPDX-License-Identifier: MIT
"""The switch restarts: calls of a job that waits go on with the right sums; members of one that degrades all hear of it."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from netsum import Communicator, DesynchronizedError
from netsum_controller.state.model import Rejoin
from netsum_testbed.fabric import Fabric

from tests.full.calls import on_all, results
from tests.full.conftest import joined
from tests.full.trouble import Nap, Training, restart_switch, same_bits
from tests.threads import PATIENCE, until


def test_calls_go_on_after_the_switch_restarted(fragile: Fabric, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with joined(fragile, 4, window=16) as communicators, Training(communicators) as training:
        training.on(20)
        restart_switch(fragile)
        training.finish(20)
        assert [comm.stats.resumes for comm in communicators] == [1] * 4
        job = communicators[0].descriptor.job
        for words in ("switch s1 is restored", f"job {job} under epoch", f"job {job}: epoch"):
            assert words in caplog.text


@pytest.mark.full
def test_groups_go_on_after_it_restarted_and_others_are_made_beside_them(fragile: Fabric) -> None:
    def total(comm: Communicator) -> int:
        return int(comm.allreduce(np.array([comm.rank + 1]))[0])

    def split(comm: Communicator) -> Communicator:
        group = comm.split(0)
        assert group is not None
        return group

    with joined(fragile, 2, window=8) as communicators:
        first = results(on_all(communicators, split))
        assert results(on_all(first, total)) == [3, 3]
        restart_switch(fragile)
        second = results(on_all(communicators, split))
        for everyone in (first, second, communicators, first):
            assert results(on_all(everyone, total)) == [3, 3]
        assert len({group[0].descriptor.job for group in (first, second, communicators)}) == 3
        for group in (*first, *second):
            group.close()


@pytest.mark.full
def test_it_restarts_twice_and_again_while_they_rejoin(fragile: Fabric) -> None:
    with joined(fragile, 3, window=8) as communicators, Training(communicators) as training:
        training.on()
        restart_switch(fragile)
        training.on()
        name = communicators[0].descriptor.job
        epoch = fragile.controller.job(name).epoch.number
        restart_switch(fragile)
        until(lambda: fragile.controller.job(name).epoch.number != epoch, "the controller has seen it")
        restart_switch(fragile)
        training.finish()
        assert {comm.stats.resumes for comm in communicators} <= {2, 3}


@pytest.mark.full
def test_it_restarts_between_calls(fragile: Fabric) -> None:
    with joined(fragile, 3, window=8) as communicators:
        with Training(communicators) as training:
            training.finish()
        restart_switch(fragile)
        with Training(communicators) as training:
            training.finish()
        assert [comm.stats.resumes for comm in communicators] == [1] * 3


@pytest.mark.full
def test_it_restarts_while_one_rank_is_between_calls(fragile: Fabric) -> None:
    """The others wait until it makes a call: only then can it say what it holds."""
    nap = Nap(1, 12)
    with joined(fragile, 3, window=8) as communicators, Training(communicators, pause=nap) as training:
        until(lambda: nap.asleep.is_set() and training.steps[0] >= 12, "rank 1 is between calls")
        restart_switch(fragile)
        name = communicators[0].descriptor.job
        until(lambda: fragile.controller.job(name).epoch.rejoin is Rejoin.WAITING, "the switch is restored")
        until(lambda: "(missing: rank 1)" in " ".join(fragile.controller.diagnose(name).hints), "the others have rejoined")
        nap.wake.set()
        training.finish(20)
        assert [comm.stats.resumes for comm in communicators] == [1] * 3


@pytest.mark.full
def test_all_kinds_of_calls_go_on_after_the_switch_restarted(fragile: Fabric) -> None:
    """Their results are the same bits as without a restart."""
    with same_bits(fragile, steps=40, middle=15):
        restart_switch(fragile)


@pytest.mark.full
def test_members_of_a_degrade_job_all_hear_of_it_and_come_back(fragile: Fabric) -> None:
    """A partial result that only some have got cannot be made again: no rank goes on as if nothing had happened."""
    with joined(fragile, 4, window=16, late="degrade", block_exp=400.0, quorum=1) as communicators:
        with Training(communicators, check=False) as training:
            training.on(20)
            restart_switch(fragile)
            training.join()
            assert training.kinds() == [DesynchronizedError] * 4
        states = [np.full(10, float(comm.rank)) for comm in communicators]
        got = on_all(communicators, lambda comm: comm.resync(states[comm.rank], progress=7 + comm.rank % 2, timeout=PATIENCE))
        assert results(got) == [8] * 4
        assert all(state.tolist() == [1.0] * 10 for state in states)
        with Training(communicators, check=False) as training:
            training.finish()


@pytest.mark.full
def test_a_degrade_job_trains_on_through_restarts(fragile: Fabric) -> None:
    options: dict[str, Any] = {"late": "degrade", "block_exp": 100.0, "quorum": 1}
    with (
        joined(fragile, 4, window=16, **options) as communicators,
        Training(communicators, resync=(DesynchronizedError,), check=False) as training,
    ):
        for _ in range(2):
            training.on(20)
            restart_switch(fragile)
        training.finish(20)
        assert all(training.came_back)
