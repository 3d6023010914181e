# SPDX-License-Identifier: MIT
"""The controller is killed and restarted: calls do not need it, and what it had begun is finished afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from netsum import CallTimeoutError, Communicator, DesynchronizedError, NotReadyError, ResultLostError
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.state.model import Job, Rejoin
from netsum_testbed.fabrics import open_fabric

from tests.full.calls import on_all, results
from tests.full.conftest import FABRICS
from tests.full.trouble import Nap, Served, Training, restart_switch
from tests.threads import PATIENCE, until

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def patient() -> None:
    """As in use: this controller hangs."""


@pytest.fixture(scope="module", params=FABRICS)
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """A fabric whose controller serves in a separate process."""
    kind, switch = request.param.split("-")
    with open_fabric(switch, hosts=5, rootless=kind == "rootless") as fabric, Served(fabric) as served:
        yield served


@contextmanager
def crew(served: Served, name: str, workers: int = 3, **options: Any) -> Iterator[tuple[Job, list[Communicator]]]:
    """A job with all its members joined."""
    members = tuple(served.fabric.topology.hosts)[:workers]
    job = served.controller.create_job(JobSpec(name=name, members=members, window=8, **options))
    communicators: list[Communicator] = []
    try:
        with ThreadPoolExecutor(workers) as pool:  # without a switch, no rank is in before all are
            communicators.extend(pool.map(lambda rank: served.join(job, rank), range(workers)))
        yield job, communicators
    finally:
        for comm in communicators:
            comm.close()
        served.controller.delete_job(name)


def test_calls_do_not_need_the_controller(served: Served) -> None:
    with crew(served, "alone") as (_, communicators), Training(communicators) as training:
        training.on()
        served.kill()
        training.on(50)
        served.start()
        training.finish()
        assert [comm.stats.resumes for comm in communicators] == [0] * 3


def test_switch_and_controller_restart_in_the_middle_of_a_call(served: Served) -> None:
    """The members ask until a controller answers, which restores the switch when it first sees it."""
    with crew(served, "both") as (_, communicators), Training(communicators) as training:
        training.on()
        served.kill()
        restart_switch(served.fabric)
        served.start()
        training.finish()
        assert [comm.stats.resumes for comm in communicators] == [1] * 3


def test_it_restarts_while_members_rejoin(served: Served) -> None:
    """Two have reported what they lack, the third is still between calls: the reports are in the state file."""
    nap = Nap(2, 10)
    with crew(served, "half") as (job, communicators), Training(communicators, pause=nap) as training:
        until(lambda: training.steps[0] >= 10, "the step before the pause")
        restart_switch(served.fabric)

        def told() -> list[int]:
            epoch = served.controller.job(job.name).epoch
            return [seat.rank for seat in epoch.seats if epoch.rejoin is Rejoin.WAITING and seat.needs is not None]

        until(lambda: told() == [0, 1], "two have rejoined")
        served.kill()
        served.start()
        nap.wake.set()
        training.finish()
        assert [comm.stats.resumes for comm in communicators] == [1] * 3


def test_a_degrade_job_goes_on_without_it(served: Served) -> None:
    """No scans come, but a block also ages out when a member asks for it again. A member that must come back waits for it."""

    def pause(rank: int, step: int) -> float:
        return 2.0 if (rank, step) == (2, 10) else 0.0

    options: dict[str, Any] = {"late": "degrade", "block_exp": 50.0, "quorum": 1}
    with (
        crew(served, "scanned", **options) as (_, communicators),
        Training(communicators, resync=(ResultLostError, DesynchronizedError), check=False, pause=pause) as training,
    ):
        served.kill()
        until(lambda: all(comm.stats.degraded for comm in communicators[:2]), "partial results")
        served.start()
        training.finish()


def test_no_member_can_join_while_it_is_away(served: Served) -> None:
    with crew(served, "closed") as (job, _):
        served.kill()
        with pytest.raises(NotReadyError, match="does not answer"):
            served.join(job, 0, timeout=0.5)
        served.start()


@pytest.mark.parametrize("algorithm", ["ring", "switch"])
@pytest.mark.parametrize("grouped", [False, True], ids=["job", "group"])
def test_while_it_hangs_no_present_rank_is_blamed(served: Served, algorithm: str, grouped: bool) -> None:
    """The last rank does not call. Members without a switch know that of each other; at a switch, the controller alone would."""

    def late(comm: Communicator) -> Any:
        return comm.allreduce(np.ones(3000), timeout=4.0)

    with crew(served, f"hung-{algorithm}-{grouped}", algorithm=algorithm) as (_, communicators):
        groups = communicators
        if grouped:
            groups = results(on_all(communicators, lambda comm: comm.split(0, timeout=PATIENCE)))
        with served.hung():
            got = on_all(groups[:2], late)
        for each in got:
            assert isinstance(each.error, CallTimeoutError), each
            assert each.error.missing == (() if algorithm == "switch" else (2,)), each
            assert algorithm != "switch" or "the controller" in str(each.error), each
        for group in groups:
            group.close()
