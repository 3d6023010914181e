# SPDX-License-Identifier: MIT
"""The switch dies for good: its jobs go on among their members, with the same results, and come back when there is one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from netsum import Communicator, DesynchronizedError
from netsum_testbed.fabric import Fabric

from tests.full.calls import on_all, results
from tests.full.conftest import FABRICS, joined
from tests.full.trouble import Training, restart_switch, same_bits
from tests.threads import PATIENCE, until

pytestmark = pytest.mark.full

EITHER_SWITCH = pytest.mark.parametrize("fragile", [FABRICS[0], FABRICS[-1]], indirect=True)
ONE_FABRIC = pytest.mark.parametrize("fragile", ["rootless-embedded"], indirect=True)


@pytest.fixture
def mortal(fragile: Fabric) -> Iterator[Fabric]:
    """A fabric whose switch may be killed; afterwards it is restarted."""
    yield fragile
    restart_switch(fragile)
    fragile.controller.push()
    until(lambda: not fragile.controller.context.down, "the watcher has seen it")


def by_members(communicators: list[Communicator]) -> bool:
    return not any(comm.descriptor.by_switch for comm in communicators)


@EITHER_SWITCH
def test_a_training_goes_on_without_its_switch_and_with_it_again(mortal: Fabric) -> None:
    with joined(mortal, 4, window=16) as communicators, Training(communicators) as training:
        training.on(20)
        mortal.kill_switch()
        until(lambda: by_members(communicators), "the controller has found it dead, and the job has moved")
        training.on(20)
        name = communicators[0].descriptor.job
        assert mortal.controller.job(name).parts == ()
        mortal.start_switch()
        mortal.controller.push()
        mortal.controller.move(name, "switch")
        until(lambda: all(comm.descriptor.by_switch for comm in communicators), "the job is back at the switch")
        training.finish(20)
        assert [comm.stats.resumes for comm in communicators] == [2] * 4


@EITHER_SWITCH
def test_calls_of_all_kinds_bring_the_same_bits_when_the_switch_dies(mortal: Fabric) -> None:
    with same_bits(mortal, steps=18, middle=6) as communicators:
        mortal.kill_switch()
        mortal.controller.move(communicators[0].descriptor.job, "ring")
    assert by_members(communicators)
    assert {comm.descriptor.algorithm for comm in communicators} == {"ring"}


@ONE_FABRIC
def test_groups_of_a_job_without_a_switch(mortal: Fabric) -> None:
    with joined(mortal, 4, algorithm="auto") as communicators:
        mortal.kill_switch()
        mortal.controller.move(communicators[0].descriptor.job, "auto")

        def split(comm: Communicator) -> list[int]:
            group = comm.split(comm.rank % 2, timeout=PATIENCE)
            assert group is not None
            with group:
                both = comm.allreduce_async(np.array([comm.rank])), group.allreduce_async(np.array([comm.rank]))
                assert not group.descriptor.by_switch
                return [int(work.wait()[0]) for work in both]

        assert results(on_all(communicators, split)) == [[6, 2], [6, 4], [6, 2], [6, 4]]


@ONE_FABRIC
def test_a_rank_that_is_started_again_meets_the_others(fragile: Fabric) -> None:
    """No switch is there to refuse any rank: the others learn of it by asking the controller."""
    with joined(fragile, 3, algorithm="ring") as communicators:
        assert results(on_all(communicators, lambda comm: comm.allreduce([1, 2]).tolist())) == [[3, 6]] * 3
        job = fragile.controller.job(communicators[0].descriptor.job)

        def start_again(old: Communicator) -> list[int]:
            new = communicators[1] = fragile.join(job, 1, timeout=PATIENCE)
            old.close()  # it would have died; the controller does not know it any more
            state = np.zeros(2, np.int64)
            return [new.resync(state, progress=0, timeout=PATIENCE), *state.tolist()]

        def go_on(comm: Communicator) -> list[int]:
            state = np.array([7, 8])
            try:
                comm.allreduce([1, 2], timeout=PATIENCE)
            except DesynchronizedError:
                return [comm.resync(state, progress=5, timeout=PATIENCE), *state.tolist()]
            raise AssertionError("it was not told")

        got = on_all(communicators, lambda comm: (start_again if comm.rank == 1 else go_on)(comm))
        assert results(got) == [[5, 7, 8]] * 3
        assert results(on_all(communicators, lambda comm: comm.allreduce([1, 2]).tolist())) == [[3, 6]] * 3
