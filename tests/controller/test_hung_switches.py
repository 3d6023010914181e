# SPDX-License-Identifier: MIT
"""A switch that hangs: no caller waits for it behind the state lock but, once, one that needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import pytest
from netsum_controller import Controller, JobSpec
from netsum_controller.context import answers
from netsum_controller.errors import BusyError, SwitchError, UnreachableError
from netsum_controller.jobs.reconcile import reconcile_switch
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.p4runtime.channel import BRIEF, PAUSE, Silence
from netsum_controller.state.model import Job, JobState

from tests.controller.fake_fabric import HOSTS, FakeFabric, controller, job
from tests.controller.members import TOKEN, rejoin
from tests.threads import repeatedly, until

__all__ = ["controller", "job"]  # the fixtures


@contextmanager
def asking(controller: Controller, old: Job) -> Iterator[None]:
    """Each rank of the job asks again and again to go on, as members do, until they all can."""
    place = Progress(old.epoch.number, old.epoch.first_block_id)

    def ask(rank: int) -> None:
        with suppress(BusyError, SwitchError):
            rejoin(controller, "wide", rank, place)

    with ExitStack() as stack:
        for rank in range(4):
            stack.enter_context(repeatedly(partial(ask, rank), 0.01))
        yield


def test_members_elsewhere_are_answered(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    """A leaf has restarted, all ask for the epoch in which they go on, and a spine hangs. Another job's member waits for
    neither."""
    controller.context.connect_timeout, controller.context.patience = 3600.0, 0.2
    near = controller.create_job(JobSpec(name="near", members=HOSTS[:2], window=8, token=TOKEN))
    fabric.switches["leaf2"].restart()
    controller.reconcile()
    fabric.switches["spine1"].answering.clear()

    def joins(turn: int) -> bool:
        try:
            controller.join("near", TOKEN, 0, f"a{turn // 10}")
        except UnreachableError:  # on a busy machine the leaf's answer may be late: a member asks again
            return False
        return True

    with asking(controller, job):
        until(lambda: controller.job("wide").state is JobState.CHANGING)
        for turn in range(20):
            until(partial(joins, turn))
        fabric.switches["spine1"].answering.set()
        until(lambda: controller.job("wide").state is JobState.READY)
    assert controller.job("wide").epoch.resumes == job.epoch.number
    assert near.switches == ("leaf1",)


def test_a_switch_that_hangs_is_waited_for_once(fabric: FakeFabric, controller: Controller) -> None:
    controller.context.patience = 0.2
    controller.context.silence = Silence(lambda: 0.0)
    fabric.switches["leaf1"].answering.clear()
    assert not answers(controller.context, "leaf1")
    with pytest.raises(UnreachableError, match=r"leaf1: no P4Runtime server answers at .*\(it did not answer a moment ago\)"):
        controller.context.client("leaf1").connect()
    fabric.switches["leaf1"].answering.set()
    controller.context.silence = Silence()
    with controller.context.client("leaf1") as client:
        controller.context.require_program(client)


def test_all_switches_that_hang_are_waited_for_at_the_same_time(fabric: FakeFabric, controller: Controller, job: Job) -> None:
    controller.context.connect_timeout = controller.context.patience = 0.5
    controller.context.silence = silence = Silence(lambda: 0.0)
    hung = ("leaf1", "leaf2", "spine1")
    for name in hung:
        fabric.switches[name].answering.clear()
    with pytest.raises(UnreachableError):
        controller.join("wide", TOKEN, 0, "b")
    for switch in fabric.switches.values():
        switch.answering.set()
    assert {name for name in fabric.switches if not silence.patience(name, 1.0)} == set(hung)
    assert controller.job("wide").epoch.number == job.epoch.number


def test_how_long_a_switch_is_waited_for() -> None:
    now = 100.0
    silence = Silence(lambda: now)
    assert silence.patience("s1", 5.0) == 5.0
    silence.begins("s1")
    assert (silence.patience("s1", 5.0), silence.patience("s2", 5.0)) == (0.0, 5.0)
    now += PAUSE
    assert (silence.patience("s1", 5.0), silence.patience("s1", 0.1)) == (BRIEF, 0.1)
    silence.ends("s1")
    assert silence.patience("s1", 5.0) == 5.0


@pytest.mark.parametrize("finds_out", ["a member", "the watcher"])
def test_a_number_that_another_job_took_meanwhile(fabric: FakeFabric, controller: Controller, job: Job, finds_out: str) -> None:
    """While a spine was away, only the leaf that had restarted could be asked for the number. The members go on all the same."""
    fabric.switches["leaf2"].restart()
    fabric.switches["spine1"].stop()
    assert reconcile_switch(controller.context, "leaf2").waiting
    lost = controller.job("wide").epoch
    controller.create_job(JobSpec(name="near", members=HOSTS[:2], window=8, token=TOKEN))
    fabric.switches["spine1"].start()
    controller.context.down.clear()
    if finds_out == "the watcher":
        reconcile_switch(controller.context, "leaf2")
    place = Progress(job.epoch.number, job.epoch.first_block_id + 3)
    for rank in (0, 1, 2, 3) * 2:
        with suppress(BusyError):
            rejoin(controller, "wide", rank, place)
    now = controller.job("wide")
    assert now.epoch.number > lost.number
    assert (now.state, now.epoch.first_block_id) == (JobState.READY, place.needs)
