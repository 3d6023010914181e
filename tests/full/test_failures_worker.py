"""A worker's process is killed: in a job that waits the others wait for it, by name; in one that degrades they go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from netsum.communicator import Communicator
from netsum.errors import Closed, Desynchronized, Timeout
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.state.model import Job
from netsum_testbed.fabric import Fabric
from netsum_testbed.processes import Child

from tests.full.calls import on_all
from tests.full.trouble import Training, start_worker, until

LAST = 2
"""The rank that is a process of its own."""


class Worker:
    """A worker process and what it has said: the sum of its state after each step."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.sums: dict[int, int] = {}

    def read(self) -> int:
        """The next step that it says it has done."""
        line = self.child.stdout.readline()
        assert line, f"the worker has ended: {self.child.last_words()}"
        said = json.loads(line)
        self.sums[said["step"]] = said["sum"]
        return int(said["step"])


@contextmanager
def crew(fabric: Fabric, name: str, **options: Any) -> Iterator[tuple[Job, list[Communicator], Worker]]:
    """A job of three: two ranks here, the third a process of its own."""
    job = fabric.create_job(JobSpec(name=name, members=tuple(fabric.topology.hosts)[:3], window=8, **options))
    communicators: list[Communicator] = []
    worker = another(fabric, job)
    try:
        communicators.extend(fabric.join(job, rank) for rank in range(LAST))
        until(lambda: fabric.controller.job(name).epoch.seats[LAST].joined, "the worker has joined")
        yield job, communicators, worker
    finally:
        worker.child.stop()
        for comm in communicators:
            comm.close()
        fabric.controller.delete_job(name)


def another(fabric: Fabric, job: Job, **options: Any) -> Worker:
    assert fabric.controller.url is not None
    return Worker(start_worker(fabric, job, LAST, fabric.tokens[job.name], fabric.controller.url, **options))


def test_the_others_time_out_and_name_it(fragile: Fabric) -> None:
    with crew(fragile, "killed") as (_, communicators, worker), Training(communicators, timeout=10.0) as training:
        while worker.read() < 20:
            pass
        worker.child.kill()
        training.join()
        assert training.kinds() == [Timeout] * 2
        for error in training.errors:
            assert isinstance(error, Timeout)
            assert error.missing == (LAST,)
            assert "rank 2 (h3)" in str(error)
        reports = fragile.controller.why("killed").blocks
        assert reports
        assert {person["rank"] for report in reports for person in report.missing} == {LAST}
        for outcome in on_all(communicators, Communicator.barrier):
            assert isinstance(outcome.error, Closed)


def test_a_replacement_brings_the_others_out_of_their_wait(fragile: Fabric) -> None:
    """It takes the dead one's rank, the others hear of the new epoch, and all go on from the state of the furthest."""
    with (
        crew(fragile, "replaced") as (job, communicators, worker),
        Training(communicators, resync=(Desynchronized,)) as training,
    ):
        while worker.read() < 20:
            pass
        worker.child.kill()
        goal = max(training.steps) + 20
        training.end_after(goal)
        replacement = another(fragile, job, resync=True, steps=goal)
        try:
            while replacement.read() < goal:
                pass
            training.join()
            training.check_equal()
            assert all(training.came_back)
            assert replacement.sums[goal] == int(training.states[0].sum())
        finally:
            replacement.child.stop()


@pytest.mark.full
def test_a_degrade_job_goes_on_without_it_and_takes_a_replacement(fragile: Fabric) -> None:
    with (
        crew(fragile, "missed", late="degrade", block_exp=300.0, quorum=1) as (job, communicators, worker),
        Training(communicators, resync=(Desynchronized,), check=False) as training,
    ):
        while worker.read() < 10:
            pass
        worker.child.kill()
        until(lambda: all(comm.report.src_cnt_min == LAST for comm in communicators), "partial results")
        training.on(5)
        assert training.kinds() == [None] * 2
        assert fragile.controller.stats(job.name).outcomes["aged"] > 0
        reached = max(training.steps)
        replacement = another(fragile, job, resync=True)
        try:
            while replacement.read() < reached + 10:
                pass
            until(lambda: all(comm.report.degraded == 0 for comm in communicators), "whole results")
        finally:
            replacement.child.stop()
        training.finish()
        training.check_equal()
        assert all(training.came_back)
