# SPDX-License-Identifier: MIT
"""Jobs side by side and one after the other: none sees anything of another, and nothing is left behind."""

from __future__ import annotations

from typing import Any

import numpy as np
from netsum.communicator import Communicator
from netsum_controller.config.job_spec import JobSpec
from netsum_testbed.fabric import Fabric

from tests.full.calls import on_all, results
from tests.full.conftest import Members
from tests.threads import PATIENCE


def spec_of(fabric: Fabric, name: str, workers: int = 2, **options: Any) -> JobSpec:
    return JobSpec(name=name, members=tuple(fabric.topology.hosts)[:workers], **options)


def total(comm: Communicator, array: Any) -> Any:
    return comm.allreduce(array, timeout=PATIENCE)


def test_two_jobs_at_once_do_not_see_each_other(members: Members) -> None:
    with members(3) as first, members(4, first=3, chunks=4) as second:

        def make(comm: Communicator) -> list[Any]:
            factor = 1000 if comm.size == 4 else 1
            return [total(comm, np.full(3000, factor * (comm.rank + n), np.int32)) for n in range(20)]

        together = results(on_all([*first, *second], make))
    for sums in together[:3]:
        assert [set(array.tolist()) for array in sums] == [{3 + 3 * n} for n in range(20)]
    for sums in together[3:]:
        assert [set(array.tolist()) for array in sums] == [{1000 * (6 + 4 * n)} for n in range(20)]


def test_joining_again_after_all_left_works_and_forgets_the_old_sums(fabric: Fabric) -> None:
    job = fabric.create_job(spec_of(fabric, "rejoined", 3))
    try:
        for value in (5, 0, 9):
            communicators = [fabric.join(job, rank) for rank in range(3)]
            try:

                def make(comm: Communicator, value: int = value) -> Any:
                    return total(comm, np.full(1000, value, np.int64))

                for array in results(on_all(communicators, make)):
                    assert set(array.tolist()) == {3 * value}
            finally:
                for comm in communicators:
                    comm.close()
    finally:
        fabric.controller.delete_job("rejoined")


def test_after_the_switch_lost_everything_calls_go_on(fabric: Fabric, members: Members) -> None:
    with members(3) as comms:
        assert results(on_all(comms, lambda comm: total(comm, np.full(3000, 2, np.int32)).max())) == [6, 6, 6]
        before = comms[0].descriptor.epoch
        fabric.controller.push(force=True)  # what a restart does to entries and registers, and reconcile after it
        assert results(on_all(comms, lambda comm: total(comm, np.full(3000, 5, np.int32)).max())) == [15, 15, 15]
        assert {comm.descriptor.epoch for comm in comms} == {comms[0].descriptor.epoch}
        assert comms[0].descriptor.epoch > before
