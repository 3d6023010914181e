# SPDX-License-Identifier: MIT
"""Jobs over a leaf-spine: what happens to a switch or to a member of theirs, and what all ranks get all the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from netsum import Communicator, DesynchronizedError, ResultLostError
from netsum_controller.config.topologies import leaf_spine
from netsum_controller.state.model import Job, JobState
from netsum_testbed.fabric import Fabric

from tests.full.calls import allreduce_whole, on_all, results
from tests.full.conftest import FABRICS, joined, started
from tests.full.trouble import Training, naps, restart_switch
from tests.threads import PATIENCE, meanwhile, until

pytestmark = pytest.mark.full


@pytest.fixture(
    scope="module",
    params=[FABRICS[0], pytest.param("namespace-bmv2", marks=[pytest.mark.root, pytest.mark.bmv2, pytest.mark.full])],
)
def leaves(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """Two spines, two leaves with two hosts each."""
    with started(request.param, leaf_spine(2, 2, 2)) as fabric:
        yield fabric


@pytest.fixture(autouse=True)
def as_it_was(leaves: Fabric) -> Iterator[None]:
    """Leave the fabric to the next test as this one found it: while a switch is away, and for a while after, the others' routes
    avoid it."""
    yield
    until(lambda: not leaves.controller.context.down, "every switch answers")
    leaves.controller.reconcile()


def job_of(fabric: Fabric, communicators: list[Communicator]) -> Job:
    return fabric.controller.job(communicators[0].descriptor.job)


def test_a_leaf_restarts(leaves: Fabric) -> None:
    with joined(leaves, 4, window=16) as communicators, Training(communicators) as training:
        training.on(20)
        restart_switch(leaves, "leaf1")
        training.finish(20)
        assert [comm.stats.resumes for comm in communicators] == [1] * 4
        assert set(job_of(leaves, communicators).epoch.shape.roots) == {"spine1", "spine2"}


def test_a_root_that_dies_gives_its_stripe_away(leaves: Fabric) -> None:
    """Calls continue, exactly, over the other root; a job that is created later uses both again."""
    with joined(leaves, 4, window=16) as communicators, Training(communicators) as training:
        assert job_of(leaves, communicators).epoch.shape.roots.count("spine1") == 8
        training.on(20)
        leaves.kill_switch("spine1")
        until(lambda: set(job_of(leaves, communicators).epoch.shape.roots) == {"spine2"}, "its trees avoid spine1")
        training.on(20)
        leaves.start_switch("spine1")
        until(lambda: not leaves.controller.context.down, "spine1 is back")
        training.finish()
        assert {comm.stats.resumes for comm in communicators} == {1}
        assert job_of(leaves, communicators).state is JobState.READY
    with joined(leaves, 4, window=16) as communicators, Training(communicators) as training:
        assert job_of(leaves, communicators).epoch.shape.roots.count("spine1") == 8
        training.finish(5)


@pytest.mark.parametrize("gone", [[1], [2, 3]])
def test_members_are_evicted_in_the_middle_of_a_call(leaves: Fabric, gone: list[int]) -> None:
    """One of a leaf's members goes, or all of them, after which its spines no longer wait for it."""
    with joined(leaves, 4, window=16) as communicators:
        name = communicators[0].descriptor.job
        stay = [comm for comm in communicators if comm.rank not in gone]
        ready = threading.Event()

        def work(comm: Communicator) -> list[int]:
            sums = [int(comm.allreduce(np.full(3000, comm.rank + 1))[-1])]
            ready.wait(PATIENCE)
            if comm.rank not in gone:
                sums.append(int(comm.allreduce(np.full(3000, comm.rank + 1), timeout=PATIENCE)[-1]))
                sums.append(int(comm.allreduce(np.full(3000, 1), timeout=PATIENCE)[-1]))
            return sums

        def evict() -> None:
            ready.set()
            until(lambda: leaves.controller.diagnose(name).blocks, "the others wait")
            for rank in gone:
                done = leaves.controller.evict(name, rank)
                assert done.changed
                assert done.new_epoch is None

        with meanwhile(evict):
            got = results(on_all(communicators, work))
        left = sum(comm.rank + 1 for comm in stay)
        assert [got[comm.rank] for comm in stay] == [[10, left, len(stay)]] * len(stay)
        assert not any(report.changed for report in leaves.controller.reconcile())


def test_why_finds_the_missing_through_the_tree(leaves: Fabric) -> None:
    with joined(leaves, 4, window=16) as communicators:
        name = communicators[0].descriptor.job
        late = threading.Event()

        def work(comm: Communicator) -> Any:
            if comm.rank == 3:
                late.wait(PATIENCE)
            return comm.allreduce(np.ones(5000, np.int32), timeout=PATIENCE)[-1]

        def look() -> None:
            until(lambda: leaves.controller.diagnose(name).waiting_for, "a block waits for a rank")
            found.append(leaves.controller.diagnose(name))
            late.set()

        found: list[Any] = []
        with meanwhile(look):
            assert results(on_all(communicators, work)) == [4] * 4
        (why,) = found
        for report in why.blocks:
            assert report.state == "open"
            assert [person["rank"] for person in report.missing] == [3]
            assert report.switches["leaf1"] == "sent"
            assert report.switches["leaf2"] == "open"
        assert [source.host for source in why.waiting_for] == ["h4"]
        stats = leaves.controller.stats(name)
        assert all(member.packets > 0 for member in stats.members)
        assert set(stats.by_switch) == {"spine1", "spine2", "leaf1", "leaf2"}


