# SPDX-License-Identifier: MIT
"""A worker's process is killed: in a job that waits the others wait for it, by name; in one that degrades they go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from netsum import CallTimeoutError, ClosedError, Communicator, DesynchronizedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.processes import Child

from tests.full.calls import on_all
from tests.full.conftest import joined
from tests.full.trouble import Training, start_worker
from tests.threads import until

pytestmark = pytest.mark.full

LAST = 2
"""The rank that runs as a separate process."""


class Worker:
    """A worker process and what it has said: the sum of its state after each step."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.sums: dict[int, int] = {}

    def read(self) -> int:
        """The next step that it reports as done."""
        line = self.child.stdout.readline()
        assert line, f"the worker has ended: {self.child.last_words()}"
        said = json.loads(line)
        self.sums[said["step"]] = said["sum"]
        return int(said["step"])


def another(fabric: Fabric, name: str, **options: Any) -> Worker:
    return Worker(start_worker(fabric, name, LAST, **options))


@contextmanager
def crew(fabric: Fabric, name: str, **options: Any) -> Iterator[tuple[list[Communicator], Worker]]:
    """A job of three: two ranks here, the third a process of its own. In a job that degrades a busy machine may make it late."""
    with joined(fabric, 3, name=name, here=range(LAST), window=8, **options) as communicators:
        worker = another(fabric, name, comes_back="late" in options)
        try:
            until(lambda: fabric.controller.job(name).epoch.seats[LAST].joined, "the worker has joined")
            yield communicators, worker
        finally:
            worker.child.stop()


def test_the_others_time_out_and_name_it(fragile: Fabric) -> None:
    with crew(fragile, "killed") as (communicators, worker), Training(communicators, timeout=10.0) as training:
        while worker.read() < 20:
            pass
        worker.child.kill()
        training.join()
        assert training.kinds() == [CallTimeoutError] * 2
        for error in training.errors:
            assert isinstance(error, CallTimeoutError)
            assert error.missing == (LAST,)
            assert "rank 2 (h3)" in str(error)
        reports = fragile.controller.diagnose("killed").blocks
        assert reports
        assert {person["rank"] for report in reports for person in report.missing} == {LAST}
        for outcome in on_all(communicators, Communicator.barrier):
            assert isinstance(outcome.error, ClosedError)


def test_a_replacement_brings_the_others_out_of_their_wait(fragile: Fabric) -> None:
    """It takes the dead one's rank, the others hear of the new epoch, and all go on from the state of the furthest."""
    with (
        crew(fragile, "replaced") as (communicators, worker),
        Training(communicators, resync=(DesynchronizedError,)) as training,
    ):
        while worker.read() < 20:
            pass
        worker.child.kill()
        goal = max(training.steps) + 20
        training.end_after(goal)
        replacement = another(fragile, "replaced", resync=True, steps=goal)
        try:
            while replacement.read() < goal:
                pass
            training.join()
            training.check_equal()
            assert all(training.came_back)
            assert replacement.sums[goal] == int(training.states[0].sum())
        finally:
            replacement.child.stop()


def test_a_degrade_job_goes_on_without_it_and_takes_a_replacement(fragile: Fabric) -> None:
    with (
        crew(fragile, "missed", late="degrade", block_exp=300.0, quorum=1) as (communicators, worker),
        Training(communicators, resync=(DesynchronizedError,), check=False) as training,
    ):
        while worker.read() < 10:
            pass
        worker.child.kill()
        until(lambda: all(comm.report.min_worker_cnt == LAST for comm in communicators), "partial results")
        training.on(5)
        assert training.kinds() == [None] * 2
        assert fragile.controller.stats("missed").outcomes["aged"] > 0
        reached = max(training.steps)
        replacement = another(fragile, "missed", resync=True)
        try:
            while replacement.read() < reached + 10:
                pass
            until(lambda: all(comm.report.degraded == 0 for comm in communicators), "whole results")
        finally:
            replacement.child.stop()
        training.finish()
        assert all(training.came_back)
