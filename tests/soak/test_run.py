# SPDX-License-Identifier: MIT
"""Short soaks on both switches: the chosen faults really happen, and everything comes out right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import netsum
import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum_testbed.checking import Screen
from netsum_testbed.verify.data import Array

from tests.full.commands import shell_code
from tests.full.conftest import FABRICS
from tests.system import SEARCH_PATH
from tests.system.faults.fabrics import ServesOutside, open_outside
from tests.system.faults.make import GONE, Possible
from tests.system.faults.scenario import Event, EventKind, LinkFaults, Rates, Scenario, Where
from tests.system.soak import messages, run, worker, workers
from tests.system.soak.cases import RoundCall, RoundPlan, make_plan
from tests.system.soak.messages import contribution
from tests.system.soak.run import SoakOptions, SoakTotals, play
from tests.threads import PATIENCE


@pytest.fixture(scope="module", params=FABRICS)
def fabric(request: pytest.FixtureRequest) -> Iterator[ServesOutside]:
    """A fabric of two leaves with six hosts each under two spines, whose controller is a process."""
    kind, switch = request.param.split("-")
    with open_outside(switch, 6, rootless=kind == "rootless") as fabric:
        yield fabric


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rank is late, or hangs, because the machine is busy; the test of a rank that hangs sets times of its own."""
    monkeypatch.setattr(messages, "LATE", PATIENCE)
    monkeypatch.setattr(run, "LEAVING", PATIENCE)
    monkeypatch.setattr(workers, "STOPS", PATIENCE)


def round_of(shape: str, workers: int = 3) -> int:
    """A round whose job waits, on such a shape, with calls that may take 20 seconds."""

    def fits(plan: RoundPlan) -> bool:
        return not plan.degrades and plan.shape == shape and plan.timeout == 20.0 and plan.workers >= workers

    return next(number for number in count() if fits(make_plan(1, number, Possible(), Scenario())))


def soak(
    fabric: ServesOutside, round_: int, scenario: Scenario | None = None, timeout: float | None = None
) -> tuple[SoakTotals, list[str]]:
    """Run one round; return its totals and what it printed."""
    totals, said = SoakTotals(fabric.switch, seed=1), list[str]()
    options = SoakOptions(60.0, 1, round_, scenario or Scenario(), timeout=timeout)
    play(fabric, options, totals, Screen(said.append))
    return totals, said


def soaked(fabric: ServesOutside, scenario: Scenario, round_: int, timeout: float | None = None) -> SoakTotals:
    """One round with these faults, in which all goes well."""
    totals, said = soak(fabric, round_, scenario, timeout)
    assert not totals.failures, "\n".join(said)
    assert totals.calls > 0
    context = fabric.controller.context
    for name in fabric.topology.switches:  # the next round's job may be on any of them
        with context.client(name) as client:
            context.require_program(client)
    return totals


BAD = Rates(loss=0.05, duplicate=0.05, reorder=0.05)


@pytest.mark.full
def test_lost_doubled_reordered_packets_stalls_and_cuts(fabric: ServesOutside) -> None:
    link = LinkFaults(up=BAD, down=Rates(loss=0.1, burst=3, delay_ms=0.5, jitter_ms=0.5))
    events = (Event(after=1, kind=EventKind.STALL, rank=1, seconds=0.1), Event(after=2, kind=EventKind.CUT, rank=0, seconds=0.1))
    totals = soaked(fabric, Scenario(seed=1, links={0: link, 1: link}, events=events), 0)
    assert min(totals.faults[name] for name in ("loss", "duplicate", "reorder", "delay", "stall", "cut")) > 0


@pytest.mark.full
def test_a_killed_worker_is_replaced(fabric: ServesOutside) -> None:
    killed = Event(after=2, kind=EventKind.KILL, rank=1, seconds=0.1)
    totals = soaked(fabric, Scenario(events=(killed,)), round_of("tree"))
    assert totals.faults["kill"] == 1
    assert totals.resyncs >= 2


@pytest.mark.parametrize(
    ("shape", "event"),
    [
        ("star", Event(after=3, kind=EventKind.RESTART_SWITCH, seconds=0.1)),
        ("tree", Event(after=3, kind=EventKind.RESTART_SWITCH, what="leaf2", seconds=0.1)),
        ("stripes", Event(after=3, kind=EventKind.RESTART_SWITCH, what="spine2", seconds=0.1)),
        ("tree", Event(after=3, kind=EventKind.RESTART_CONTROLLER, seconds=0.1)),
        ("stripes", Event(after=3, kind=EventKind.MOVE, what="ring", seconds=0.3)),
        ("stripes", Event(after=3, kind=EventKind.CUT_TRUNK, what="leaf1_spine2", seconds=0.3)),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.kind}-{value.what}",
)
@pytest.mark.full
def test_no_call_notices(fabric: ServesOutside, shape: str, event: Event) -> None:
    totals = soaked(fabric, Scenario(events=(event,)), round_of(shape), timeout=PATIENCE)
    assert totals.faults[event.kind.value] == 1
    assert not totals.errors
    assert (totals.resumes > 0) == (event.kind in (EventKind.RESTART_SWITCH, EventKind.MOVE))


@pytest.mark.full
def test_a_controller_that_is_killed_does_not_hang(fabric: ServesOutside) -> None:
    events = (
        Event(after=3, kind=EventKind.RESTART_CONTROLLER, seconds=0.5),
        Event(after=3, kind=EventKind.HANG_CONTROLLER, seconds=0.1),
    )
    totals = soaked(fabric, Scenario(events=events), round_of("star"))
    assert totals.faults["hang_controller"] == 1


