"""Rounds of memory-check in this process: all is well, and what is broken on purpose is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from netsum_memory.journal import Journal
from netsum_memory.windows import Absent, Windows
from netsum_trials.memory.in_process.stage import SITE, Stage
from netsum_trials.memory.plan import Event, Kind, Plan, make_plan
from netsum_trials.memory.report import MemoryTotals

INSTRUCTIONS = 30


def play(plan: Plan, folder: Path) -> tuple[MemoryTotals, str]:
    """The totals of a round, and what it said."""
    totals, said = MemoryTotals("none", plan.seed), list[str]()
    Stage(plan, folder, totals, said.append).run()
    assert totals.operations >= 8 * plan.instructions or totals.failures
    return totals, "\n".join(said)


@pytest.mark.parametrize("number", range(3))
def test_rounds_go_well(number: int, tmp_path: Path) -> None:
    totals, said = play(make_plan(1, number, SITE, instructions=INSTRUCTIONS), tmp_path)
    assert not totals.failures, said


@pytest.mark.full
@pytest.mark.parametrize("number", range(100, 140))
def test_many_rounds_go_well(number: int, tmp_path: Path) -> None:
    totals, said = play(make_plan(1, number, SITE, instructions=100), tmp_path)
    assert not totals.failures, said


def plan_with(*events: Event) -> Plan:
    """A round of devices with files and regions that are not replicated, in which this happens."""
    plan = make_plan(2, 5, SITE, instructions=INSTRUCTIONS)
    regions = tuple(replace(region, replicas=1) for region in plan.regions)
    return replace(plan, devices=dict.fromkeys(plan.devices, True), regions=regions, events=events)


def test_what_is_done_twice_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Windows, "find", lambda *_: Absent.NEW)
    totals, said = play(plan_with(), tmp_path)
    assert totals.doubled, said


def test_what_is_lost_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_with()
    kills = tuple(Event(60, Kind.KILL_DEVICE, host, seconds=0.1) for host in plan.devices)
    monkeypatch.setattr(Journal, "commit", lambda _: None)  # so nothing is there yet when the process is killed
    totals, said = play(plan_with(*kills), tmp_path)
    assert totals.lost or totals.wrong, said


def test_a_seed_gives_the_same_round_again(tmp_path: Path) -> None:
    plan = replace(make_plan(1, 1, SITE, instructions=8), events=())
    first, second = (play(plan, tmp_path / name)[0] for name in "ab")
    assert first.figures() == second.figures()
