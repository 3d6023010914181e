# SPDX-License-Identifier: MIT
"""The cost of one job does not depend on how many others the switch has: reads and writes are counted, not seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from netsum_controller import Controller, JobSpec
from netsum_controller.entries import Item, JobEntry, MulticastGroup
from netsum_controller.errors import BusyError, UnknownJobError
from netsum_controller.jobs import reconcile
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.state.model import JobState

from tests.controller.fake_fabric import FakeFabric
from tests.controller.fake_switch import FakeSwitch, touches
from tests.controller.members import TOKEN, rejoin
from tests.threads import PATIENCE, until

JOBS = 16
"""With two of them a turn, enough turns for all that is done in between."""


def create(controller: Controller, number: int, *, first: int = 0, members: tuple[str, ...] = ("h1", "h2")) -> None:
    for each in range(first, first + number):
        controller.create_job(JobSpec(name=f"j{each:03}", members=members, window=1, token=TOKEN, algorithm="switch"))


def everyone(controller: Controller, join: Callable[[str, int], object]) -> None:
    for job in controller.jobs():
        for rank in range(job.workers):
            join(job.name, rank)


class Cost:
    """Entries and groups that a switch returns, and Reads and Writes that it gets, while something is done."""

    def __init__(self, switch: FakeSwitch) -> None:
        self._switch = switch
        self.entries = self.requests = 0

    @contextmanager
    def of(self) -> Iterator[None]:
        before = self._switch.entities_read, self._switch.requests
        yield
        self.entries = self._switch.entities_read - before[0]
        self.requests = self._switch.requests - before[1]


@pytest.fixture
def cost(switch: FakeSwitch) -> Cost:
    return Cost(switch)


def test_a_job_is_created_evicted_from_and_deleted_at_the_same_cost_beside_sixty_others(
    controller: Controller, cost: Cost
) -> None:
    costs: list[list[tuple[int, int]]] = []
    create(controller, 2)  # whose are what the first has claimed, is looked at once
    for others in (2, 60):
        create(controller, others - len(controller.jobs()), first=len(controller.jobs()))
        found = []
        for act in (
            lambda: create(controller, 1, first=200),
            lambda: controller.join("j200", TOKEN, 0, "a"),
            lambda: controller.join("j200", TOKEN, 0, "b"),
            lambda: controller.evict("j200", 1),
            lambda: controller.admit("j200", 1),
            lambda: controller.delete_job("j200"),
        ):
            with cost.of():
                act()
            found.append((cost.entries, cost.requests))
        costs.append(found)
    assert costs[0] == costs[1]


def restored(controller: Controller, switch: FakeSwitch, cost: Cost, jobs: int) -> tuple[tuple[int, int], int]:
    """The cost of restoring a switch with so many jobs (entries read, and requests for each turn); and the entries that are
    read until all members have rejoined."""
    create(controller, jobs - len(controller.jobs()), first=len(controller.jobs()))
    everyone(controller, lambda name, rank: controller.join(name, TOKEN, rank, "a"))
    old = {job.name: job.epoch for job in controller.jobs()}
    switch.restart()
    with cost.of():
        (report,) = controller.reconcile()
    assert report.new_epochs.keys() == old.keys()
    restoring = (cost.entries, cost.requests)

    def come_back(name: str, rank: int) -> None:
        try:
            rejoin(controller, name, rank, Progress(old[name].number, old[name].first_block_id))
        except BusyError:
            assert rank == 0, "then the other has rejoined too"

    with cost.of():
        everyone(controller, come_back)
    assert not controller.reconcile()[0].changed
    return restoring, cost.entries


def test_a_switch_is_restored_in_one_pass_and_read_once(
    controller: Controller, switch: FakeSwitch, cost: Cost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "TURN", 4)
    (_, one), few = restored(controller, switch, cost, reconcile.TURN)
    (entries, requests), many = restored(controller, switch, cost, 4 * reconcile.TURN)
    assert entries == 0, "it has nothing yet"
    assert requests <= 4 * one
    assert many <= 4 * few + 8 * reconcile.TURN  # each switch's job entries are read once to see whose they are


def test_a_fabric_is_restored_with_one_read_of_each_switch(fabric: FakeFabric, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs over trees: one leaf has restarted, and the jobs get new epochs on the three other switches, too."""
    monkeypatch.setattr(reconcile, "TURN", 4)
    controller = fabric.open()
    controller.push()
    found = []
    for jobs in (reconcile.TURN, 3 * reconcile.TURN):
        there = len(controller.jobs())
        create(controller, jobs - there, first=there, members=tuple(controller.topology.hosts))
        fabric.switches["leaf1"].restart()
        before = {name: switch.entities_read for name, switch in fabric.switches.items()}
        (report,) = [each for each in controller.reconcile() if each.program_pushed]
        assert len(report.new_epochs) == jobs
        found.append(sum(switch.entities_read - before[name] for name, switch in fabric.switches.items()))
        assert not any(each.changed for each in controller.reconcile())
    assert found[1] <= 3.5 * found[0]  # quadratic: nine times


