# SPDX-License-Identifier: MIT
"""Whatever happens to the state file, no epoch number is used twice, and a second controller is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from netsum.wire.schema import SLOTS
from netsum_controller import Controller, JobSpec, Topology
from netsum_controller.entries import JobEntry
from netsum_controller.errors import CannotResumeError, StateError
from netsum_controller.jobs.epoch_numbers import claim_numbers
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.planning.allocation import scattered
from netsum_controller.state.model import SERIAL, Rejoin

from tests.controller.fake_fabric import FakeFabric
from tests.controller.fake_switch import FakeSwitch

Copy = Callable[[], Controller]


@pytest.fixture
def copy(topology: Topology, tmp_path: Path) -> Iterator[Copy]:
    """Opens a controller on a copy of the state file as it is now."""
    with ExitStack() as stack:

        def make() -> Controller:
            path = shutil.copy(tmp_path / "state.db", tmp_path / f"copy{len(list(tmp_path.iterdir()))}.db")
            return stack.enter_context(Controller(topology, path))

        yield make


def spec(name: str, *members: str) -> JobSpec:
    return JobSpec(name=name, members=members or ("h1", "h2"), window=8)


def guards(controller: Controller, name: str) -> tuple[int, int, frozenset[int]]:
    epoch = controller.job(name).epoch
    return epoch.number, epoch.first_block_id, frozenset(seat.udp_port for seat in epoch.seats)


def test_a_lost_state_file_brings_no_number_back(controller: Controller, topology: Topology, tmp_path: Path) -> None:
    given = []
    for which in "abcdefgh":
        controller.create_job(spec(which))
        given.append(guards(controller, which))
        controller.delete_job(which)
    with Controller(topology, tmp_path / "new.db") as new:
        new.context.store._set_meta("next_epoch", given[0][0])  # the clock, which the deleted jobs have overtaken
        new.push()
        new.create_job(spec("a"))
        number, first, ports = guards(new, "a")
    assert number > max(used for used, _, _ in given)
    assert not any((first - begun) % SERIAL < SERIAL // 4096 for _, begun, _ in given)
    assert not any(ports & used for _, _, used in given)


def test_a_restored_copy_brings_nothing_back(controller: Controller, copy: Copy) -> None:
    old = copy()
    controller.create_job(spec("x"))
    number, first, ports = guards(controller, "x")
    controller.delete_job("x")
    old.create_job(spec("y", "h3", "h4"))
    again = guards(old, "y")
    assert again[0] > number
    assert again[1] != first
    assert not again[2] & ports


def test_numbers_rise_with_the_clock_where_the_switch_has_forgotten_them(
    controller: Controller, copy: Copy, switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = copy()
    controller.create_job(spec("x"))
    switch.restart()
    later = old.context.store.next_epoch + 1000
    monkeypatch.setattr("netsum_controller.jobs.epoch_numbers.time", SimpleNamespace(time=lambda: later + 0.5))
    old.push()
    old.create_job(spec("y"))
    assert old.job("y").epoch.number == later


def test_two_controllers_on_copies(controller: Controller, copy: Copy, switch: FakeSwitch) -> None:
    controller.create_job(spec("known"))
    second = copy()
    controller.create_job(spec("x"))
    installed = switch.installed
    for attempt in (
        lambda: second.create_job(spec("y", "h3", "h4")),
        lambda: second.delete_job("known"),
        second.push,
        lambda: second.evict("known", 0),
    ):
        with pytest.raises(StateError, match="another controller serves the switch, or this file is new or an old copy"):
            attempt()
        assert switch.installed == installed
    assert [job.name for job in second.jobs()] == ["known"]
    assert controller.push()[0].changed is False


def test_who_begins_an_epoch_later_is_told(controller: Controller, copy: Copy) -> None:
    """Both files know the job; only one of them its newest epoch."""
    controller.create_job(spec("x").model_copy(update={"token": "correct-horse"}))
    second = copy()
    for instance in ("a", "b"):
        controller.join("x", "correct-horse", 0, instance)
    second.join("x", "correct-horse", 0, "a")
    with pytest.raises(StateError, match="id 1 in epoch"):
        second.join("x", "correct-horse", 0, "b")


def test_taking_over(controller: Controller, copy: Copy) -> None:
    controller.create_job(spec("x").model_copy(update={"token": "correct-horse"}))
    controller.join("x", "correct-horse", 0, "a")
    second = copy()
    controller.join("x", "correct-horse", 0, "b")
    controller.create_job(spec("z", "h3"))
    newest = max(controller.job(name).epoch.number for name in "xz")
    (report,) = second.push(take_over=True)
    assert report.new_epochs == {"x": second.job("x").epoch.number}
    assert second.job("x").epoch.number > newest
    assert second.job("x").epoch.rejoin is Rejoin.NONE, (
        "the controller does not know what was done in the epochs that the copy lacks"
    )
    with pytest.raises(StateError):
        controller.create_job(spec("y", "h4"))
    with pytest.raises(CannotResumeError):
        second.join("x", "correct-horse", 0, "b", progress=Progress(newest - 1, 0))


def test_a_claim_whose_answer_is_lost_is_asked_again(controller: Controller, switch: FakeSwitch) -> None:
    switch.lose_packet_ins = 1
    controller.create_job(spec("x"))
    assert switch.claimed >= controller.job("x").epoch.number


def test_a_number_that_another_takes_meanwhile_is_left_to_it(controller: Controller, switch: FakeSwitch) -> None:
    with controller.context.client("s1") as client:
        claim = client.claim

        def race(number: int) -> int:
            before = claim(number)
            return number + 40 if number and before < switch.claimed == number < start + 40 else before

        start = controller.context.store.next_epoch
        client.claim = race  # type: ignore[method-assign]
        got = claim_numbers(controller.context, {"s1": client}, ["h1", "h2"])
    assert got.number > start + 40
    assert (got.next_number - got.number, got.others, dict(got.switches)) == (2, True, {"s1": 0})


def test_a_switch_that_could_not_be_asked_has_given_the_number_away(fabric: FakeFabric) -> None:
    """The job gets another epoch when the switch is back."""
    controller = fabric.open()
    controller.push()
    hosts = tuple(controller.topology.hosts)
    controller.create_job(JobSpec(name="wide", members=(hosts[0], hosts[-1]), window=8, algorithm="switch"))
    job = controller.job("wide")
    below = next(name for name in job.switches if name != job.switch)
    with controller.context.store.transaction():
        controller.context.store._db.execute("DELETE FROM reach WHERE switch = ?", (below,))
        controller.context.store._db.execute("UPDATE jobs SET state = 'changing'")
    fabric.switches[below].rows.clear()
    fabric.switches[below].groups.clear()
    controller.push()
    new = controller.job("wide").epoch
    assert new.number > job.epoch.number
    for name in controller.job("wide").switches:
        with controller.context.client(name) as client:
            assert [vars(entry)["epoch"] for entry in client.read_entries(JobEntry)] == [new.number]
            assert client.claim(0) >= new.number


def test_scattered_ids_lie_far_apart() -> None:
    begun = sorted(scattered(number) for number in range(1_795_000_000, 1_795_001_000))
    assert all(first % SLOTS == 0 for first in begun)
    assert min(b - a for a, b in pairwise(begun)) > 1 << 20
