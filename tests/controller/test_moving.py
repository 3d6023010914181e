# SPDX-License-Identifier: MIT
"""Jobs whose members combine themselves: created so, or moved there and back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from netsum.descriptor import Descriptor
from netsum_controller.config.job_spec import JobSpec, parse_job
from netsum_controller.controller import Controller
from netsum_controller.errors import (
    BusyError,
    CannotResumeError,
    EvictedError,
    InputError,
    NoSwitchError,
    RejectedError,
    SwitchError,
    UnreachableError,
)
from netsum_controller.jobs import epochs, migration
from netsum_controller.jobs.groups import open_group
from netsum_controller.jobs.reconcile import Report
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.monitoring.switch_monitor import SwitchMonitor
from netsum_controller.state.model import JobState, Rejoin

from tests.controller.fake_switch import FakeSwitch
from tests.controller.killing import Killed
from tests.controller.members import TOKEN, rejoin
from tests.controller.test_files import refusal
from tests.controller.test_watcher import PERIOD
from tests.threads import until

HOSTS = ("h1", "h2", "h4")


def peer(rank: int) -> str:
    return f"10.0.0.{rank + 1}:{4000 + rank}"


def ask(controller: Controller, rank: int, place: Progress | None = None, instance: str = "") -> Descriptor | None:
    """One request of a rank; None if it is told to ask again."""
    try:
        who = instance or f"i{rank}"
        if place is not None:
            return rejoin(controller, "resnet", rank, place, who, peer(rank))
        return controller.join("resnet", TOKEN, rank, who, peer=peer(rank))
    except BusyError:
        return None


def everyone(controller: Controller, places: list[Progress] | None = None) -> list[Descriptor]:
    """The answers to the ranks when all have asked, each as often as necessary."""
    found: dict[int, Descriptor] = {}
    for _ in range(2):
        for rank in range(len(HOSTS)):
            answer = ask(controller, rank, places[rank] if places else None)
            if answer is not None:
                found[rank] = answer
    return [found[rank] for rank in range(len(HOSTS))]


def test_a_job_of_an_algorithm_needs_no_switch(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    installed, last = switch.installed, controller.context.store.last_job_id
    switch.stop()
    ring = spec.model_copy(update={"algorithm": "ring"})
    job = controller.create_job(ring)
    assert (job.created, job.parts, job.job_id, job.combines, job.why_hosts) == (True, (), 0, "ring", "")
    assert job.state is JobState.READY
    assert not controller.create_job(ring).created
    with pytest.raises(RejectedError, match="exists with algorithm ring, not auto"):
        controller.create_job(spec)
    assert ask(controller, 0) is None
    assert ask(controller, 2) is None
    with pytest.raises(BusyError, match="its members combine themselves, and rank 1 must still join"):
        controller.descriptor("resnet", 0)
    one, two, three = everyone(controller)
    assert one.algorithm == two.algorithm == "ring"
    assert one.peers == two.peers == three.peers == tuple(map(peer, range(3)))
    assert one.peer_key == three.peer_key == controller.job("resnet").epoch.peer_key
    assert {descriptor.epoch for descriptor in (one, two, three)} == {job.epoch.number}
    assert (one.job_id, one.resumes, one.host.ip) == (0, None, "10.0.0.1")
    assert controller.delete_job("resnet").name == "resnet"
    switch.start()
    assert controller.reconcile() == [Report("s1")]
    assert (switch.installed, controller.context.store.last_job_id) == (installed, last)


def test_auto_does_without_a_switch_that_has_no_room(controller: Controller, spec: JobSpec) -> None:
    controller.create_job(JobSpec(name="large", members=HOSTS, window=4096))
    words = "needs 16 slots in a row on switch s1; 0 of 8192 are free"
    with pytest.raises(NoSwitchError, match=words):
        controller.create_job(spec.model_copy(update={"algorithm": "switch"}))
    assert controller.context.store.find_job("resnet") is None
    job = controller.create_job(spec)
    assert (job.by_switch, job.algorithm, job.combines) == (False, "auto", "auto")
    assert words in job.why_hosts
    assert everyone(controller)[0].algorithm == "auto"
    assert not controller.create_job(spec).created


@pytest.mark.parametrize("algorithm", ["auto", "switch"])
def test_a_switch_that_does_not_answer_is_an_error(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, algorithm: str
) -> None:
    """No user asked for a job without a switch, and such a job would stay without one when the switch is back."""
    switch.stop()
    with pytest.raises(UnreachableError, match="no P4Runtime server answers") as caught:
        controller.create_job(spec.model_copy(update={"algorithm": algorithm}))
    assert ("--algorithm ring" in str(caught.value)) == (algorithm == "auto")
    assert controller.context.store.jobs() == []
    switch.start()
    controller.push()
    assert controller.create_job(spec).by_switch


def test_groups_of_a_job_without_its_switch_have_none(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    """Its algorithm is "auto" and its switch has gone: like the job, its groups are combined by their members."""
    controller.create_job(spec)
    switch.stop()
    moved = controller.move("resnet", "auto").job
    assert not moved.by_switch
    everyone(controller)
    group = open_group(controller.context, controller.job("resnet"), TOKEN, moved.epoch.number, "0.1", [0, 2])
    assert (group.by_switch, group.workers) == (False, 2)


def test_auto_does_not_hide_what_is_asked_wrong(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    for change, words in (
        ({"members": ("h1", "h9")}, "no host h9"),
        ({"chunks": 16, "members": ("h1", "h3")}, "need an MTU"),
        ({"roots": {"s2": 1}}, "no switch 's2' to be a root"),
    ):
        with pytest.raises(RejectedError, match=words):
            controller.create_job(spec.model_copy(update=change))
    with pytest.raises(RejectedError, match="no host h9"):
        controller.create_job(spec.model_copy(update={"algorithm": "ring", "members": ("h1", "h9")}))
    switch.stop()
    late = parse_job("name: late\nmembers: [h1, h2]\nlate: degrade\n")
    with pytest.raises(SwitchError, match="no P4Runtime server"):
        controller.create_job(late)
    assert controller.context.store.jobs() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("algorithm: star", "must be one of switch, auto, ring, "),
        ("algorithm: [ring]", ""),
        ("algorithm: ring\nlate: degrade", "cannot continue without late members"),
    ],
)
def test_bad_algorithms(text: str, words: str) -> None:
    said = refusal(parse_job, f"name: a\nmembers: [h1, h2]\n{text}\n")
    assert said.startswith(f"file.yaml:3: algorithm: {words}")


def test_there_and_back(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    """The members continue where they were, in either direction."""
    empty = switch.installed
    controller.create_job(spec)
    installed = len(switch.installed)
    old = everyone(controller)
    done = controller.move("resnet", "ring")
    assert (done.changed, done.resumes, done.job.combines, done.job.state) == (True, True, "ring", JobState.READY)
    assert switch.installed == empty  # a member that still sends there is refused, and asks
    again = controller.move("resnet", "ring")
    assert (again.changed, again.new_epoch, again.job) == (False, None, done.job)
    first = old[0].first_block_id
    needs = [Progress(old[0].epoch, first + ahead) for ahead in (5, 3, 4)]
    assert ask(controller, 0, needs[0]) is None
    with pytest.raises(BusyError, match="its members combine themselves from now on, and rank"):
        rejoin(controller, "resnet", 1, needs[1], "i1", peer(1))
    new = everyone(controller, needs)
    assert {(one.resumes, one.first_block_id, one.algorithm) for one in new} == {(old[0].epoch, first + 3, "ring")}
    assert new[0].peer_key
    assert len(new[0].peers) == 3
    here = [Progress(one.epoch, first + 9) for one in new]
    assert ask(controller, 0, here[0]) == replace(new[0], resumes=None)  # nothing has changed
    assert controller.move("resnet", "auto").job.by_switch
    back = everyone(controller, here)
    assert {(one.resumes, one.first_block_id, one.algorithm) for one in back} == {(new[0].epoch, first + 9, "switch")}
    assert len(switch.installed) == installed
    assert controller.reconcile() == [Report("s1")]
    assert controller.move("resnet", "switch").changed  # a name only
    assert controller.job("resnet").epoch.number == back[0].epoch


def test_who_does_not_come_back_can_be_replaced(controller: Controller, spec: JobSpec) -> None:
    controller.create_job(spec)
    old = everyone(controller)
    controller.move("resnet", "ring")
    places = [Progress(old[0].epoch, old[0].first_block_id)] * 3
    assert ask(controller, 0, places[0]) is None
    assert ask(controller, 1, instance="another") is None  # begins anew
    with pytest.raises(CannotResumeError):
        ask(controller, 0, places[0])
    assert [ask(controller, rank) for rank in (0, 2)][1] is not None
    assert controller.job("resnet").epoch.resumes is None


def test_evicting_from_a_job_without_a_switch_begins_anew(controller: Controller, spec: JobSpec) -> None:
    controller.create_job(spec.model_copy(update={"algorithm": "ring"}))
    old = everyone(controller)
    done = controller.evict("resnet", 1)
    assert (done.changed, done.new_epoch) == (True, controller.job("resnet").epoch.number)
    assert not controller.evict("resnet", 1).changed
    with pytest.raises(CannotResumeError):
        ask(controller, 0, Progress(old[0].epoch, old[0].first_block_id))
    with pytest.raises(EvictedError):
        ask(controller, 1)
    assert ask(controller, 0) is None
    found = ask(controller, 2)
    assert found is not None
    assert (found.peers, found.evicted) == ((peer(0), "", peer(2)), (1,))
    assert controller.admit("resnet", 1).changed
    assert len(everyone(controller)) == 3


def test_auto_leaves_a_switch_that_has_died(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    controller.create_job(spec)
    controller.create_job(JobSpec(name="late", members=HOSTS, late="degrade", window=8))  # type: ignore[arg-type]
    assert not controller.move("resnet", "auto").changed
    switch.stop()
    done = controller.move("resnet", "auto")
    assert (done.changed, done.job.combines) == (True, "auto")
    assert "no P4Runtime server answers" in done.why
    with pytest.raises(UnreachableError):
        controller.move("late", "auto")
    assert controller.job("late").by_switch


def test_descriptor_files_need_a_switch(controller: Controller, spec: JobSpec) -> None:
    controller.create_job(spec.model_copy(update={"algorithm": "ring"}))
    with pytest.raises(RejectedError, match="must join over HTTP"):
        controller.membership.join_all("resnet")


def test_what_can_be_told_of_it(controller: Controller, spec: JobSpec) -> None:
    controller.create_job(spec.model_copy(update={"algorithm": "ring"}))
    assert controller.diagnose("resnet").hints == (
        "its members combine (ring): no switch knows whom they wait for",
        *(f"rank {rank} ({host}) has not joined" for rank, host in enumerate(HOSTS)),
    )
    everyone(controller)
    found = controller.diagnose("resnet", 7)
    assert (len(found.blocks), found.blocks[0].state, found.hints) == (
        1,
        "unknown",
        controller.diagnose("resnet").hints,
    )
    counted = controller.stats("resnet")
    assert (counted.outcomes, [one.joined for one in counted.members]) == ({}, [True] * 3)
    controller.move("resnet", "halving_doubling")
    assert controller.diagnose("resnet").hints[0].endswith("when all have joined again (missing: rank 0, 1, 2)")


def test_groups_are_made_as_their_job(controller: Controller, spec: JobSpec) -> None:
    """A job on a switch may have groups for which there is no room."""
    controller.create_job(spec)
    everyone(controller)
    epoch = controller.job("resnet").epoch.number
    name, _ = controller.membership.group("resnet", TOKEN, 0, "i0", epoch, "pair", [0, 1])
    assert controller.job(name).by_switch
    for window in (2048, 1024, 512, 256, 128, 64, 32, 16):  # all that is left
        controller.create_job(JobSpec(name=f"w{window}", members=HOSTS, window=window, algorithm="switch"))
    name, _ = controller.membership.group("resnet", TOKEN, 1, "i1", epoch, "others", [1, 2])
    assert not controller.job(name).by_switch
    assert controller.job(name).combines == "auto"


def test_moves_that_cannot_be(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    with pytest.raises(RejectedError, match="there is no job 'resnet'"):
        controller.move("resnet", "ring")
    controller.create_job(spec.model_copy(update={"algorithm": "ring"}))
    before = controller.job("resnet")
    with pytest.raises(InputError, match="there is no algorithm 'star'"):
        controller.move("resnet", "star")
    controller.create_job(JobSpec(name="large", members=HOSTS, window=4096))
    with pytest.raises(NoSwitchError, match="0 of 8192 are free"):
        controller.move("resnet", "switch")
    assert controller.job("resnet") == before
    moved = controller.move("resnet", "auto")  # the members go on themselves, by what suits the size
    assert (moved.job.by_switch, moved.job.combines) == (False, "auto")
    assert "0 of 8192 are free" in moved.why
    again = controller.move("resnet", "auto")
    assert (again.changed, again.why) == (False, moved.why)
    controller.delete_job("large")
    controller.create_job(JobSpec(name="late", members=HOSTS, late="degrade", window=8))  # type: ignore[arg-type]
    with pytest.raises(RejectedError, match="only a switch can"):
        controller.move("late", "ring")
    installed, job = switch.installed, controller.job("resnet")
    switch.fail_update = lambda _: "no"
    with pytest.raises(SwitchError):
        controller.move("resnet", "switch")
    assert (switch.installed, controller.job("resnet")) == (installed, job)
    switch.fail_update = lambda _: None
    assert controller.move("resnet", "switch").job.by_switch


@pytest.mark.parametrize("to", ["ring", "switch"])
def test_a_controller_that_is_killed_in_a_move(
    open_controller: Callable[[], Controller],
    switch: FakeSwitch,
    spec: JobSpec,
    to: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next controller and the members finish the move, whether the switch was already touched or not."""
    controller = open_controller()
    controller.push()
    empty = switch.installed
    controller.create_job(spec)
    everyone(controller)
    if to == "switch":
        controller.move("resnet", "ring")
        at = controller.job("resnet").epoch
        everyone(controller, [Progress(number, at.first_block_id) for number in [at.resumes or 0] * 3])
    old = controller.job("resnet").epoch

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(*{"ring": (migration, "remove"), "switch": (epochs, "install")}[to], die)
        with pytest.raises(Killed):
            controller.move("resnet", to)
    controller = open_controller()
    job = controller.job("resnet")
    assert (job.state, job.combines) == (JobState.CHANGING, to)
    assert (job.epoch.resumes, job.epoch.rejoin) == (old.number, Rejoin.WAITING)
    controller.reconcile()
    if to == "ring":
        assert switch.installed == empty
    new = everyone(controller, [Progress(old.number, old.first_block_id + rank) for rank in range(3)])
    assert {(one.algorithm, one.first_block_id) for one in new} == {(to, old.first_block_id)}
    assert controller.job("resnet").state is JobState.READY
    assert not controller.reconcile()[0].changed


