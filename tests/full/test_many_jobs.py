# SPDX-License-Identifier: MIT
"""Many jobs on one switch: each is as exact as alone, whatever the others' members do and whichever job is deleted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from netsum import Communicator, CommunicatorError, JoinError
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.fabric import Fabric
from netsum_testbed.verify.check import Checker
from netsum_testbed.verify.data import contribution
from netsum_testbed.verify.run import VerifyRound, make_round

from tests.full.calls import on_all, results
from tests.full.conftest import FABRICS, Members, joined, started
from tests.full.test_untrusted_senders import BAD_PACKETS, MEMBERS, OUTSIDER, Aim
from tests.full.wires import open_wire
from tests.threads import PATIENCE, repeatedly, until

JOBS = 16
WORKERS = [2 + number % 2 for number in range(JOBS)]


@pytest.fixture(scope="module", params=FABRICS)
def crowd(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """A fabric with a host for every rank of sixteen jobs."""
    with started(request.param, star(sum(WORKERS))) as fabric:
        yield fabric


@pytest.mark.full
def test_sixteen_jobs_at_once_are_exact(crowd: Fabric) -> None:
    rounds = [make_round(16, n, calls=6, workers=(WORKERS[n],), max_elements=3000) for n in range(JOBS)]
    together = threading.Barrier(sum(WORKERS))
    with ExitStack() as stack:
        of: dict[Communicator, VerifyRound] = {}
        for number, round_ in enumerate(rounds):
            options: dict[str, Any] = {"first": sum(WORKERS[:number]), "window": round_.window, "chunks": round_.chunks}
            of |= dict.fromkeys(stack.enter_context(joined(crowd, round_.workers, **options)), round_)
        assert len({job.job_id for job in crowd.controller.jobs()}) == JOBS

        def work(comm: Communicator) -> list[Any]:
            round_ = of[comm]
            together.wait(PATIENCE)
            return [
                comm.allreduce(contribution(call, comm.rank), op=call.kind.op, scale=call.scale, timeout=PATIENCE)
                for call in round_.calls
            ]

        found = iter(results(on_all(list(of), work)))
        for round_ in rounds:
            ranks = [next(found) for _ in range(round_.workers)]
            checker = Checker(256 * round_.chunks)
            for call in round_.calls:
                assert checker.complaints(call, [np.asarray(rank[call.index]) for rank in ranks]) == [], call.describe()


def sums(comm: Communicator, calls: int, factor: int) -> list[set[int]]:
    """The different elements of each of some calls' results."""
    arrays = (np.full(3000, factor * (call + comm.rank), np.int32) for call in range(calls))
    return [set(comm.allreduce(array, timeout=PATIENCE).tolist()) for array in arrays]


def right(calls: int, factor: int, workers: int) -> list[set[int]]:
    """The right elements of the result."""
    return [{factor * (workers * call + workers * (workers - 1) // 2)} for call in range(calls)]


@contextmanager
def flood(fabric: Fabric, victim: str) -> Iterator[str]:
    """A job whose one member sends as fast as it can: all that is in the way of its own job (blocks that never end, for the
    other member is silent; repeated; far ahead and long gone; of other calls), of another job, and of jobs that no rank has.
    Its name."""
    hosts = list(fabric.topology.hosts)
    spec = JobSpec(name="flooder", members=(hosts[OUTSIDER], hosts[-1]), window=32, chunks=1)
    fabric.controller.create_job(spec)
    own = fabric.controller.membership.join_all(spec.name)
    known = [fabric.controller.descriptor(victim, rank) for rank in MEMBERS]
    mine, theirs = Aim(fabric, spec.name, own, own), Aim(fabric, victim, known, known)
    frames = [mine.contribution(0, offset) for offset in (*range(64), 64 * 100, -64 * 100)]
    frames += [mine.contribution(0, 3, gen_id=9), *(mine.contribution(0, 0, job_id=job_id) for job_id in range(256))]
    frames += [each.make(theirs) for each in BAD_PACKETS]
    wire, again = open_wire(fabric, hosts[OUTSIDER]), cycle(frames)
    try:
        with repeatedly(lambda: wire.send(next(again))):
            yield spec.name
    finally:
        wire.close()
        fabric.controller.delete_job(spec.name)


def wait_for_refusals(fabric: Fabric, job: str, packets: int) -> None:
    """Wait until so many packets of untrusted senders to a job have come."""
    until(lambda: fabric.controller.stats(job).outcomes["not_member"] >= packets, "the flood comes")


def test_a_job_that_floods_changes_no_sum_of_the_others(fabric: Fabric, members: Members) -> None:
    with members(3) as victims, members(2, first=4, chunks=2) as others:
        jobs = {job.workers: job.name for job in fabric.controller.jobs() if job.exists}

        def work(comm: Communicator) -> list[set[int]]:
            return sums(comm, 10, comm.size)

        with flood(fabric, jobs[3]) as flooder:
            wait_for_refusals(fabric, jobs[3], 10)
            before = fabric.controller.stats(jobs[3]).outcomes["not_member"]
            found = results(on_all([*victims, *others], work))
            wait_for_refusals(fabric, jobs[3], before + 1)
            outcomes = fabric.controller.stats(flooder).outcomes
        assert found == 3 * [right(10, 3, 3)] + 2 * [right(10, 2, 2)]
        assert 0 < outcomes["accepted"] <= 64, "blocks that wait for its other member, no more than it has slots"
        assert outcomes["duplicate"] > 0
        assert outcomes["completed"] == 0


def test_deleting_a_job_in_mid_call_disturbs_no_other(fabric: Fabric, members: Members) -> None:
    """Nor does a new job that gets its slots at once."""
    spec = JobSpec(name="doomed", members=tuple(fabric.topology.hosts)[6:8], window=64)
    with members(3) as first, members(2, first=3) as second:
        job = fabric.create_job(spec)
        doomed = [fabric.join(job, rank) for rank in range(2)]
        begun, bases = threading.Event(), []

        def work(comm: Communicator) -> Any:
            if comm is doomed[0]:
                call = comm.allreduce_async(np.ones(3000, np.int32), timeout=PATIENCE)  # for which rank 1 is waited
                begun.set()
                with pytest.raises((CommunicatorError, JoinError)):  # the controller does not know it any more
                    call.wait()
                return None
            found = sums(comm, 5, comm.size)
            if comm is first[0]:
                assert begun.wait(PATIENCE)
                fabric.controller.delete_job(spec.name)
                bases.append(fabric.controller.create_job(spec).slot_base)
            return found + sums(comm, 20, comm.size)

        try:
            found = results(on_all([*first, *second, doomed[0]], work))
        finally:
            for comm in doomed:
                comm.close()
            fabric.controller.delete_job(spec.name)
        assert bases == [job.slot_base]
        assert found == 3 * [right(5, 3, 3) + right(20, 3, 3)] + 2 * [right(5, 2, 2) + right(20, 2, 2)] + [None]