class Meanwhile:
    """Does something in a thread that asks for the state lock during the first turn of restoring, so that it gets it before the
    second: callers that wait for the lock get it in order."""

    def __init__(self, controller: Controller, switch: FakeSwitch, act: Callable[[], object]) -> None:
        self._controller, self._act = controller, act
        self.done_before_the_last_turn = False
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._turns = 0
        switch.on_write = self._look

    def _run(self) -> None:
        try:
            self._act()
        except BaseException as error:
            self.failure = error

    def _look(self, request: object) -> None:
        if not any(touches(update, "member") for update in request.updates):  # type: ignore[attr-defined]
            return
        self._turns += 1
        if self._turns == 1:
            self._thread.start()
            line = self._controller.context.store.lock._line
            until(lambda: len(line) == 2, "it waits for the lock")
        elif threading.current_thread() is not self._thread:
            self.done_before_the_last_turn = self.done_before_the_last_turn or not self._thread.is_alive()

    def check(self) -> None:
        self._thread.join(PATIENCE)
        assert self.failure is None
        assert self.done_before_the_last_turn


def test_members_of_restored_jobs_go_on_while_others_are_restored(
    controller: Controller, switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "TURN", 2)
    create(controller, JOBS, members=("h1",))
    controller.join("j000", TOKEN, 0, "a")
    old = controller.job("j000").epoch
    switch.restart()

    def come_back() -> None:
        assert rejoin(controller, "j000", 0, Progress(old.number, old.first_block_id)).resumes == old.number

    meanwhile = Meanwhile(controller, switch, come_back)
    (report,) = controller.reconcile()
    meanwhile.check()
    assert len(report.new_epochs) == JOBS
    assert not controller.reconcile()[0].changed


def test_jobs_change_while_others_are_restored(
    controller: Controller, switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last jobs to be restored: one is deleted, one loses a member, one gets a new epoch; and there is a new one."""
    monkeypatch.setattr(reconcile, "TURN", 2)
    create(controller, JOBS)
    deleted, evicted, joined = (f"j{JOBS - back:03}" for back in (1, 2, 3))
    controller.join(joined, TOKEN, 0, "a")
    switch.restart()

    def change() -> None:
        controller.delete_job(deleted)
        controller.evict(evicted, 1)
        controller.join(joined, TOKEN, 0, "b")
        create(controller, 1, first=100)

    meanwhile = Meanwhile(controller, switch, change)
    (report,) = controller.reconcile()
    meanwhile.check()
    assert deleted not in report.new_epochs
    assert joined not in report.new_epochs, "it was installed by the join"
    with pytest.raises(UnknownJobError):
        controller.job(deleted)
    assert [seat.evicted for seat in controller.job(evicted).epoch.seats] == [False, True]
    assert all(job.state is JobState.READY for job in controller.jobs())
    assert not controller.reconcile()[0].changed


def test_what_an_earlier_job_has_left_is_found_when_its_id_is_used_again(controller: Controller, switch: FakeSwitch) -> None:
    """A switch could not be reached when a job left it: not even a member whose source the new job does not have stays."""
    create(controller, 1, members=("h1", "h2", "h4"))
    left = dict(switch.rows), dict(switch.groups)
    controller.delete_job("j000")
    switch.rows, switch.groups = left
    with controller.context.store.transaction():
        controller.context.store._set_meta("last_job_id", 0)
    create(controller, 1, first=1)
    assert not controller.reconcile()[0].changed


def test_an_eviction_that_was_killed_leaves_no_entry(controller: Controller) -> None:
    """Neither when it is repeated nor under the next epoch."""
    for repair in (lambda: controller.evict("j000", 1), lambda: controller.join("j000", TOKEN, 0, "b")):
        create(controller, 1)
        controller.join("j000", TOKEN, 0, "a")
        with controller.context.store.transaction():
            controller.context.store.set_evicted(controller.job("j000").epoch.number, 1)
        repair()
        assert not controller.reconcile()[0].changed
        controller.delete_job("j000")


def test_what_is_read_by_its_key(on_live: Controller) -> None:
    """On each switch: entries and groups that are there, and none that are not."""
    create(on_live, 1)
    with on_live.context.client("s1") as client:
        everything = client.read_items()
        missing: list[Item] = [JobEntry(77, 1, 1, 0, 0, 0), MulticastGroup(77, frozenset({(1, 1)}))]
        assert set(client.read_same([*everything, *missing])) == set(everything)
        assert client.read_same(missing) == []
