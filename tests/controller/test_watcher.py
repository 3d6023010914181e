# SPDX-License-Identifier: MIT
"""The watcher: a switch that restarts gets its program and its jobs back, and one that is well is left alone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from netsum_controller import Controller, JobSpec
from netsum_controller.context import ControllerContext
from netsum_controller.errors import SwitchError
from netsum_controller.jobs.reconcile import Report, reconcile_switch
from netsum_controller.monitoring.switch_monitor import SwitchMonitor

from tests.controller.fake_switch import FakeSwitch
from tests.threads import until

PERIOD = 0.02


class Recorder:
    """Reconciles, and keeps the reports; the next ``failures`` calls fail instead."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.failures = 0

    def __call__(self, context: ControllerContext, name: str) -> Report:
        if self.failures:
            self.failures -= 1
            raise SwitchError(f"switch {name}: not today")
        self.reports.append(reconcile_switch(context, name))
        return self.reports[-1]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def watcher(controller: Controller, recorder: Recorder) -> Iterator[SwitchMonitor]:
    with closing(SwitchMonitor(controller.context, PERIOD, recorder)) as one:
        until(lambda: len(recorder.reports) == 1)
        assert recorder.reports.pop() == Report("s1")  # when it is first seen
        yield one


def wait_for_looks(switch: FakeSwitch) -> None:
    """Wait until the watcher has looked at the switch a few more times."""
    seen = switch.cookies_read
    until(lambda: switch.cookies_read > seen + 3)


@pytest.mark.usefixtures("watcher")
def test_a_switch_that_is_well_is_left_alone(controller: Controller, switch: FakeSwitch, recorder: Recorder) -> None:
    controller.create_job(JobSpec(name="resnet", members=("h1", "h2")))
    writes = len(switch.writes)
    wait_for_looks(switch)
    assert (len(switch.writes), recorder.reports) == (writes, [])
    assert not switch._streams  # the watcher is not primary: an operator's shell would be


@pytest.mark.usefixtures("watcher")
def test_a_switch_that_restarts_is_restored(
    controller: Controller, switch: FakeSwitch, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    before = controller.create_job(JobSpec(name="resnet", members=("h1", "h2")))
    installed = len(switch.installed)
    switch.restart()
    until(lambda: len(recorder.reports) == 1)
    now = controller.job("resnet").epoch.number
    assert now > before.epoch.number
    assert len(switch.installed) == installed
    until(lambda: f"switch s1 is restored: job resnet under epoch {now}" in caplog.text)
    switch.restart()  # and again
    until(lambda: len(recorder.reports) == 2)


@pytest.mark.usefixtures("watcher")
def test_it_keeps_trying(
    switch: FakeSwitch, recorder: Recorder, caplog: pytest.LogCaptureFixture, controller: Controller
) -> None:
    recorder.failures = 3
    switch.restart()
    until(lambda: len(recorder.reports) == 1)
    assert caplog.text.count("not today") == 1  # said once
    assert controller.reconcile() == [Report("s1")]


@pytest.mark.usefixtures("watcher")
def test_what_fails_after_the_program_is_loaded_is_tried_again(
    controller: Controller, switch: FakeSwitch, recorder: Recorder
) -> None:
    """The cookie then looks right although the jobs are missing."""
    controller.create_job(JobSpec(name="resnet", members=("h1", "h2")))
    before = switch.installed
    refusals = [2]

    def stalled(_: object) -> str | None:
        refusals[0] -= 1
        return "stalled" if refusals[0] >= 0 else None

    switch.fail_update = stalled
    switch.restart()
    until(lambda: len(recorder.reports) == 1)
    assert refusals[0] < 0
    assert len(switch.installed) == len(before)
    assert controller.reconcile() == [Report("s1")]


@pytest.mark.usefixtures("watcher")
def test_a_switch_that_is_away(switch: FakeSwitch, recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    switch.stop()
    until(lambda: "switch s1 does not answer" in caplog.text)
    assert recorder.reports == []
    switch.start()  # its link was cut: it has forgotten nothing
    caplog.set_level(logging.INFO)
    until(lambda: "switch s1 is as it should be again" in caplog.text)
    assert recorder.reports == []
    assert caplog.text.count("does not answer") == 1


@pytest.mark.usefixtures("watcher")
def test_another_program_is_left_alone(switch: FakeSwitch, recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    switch.config.cookie.cookie = 1
    until(lambda: "runs another P4 program" in caplog.text)
    wait_for_looks(switch)
    assert recorder.reports == []
    assert switch.config.cookie.cookie == 1


def test_what_a_killed_command_left_is_put_right_first(
    controller: Controller, switch: FakeSwitch, recorder: Recorder, spec: JobSpec
) -> None:
    """The switch has the program, and its cookie does not show that jobs are missing."""
    job = controller.create_job(spec)
    switch.rows.clear()
    with closing(SwitchMonitor(controller.context, PERIOD, recorder)):
        until(lambda: len(recorder.reports) == 1)
    assert controller.job("resnet").epoch.number > job.epoch.number


def test_pauses_grow(controller: Controller, recorder: Recorder) -> None:
    """A switch that cannot be reconciled is asked, but not made to arbitrate, every second."""
    recorder.failures = 1_000_000
    with closing(SwitchMonitor(controller.context, PERIOD, recorder)) as watcher:
        until(lambda: recorder.failures <= 1_000_000 - 3)
        (watch,) = watcher._watches
        assert watch._failures >= 3


def watchers() -> set[threading.Thread]:
    """The threads that watch switches, of all controllers."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("netsum-watch")}


def test_serving_watches_until_it_is_closed(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    before = watchers()
    job = controller.create_job(spec)
    controller.serve(watch=PERIOD)
    switch.restart()
    until(lambda: controller.job("resnet").epoch.number > job.epoch.number)
    assert watchers() > before
    controller.close()
    assert watchers() <= before


def test_serving_without_watching(controller: Controller, switch: FakeSwitch) -> None:
    before = watchers()
    controller.serve(watch=None)
    switch.restart()
    assert watchers() <= before
    assert switch.config is None
