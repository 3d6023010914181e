# SPDX-License-Identifier: MIT
"""The scanner: aging jobs are scanned while the controller serves, by a client that yields to every other."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from netsum.frames import PREFIX_BYTES
from netsum.wire import parse_header
from netsum.wire.schema import HEADER_BYTES
from netsum_controller import Controller, JobSpec
from netsum_controller.config.topology import Switch
from netsum_controller.monitoring import scanner as module
from netsum_controller.monitoring.scanner import AgingScanner
from netsum_controller.p4runtime.stream import ScanStream
from netsum_controller.state.model import Late

from tests.controller.fake_switch import FakeSwitch
from tests.controller.members import TOKEN, join_all
from tests.threads import until


@pytest.fixture
def spec() -> JobSpec:
    """A job of three that degrades."""
    members = ("h1", "h2", "h4")
    return JobSpec(name="resnet", members=members, window=8, token=TOKEN, late=Late.DEGRADE, block_exp=4.0)


@pytest.fixture
def scanner(controller: Controller) -> Iterator[AgingScanner]:
    one = AgingScanner(controller.context)
    yield one
    one.close()


@pytest.fixture
def scanned(scanner: AgingScanner, controller: Controller, switch: FakeSwitch, spec: JobSpec) -> AgingScanner:
    """It has scanned the job, which all have joined."""
    controller.create_job(spec)
    join_all(controller)
    next_scan(switch)
    return scanner


def scans_of(controller: Controller) -> int:
    return controller.context.counters.of("scans").get(("resnet",), 0)


def next_scan(switch: FakeSwitch) -> bytes:
    """The frame of the next scan."""
    seen = len(switch.scans)
    until(lambda: len(switch.scans) > seen)
    return switch.scans[-1]


@pytest.mark.usefixtures("scanner")
def test_a_job_is_scanned_when_everyone_has_joined(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    job = controller.create_job(spec)
    waiting = controller.create_job(JobSpec(name="vgg", members=("h1",), token=TOKEN))
    for rank in (0, 1):
        controller.join("resnet", TOKEN, rank, "a")
    controller.join("vgg", TOKEN, 0, "a")
    assert scans_of(controller) == 0
    controller.join("resnet", TOKEN, 2, "a")
    frame = next_scan(switch)
    own = controller.topology.switches["s1"]
    assert frame[:6].hex(":") == own.mac
    assert len(frame) == PREFIX_BYTES + HEADER_BYTES
    header = parse_header(frame[42:])
    assert (header.job_id, header.worker_cnt, header.data_cnt, header.lane_cnt) == (job.job_id, 1, 0, 0)
    assert header.job_id != waiting.job_id
    switch.scans_close = 3
    until(lambda: controller.context.counters.of("scanned_blocks").get(("resnet",)) == 3)
    assert set(controller.context.counters.of("scans")) == {("resnet",)}  # no member waits for long in the other


@pytest.mark.usefixtures("scanned")
def test_a_new_epoch_is_not_scanned_before_everyone_has_joined(controller: Controller, switch: FakeSwitch) -> None:
    controller.join("resnet", TOKEN, 1, "b")
    until(lambda: not switch._streams)  # nothing to scan, so it has left
    before = len(switch.scans)
    for rank in (0, 2):
        assert len(switch.scans) == before
        controller.join("resnet", TOKEN, rank, "b")
    next_scan(switch)


@pytest.mark.usefixtures("scanned")
def test_commands_take_over_and_give_back(controller: Controller, switch: FakeSwitch) -> None:
    for number in range(3):
        next_scan(switch)
        controller.create_job(JobSpec(name=f"other{number}", members=("h1", "h2")))
    with controller.context.client("s1") as client:
        until(lambda: len(switch._streams) == 2)
        held = len(switch.scans)
        assert client.query_records([0])  # the scanner's PacketIns are not taken for answers
        assert len(switch.scans) == held
    next_scan(switch)


@pytest.mark.usefixtures("scanned")
def test_a_client_that_stays_is_complained_about(
    controller: Controller,
    switch: FakeSwitch,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "ALARM", 0.0)
    with caplog.at_level(logging.WARNING, "netsum_controller.monitoring.scanner"), controller.context.client("s1"):
        until(lambda: "another P4Runtime client is primary on switch s1: blocks of resnet" in caplog.text)
    next_scan(switch)
    assert caplog.text.count("another P4Runtime client") == 1


@pytest.mark.usefixtures("scanned")
def test_scans_that_are_not_answered_are_given_up(
    controller: Controller, switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    switch.lose_packet_ins = 2
    until(lambda: controller.context.counters.of("unanswered_scans").get(("resnet",), 0) >= 2)
    next_scan(switch)


@pytest.mark.usefixtures("scanner")
def test_a_stream_that_is_never_answered_is_opened_again(
    controller: Controller, switch: FakeSwitch, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch that was restarting when the stream came has lost it, and its connection stays open."""
    opened: list[ScanStream] = []

    class FirstUnanswered(ScanStream):
        def __init__(self, at: Switch, tell: Callable[[ScanStream, Any], None]) -> None:
            opened.append(self)
            super().__init__(at, tell if len(opened) > 1 else lambda *_: None)

    monkeypatch.setattr(module, "SILENCE", 0.2)
    monkeypatch.setattr(module, "ScanStream", FirstUnanswered)
    controller.create_job(spec)
    join_all(controller)
    next_scan(switch)
    assert len(opened) == 2


@pytest.mark.usefixtures("scanned")
def test_a_switch_that_restarts_is_scanned_again(controller: Controller, switch: FakeSwitch) -> None:
    switch.restart()
    controller.reconcile()
    join_all(controller, "b")
    next_scan(switch)


def test_serving_scans(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    controller.create_job(spec)
    join_all(controller)
    assert scans_of(controller) == 0
    before = set(threading.enumerate())
    controller.serve()
    until(lambda: len(switch.scans) > 2)
    assert scans_of(controller) > 2
    controller.close()
    until(lambda: not switch._streams)
    left = set(threading.enumerate()) - before
    assert not any(thread.name.startswith("netsum-scan") for thread in left)


def test_another_process_may_create_the_job(open_controller: Callable[[], Controller], switch: FakeSwitch, spec: JobSpec) -> None:
    serving, other = open_controller(), open_controller()
    serving.push()
    serving.serve()
    other.create_job(spec)
    join_all(other)
    until(lambda: len(switch.scans) > 2)
    other.delete_job("resnet")
    until(lambda: not switch._streams)