def test_the_watcher_moves_what_waits_for_a_dead_switch(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, caplog: pytest.LogCaptureFixture
) -> None:
    empty = switch.installed
    controller.create_job(spec)
    stays = controller.create_job(JobSpec(name="stays", members=HOSTS, window=8, algorithm="switch"))
    files = controller.create_job(JobSpec(name="files", members=HOSTS, window=8))
    controller.membership.join_all("files")
    old = everyone(controller)
    with closing(SwitchMonitor(controller.context, PERIOD, dead_after=5 * PERIOD)) as watcher:
        until(lambda: watcher._watches[0]._around is not None)
        switch.stop()
        until(lambda: not controller.job("resnet").by_switch)
        assert controller.job("stays").epoch == stays.epoch
        assert controller.job("files").epoch.number == files.epoch.number
        new = everyone(controller, [Progress(old[0].epoch, old[0].first_block_id)] * 3)
        assert {(one.algorithm, one.resumes) for one in new} == {("auto", old[0].epoch)}
        until(lambda: "job resnet: switch s1 does not answer; it goes on under epoch" in caplog.text)
        switch.start()  # its link was cut: it has forgotten nothing, and still has the job
        for name in ("stays", "files"):
            controller.delete_job(name, force=True)
        until(lambda: switch.installed == empty)
        assert not controller.job("resnet").by_switch


def test_a_switch_that_is_back_by_then_is_not_left(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    """The watcher may have looked before the job was created."""
    controller.create_job(spec)
    controller.context.down.add("s1")
    assert migration.leave_dead_switch(controller.context, "s1") == []
    switch.stop()
    (done,) = migration.leave_dead_switch(controller.context, "s1")
    assert (done.changed, done.why) == (True, "switch s1 does not answer")
    assert migration.leave_dead_switch(controller.context, "s1") == []


def test_a_switch_that_is_back_soon_is_waited_for(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    controller.create_job(spec)
    everyone(controller)
    with closing(SwitchMonitor(controller.context, PERIOD, dead_after=3600.0)):
        switch.stop()
        until(lambda: controller.context.down == {"s1"})
        switch.restart()
        until(lambda: controller.job("resnet").epoch.resumes is not None)
        assert controller.job("resnet").by_switch
