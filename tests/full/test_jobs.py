"""Jobs side by side and one after the other: none sees anything of another, and nothing is left behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.errors import NoSuchJob, Refused
from netsum_controller.stages import Item
from netsum_testbed.fabric import Fabric

from tests.full.calls import PATIENCE, on_all, results
from tests.full.conftest import Members, joined


def installed(fabric: Fabric) -> set[Item]:
    """Everything that is on the switch."""
    site = fabric.controller.site
    with site.client(next(iter(fabric.topology.switches))) as client:
        return set(client.read_items())


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


def test_the_same_job_twice_changes_nothing(fabric: Fabric) -> None:
    spec = spec_of(fabric, "twice")
    first = fabric.controller.create_job(spec)
    before = installed(fabric)
    again = fabric.controller.create_job(spec)
    assert (first.created, again.created) == (True, False)
    assert (again.job_id, again.slot_base, again.epoch) == (first.job_id, first.slot_base, first.epoch)
    assert installed(fabric) == before
    fabric.controller.delete_job("twice")


def test_deleting_leaves_nothing_and_leaks_no_slots_or_ids(fabric: Fabric) -> None:
    before, stored = installed(fabric), fabric.controller.site.store.jobs()
    for _ in range(10):  # half of all slots each: leaking them would refuse the third
        fabric.controller.create_job(spec_of(fabric, "again", window=2048))
        fabric.controller.delete_job("again")
    assert installed(fabric) == before
    assert fabric.controller.site.store.jobs() == stored  # ids, slots and ports are those of the stored jobs
    with pytest.raises(NoSuchJob):
        fabric.controller.delete_job("again")


def test_deleting_one_job_does_not_disturb_another(fabric: Fabric, members: Members) -> None:
    with members(3) as communicators:
        fabric.controller.create_job(spec_of(fabric, "other", 4))

        def make(comm: Communicator) -> list[Any]:
            sums = []
            for n in range(30):
                if comm.rank == 0 and n == 10:
                    fabric.controller.delete_job("other")
                sums.append(total(comm, np.full(2000, n, np.int16)))
            return sums

        for sums in results(on_all(communicators, make)):
            assert [set(array.tolist()) for array in sums] == [{3 * n} for n in range(30)]


@pytest.mark.full
def test_a_new_job_never_sees_the_sums_of_the_job_that_had_its_slots(fabric: Fabric) -> None:
    bases = set()
    for life in range(6):
        with joined(fabric, 2, window=512, chunks=1) as communicators:
            bases.add(fabric.controller.jobs()[-1].slot_base)
            value = (1000, 0, -7, 0, 31, 0)[life]

            def make(comm: Communicator, value: int = value) -> Any:
                return total(comm, np.full(64 * 5000, value, np.int32))  # more blocks than slots: each is used twice

            for array in results(on_all(communicators, make)):
                assert set(array.tolist()) == {2 * value}
    assert len(bases) == 1, "the test wants the lives to share slots"


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


def test_a_job_that_does_not_fit_is_refused_and_changes_nothing(fabric: Fabric) -> None:
    before, jobs = installed(fabric), [job.name for job in fabric.controller.jobs()]
    with pytest.raises(Refused, match=r"no host h99"):
        fabric.controller.create_job(JobSpec(name="stranger", members=("h1", "h99")))
    fabric.controller.create_job(spec_of(fabric, "half", window=2048))
    fabric.controller.create_job(spec_of(fabric, "most", window=1024))
    full = installed(fabric)
    with pytest.raises(Refused, match=r"needs 4096 slots in a row on switch s1; \d+ of 8192 are free"):
        fabric.controller.create_job(spec_of(fabric, "too-much", window=2048, algorithm="switch"))
    assert installed(fabric) == full
    for name in ("half", "most"):
        fabric.controller.delete_job(name)
    assert installed(fabric) == before
    assert [job.name for job in fabric.controller.jobs()] == jobs


def test_after_the_switch_lost_everything_calls_go_on(fabric: Fabric, members: Members) -> None:
    with members(3) as comms:
        assert results(on_all(comms, lambda comm: total(comm, np.full(3000, 2, np.int32)).max())) == [6, 6, 6]
        before = comms[0].descriptor.epoch
        fabric.controller.push(force=True)  # what a restart does to entries and registers, and reconcile after it
        assert results(on_all(comms, lambda comm: total(comm, np.full(3000, 5, np.int32)).max())) == [15, 15, 15]
        assert {comm.descriptor.epoch for comm in comms} == {comms[0].descriptor.epoch}
        assert comms[0].descriptor.epoch > before