@pytest.mark.full
def test_a_job_goes_to_its_members_and_back_when_its_switch_is_away(fabric: ServesOutside) -> None:
    events = (
        Event(after=3, kind=EventKind.RESTART_SWITCH, what="leaf1", seconds=GONE),
        Event(after=9, kind=EventKind.STALL, rank=1, seconds=14.0),  # so that calls are in progress when the switch is back
    )
    totals = soaked(fabric, Scenario(events=events), round_of("star"))
    assert not totals.errors
    assert totals.resumes >= 2 * 3


@pytest.mark.full
def test_a_rank_is_evicted_and_admitted(fabric: ServesOutside) -> None:
    totals = soaked(fabric, Scenario(events=(Event(after=2, kind=EventKind.EVICT, rank=0, seconds=1.0),)), round_of("stripes"))
    assert totals.faults["evict"] == 1
    assert totals.resyncs >= 2


@pytest.mark.full
def test_packets_are_lost_in_the_kernel_or_by_the_switch(fabric: ServesOutside) -> None:
    lossy = LinkFaults(up=Rates(loss=0.1), down=Rates(loss=0.1))
    where = Where.SWITCH if fabric.switch == "embedded" else Where.KERNEL
    trunks = {"leaf1_spine1": Rates(loss=0.05)}
    totals = soaked(fabric, Scenario(seed=4, where=where, links={0: lossy, 1: lossy}, trunks=trunks), round_of("stripes"))
    assert totals.faults[f"{where}_loss"] > 0


@pytest.mark.full
def test_the_command_ends_in_json_and_interrupted_leaves_nothing(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("events: [{after: 0, kind: kill, rank: 0, seconds: 30}]")
    words = ["--rootless", "--minutes", "5", "--scenario", str(scenario)]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": SEARCH_PATH}
    command = [sys.executable, "-m", "tests.system", "soak", *words]
    soak = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    try:
        assert soak.stdout is not None
        while "round 0" not in soak.stdout.readline():
            assert soak.poll() is None
        soak.send_signal(signal.SIGINT)
        out, _ = soak.communicate(timeout=PATIENCE)
    finally:
        soak.kill()
        soak.wait()
    assert shell_code(soak.returncode) == 130
    totals = json.loads(out.splitlines()[-1])
    assert totals["interrupted"] is True
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("netsum-")]
    for process in Path("/proc").glob("[0-9]*/environ"):
        try:
            assert f"TMPDIR={tmp_path}".encode() not in process.read_bytes(), process
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue


def test_a_wrong_sum_is_found(fabric: ServesOutside, monkeypatch: pytest.MonkeyPatch) -> None:
    def off_by_one(step: RoundCall, rank: int) -> Array:
        array = contribution(step, rank)
        return array if rank or step.cell.kind.collective != "allreduce" else np.asarray(array + 1, array.dtype)

    monkeypatch.setattr(worker, "contribution", off_by_one)
    totals, said = soak(fabric, 0)
    assert totals.wrong > 0
    assert totals.exit_code == 1
    options = "--only 0 --rootless" if fabric.rootless else "--only 0"
    assert any("again with: make soak" in line and f'SEED=1 ARGS="{options}"' in line for line in said)


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is never found to be busy, which would explain what a rank is blamed for."""
    monkeypatch.setattr(run, "crowded", lambda: False)
    monkeypatch.setattr(run, "waited_for_a_processor", lambda: 0.0)


@pytest.mark.usefixtures("idle")
def test_a_rank_that_keeps_up_and_is_named_is_found(fabric: ServesOutside, monkeypatch: pytest.MonkeyPatch) -> None:
    barrier, once = Communicator.barrier, iter((True,))

    def impatient(comm: Communicator, **options: Any) -> None:
        if next(once, False):
            raise netsum.CallTimeoutError("no result", 0, [1])
        barrier(comm, **options)

    monkeypatch.setattr(Communicator, "barrier", impatient)
    totals, _ = soak(fabric, round_of("star", 2))
    assert totals.blamed == 1
    assert totals.exit_code == 1


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("error", [netsum.NotReadyError, netsum.JoinError])
def test_a_rank_that_is_not_let_in_asks_again_if_that_may_help(
    fabric: ServesOutside, monkeypatch: pytest.MonkeyPatch, error: type[netsum.NetsumError]
) -> None:
    join, once = netsum.join, iter((True,))

    def refused(*args: Any, **options: Any) -> Communicator:
        if next(once, False):
            raise error("for a test")
        return join(*args, **options)

    monkeypatch.setattr(netsum, "join", refused)
    totals, said = soak(fabric, round_of("star", 2))
    if error is netsum.NotReadyError:  # which is blamed, for the controller was there all the time
        assert (totals.errors, totals.blamed, totals.wrong) == ({"NotReadyError": 1}, 1, 0), "\n".join(said)
        assert totals.calls > 0
    else:
        assert totals.wrong == 1


@pytest.mark.full
def test_a_rank_that_says_nothing_hangs(fabric: ServesOutside, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(worker.Worker, "_calls", lambda *_: over.wait() and None)
    monkeypatch.setattr(run, "SILENCE", 0.1)
    monkeypatch.setattr(messages, "LATE", 0.1)
    monkeypatch.setattr(workers, "STOPS", 0.1)
    try:
        totals, said = soak(fabric, 0)
    finally:
        over.set()
        for thread in threading.enumerate():
            if thread.name.startswith("rank "):
                thread.join(PATIENCE)
    assert totals.hangs > 0
    assert totals.exit_code == 1
    assert any("over.wait" in line for line in said), "the stacks are not printed"