def test_stragglers_anywhere_in_the_tree(leaves: Fabric) -> None:
    """A late rank, then a leaf whose ranks are both late: the others go on with a partial sum, all with the same."""
    options: dict[str, Any] = {"late": "degrade", "block_exp": 1500.0, "quorum": 2, "window": 16}
    for sleepers in ([1], [2, 3]):
        with joined(leaves, 4, **options) as communicators:
            gone = threading.Event()

            def work(
                comm: Communicator, sleepers: list[int] = sleepers, gone: threading.Event = gone
            ) -> tuple[float, float, float]:
                one = np.full(2500, comm.rank + 1, np.float32)
                first = allreduce_whole(comm, one)
                if comm.rank in sleepers:
                    assert gone.wait(PATIENCE)
                second = comm.allreduce(one, timeout=PATIENCE)
                gone.set()
                third = allreduce_whole(comm, one)
                return float(first[-1]), float(second[-1]), float(third[-1])

            got = results(on_all(communicators, work))
            late = sum(rank + 1 for rank in sleepers)
            assert got == [(10.0, 10.0 - late, 10.0)] * 4
            assert all(communicators[rank].stats.late > 0 for rank in sleepers)


def test_ranks_of_all_leaves_that_sleep_too_long_come_back(leaves: Fabric) -> None:
    """The documented loop: from ResultLostError and DesynchronizedError with resync, which itself raises neither. A rank that
    only waits for a processor must not count as late, or no rank ever gets 50 steps further."""
    options: dict[str, Any] = {"late": "degrade", "block_exp": 200.0, "quorum": 2, "window": 8}
    with (
        joined(leaves, 4, **options) as communicators,
        Training(communicators, resync=(ResultLostError, DesynchronizedError), check=False, pause=naps(4, 0.05, 2.0)) as training,
    ):
        until(lambda: sum(map(bool, training.came_back)) >= 3 or any(training.errors), training)
        training.pause = lambda _rank, _step: 0.0  # who wakes after the others' last step finds no rank to resync with
        training.finish(50)
        assert training.kinds() == [None] * 4


def test_the_quorum_holds_over_leaves(leaves: Fabric) -> None:
    """Each leaf lacks one of its two members, and the quorum is all four: no rank continues before they have called."""
    with joined(leaves, 4, late="degrade", block_exp=30.0, quorum=4, window=16) as communicators:
        ones = [np.full(2500, comm.rank + 1, np.int32) for comm in communicators]
        works = {rank: communicators[rank].allreduce_async(ones[rank], timeout=PATIENCE) for rank in (0, 2)}
        assert not any(work.finished(0.6) for work in works.values())
        works |= {rank: communicators[rank].allreduce_async(ones[rank], timeout=PATIENCE) for rank in (1, 3)}
        assert {int(work.wait()[-1]) for work in works.values()} == {10}
        assert [comm.stats.degraded for comm in communicators] == [0] * 4


def test_a_leaf_with_less_than_its_share_gets_what_the_others_made(leaves: Fabric) -> None:
    """One member of a leaf passes, the other is away: the other leaf makes the sum, and the one that passed gets it too."""
    with joined(leaves, 4, late="degrade", block_exp=1000.0, quorum=1, window=16) as communicators:
        ones = [np.full(2500, comm.rank + 1, np.int32) for comm in communicators]
        works = [
            comm.allreduce_async(ones[comm.rank], timeout=PATIENCE, contribute=comm.rank > 0)
            for comm in communicators
            if comm.rank != 1
        ]
        assert {int(work.wait()[-1]) for work in works} == {7}
        assert communicators[1].allreduce(ones[1], timeout=PATIENCE)[-1] == 7


def test_groups_within_and_across_leaves(leaves: Fabric) -> None:
    with joined(leaves, 4, window=8) as communicators:

        def work(comm: Communicator) -> list[int]:
            near, far = comm.split(comm.rank // 2), comm.split(comm.rank % 2)
            assert near is not None
            assert far is not None
            with near, far:
                value = np.full(3000, comm.rank)
                return [int(one.allreduce(value)[-1]) for one in (near, far, comm)]

        got = results(on_all(communicators, work))
        assert got == [[1, 2, 6], [1, 4, 6], [5, 2, 6], [5, 4, 6]]
        until(lambda: len(leaves.controller.jobs()) == 1, "the groups have gone with their last members")
