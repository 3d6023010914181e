# SPDX-License-Identifier: MIT
"""Rounds of memory-check in this process: all is well, and what is broken on purpose is found."""

from __future__ import annotations

import itertools
from collections.abc import MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from netsum.memory.client import Keys
from netsum.wire.memory import Instruction, MemoryHeader, MemoryStatus
from netsum_controller.memory.failover import Standings, advance
from netsum_controller.memory.model import Region, Shard
from netsum_memory import parameters
from netsum_memory.dedup import Absent, DedupWindows
from netsum_memory.journal import Journal
from netsum_memory.message import reply
from netsum_memory.optimizer_rules import combined
from netsum_memory.table_disk import Disk, Rows
from numpy.typing import NDArray

from tests.system.memory.in_process import controller, devices, network
from tests.system.memory.in_process.stage import SITE, Stage
from tests.system.memory.plan import Event, MemoryEventKind, MemoryPlan, make_plan
from tests.system.memory.round import MemoryTotals

INSTRUCTIONS = 30


def play(plan: MemoryPlan, folder: Path) -> tuple[MemoryTotals, str]:
    """The totals of a round, and what it said."""
    totals, said = MemoryTotals("none", plan.seed), list[str]()
    Stage(plan, folder, totals, said.append).run()
    assert totals.operations >= 8 * plan.instructions or totals.failures
    return totals, "\n".join(said)


@pytest.mark.parametrize(
    ("number", "instructions"),
    [
        *((number, INSTRUCTIONS) for number in range(3)),
        *(pytest.param(number, 100, marks=pytest.mark.full) for number in range(100, 140)),
    ],
)
def test_rounds_go_well(number: int, instructions: int, tmp_path: Path) -> None:
    totals, said = play(make_plan(1, number, SITE, instructions=instructions), tmp_path)
    assert not totals.failures, said


@pytest.mark.parametrize("kind", ["array", "parameters", "table"])
def test_every_kind_of_region_goes_well(kind: str, tmp_path: Path) -> None:
    plan = plan_with(kind=kind)
    totals, said = play(replace(plan, events=kills(plan)), tmp_path)
    assert not totals.failures, said
    assert totals.faults["kill_device"] == len(plan.devices)
    request = {"array": "sum_forward", "parameters": "optimize", "table": "push"}
    assert totals.instructions[request[kind]] > 20


def test_memory_that_is_lost_says_so_and_works_when_it_is_made_anew(tmp_path: Path) -> None:
    plan = plan_that_loses()
    totals, said = play(plan, tmp_path)
    assert not totals.failures, said
    assert totals.faults["lose"] == 1
    lost = sum(region.fragile * len(plan.places_in(region.name)) for region in plan.regions)
    assert totals.histories == len(plan.places) + lost > len(plan.places)


def plan_with(kind: str = "array") -> MemoryPlan:
    """A round of devices with files and regions of that kind that are not replicated, in which nothing happens to them."""
    rounds = (make_plan(2, number, SITE, instructions=INSTRUCTIONS) for number in itertools.count())
    plan = next(plan for plan in rounds if any(region.kind == kind for region in plan.regions))
    regions = tuple(replace(region, replicas=1, fragile=False) for region in plan.regions if region.kind == kind)
    names = {region.name for region in regions}
    places = tuple(place for place in plan.places if place.region in names)
    return replace(plan, devices=dict.fromkeys(plan.devices, True), regions=regions, places=places, events=())


def with_options(plan: MemoryPlan, **options: Any) -> MemoryPlan:
    """The same with these options, for which there must be one kind of regions."""
    options = {**plan.regions[0].options, **options}
    return replace(plan, regions=tuple(replace(region, options=options) for region in plan.regions))


def kills(plan: MemoryPlan, after: int = 60) -> tuple[Event, ...]:
    """Every device is killed once."""
    return tuple(Event(after, MemoryEventKind.KILL_DEVICE, host, seconds=0.1) for host in plan.devices)


def plan_that_loses() -> MemoryPlan:
    """A round in which a region is lost and made anew."""
    rounds = (make_plan(2, number, SITE, instructions=INSTRUCTIONS) for number in itertools.count())
    plan = next(plan for plan in rounds if any(region.fragile for region in plan.regions))
    return replace(plan, events=tuple(event for event in plan.events if event.kind is MemoryEventKind.LOSE))


def test_what_is_done_twice_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DedupWindows, "find", lambda *_: Absent.NEW)
    totals, said = play(plan_with(), tmp_path)
    assert totals.doubled, said


def test_what_is_lost_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_with()
    monkeypatch.setattr(Journal, "commit", lambda _: None)  # so nothing is there yet when the process is killed
    totals, said = play(replace(plan, events=kills(plan)), tmp_path)
    assert totals.lost or totals.wrong, said


def test_a_gradient_that_counts_twice_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "combined", lambda gradients, mean: combined([gradients[0], *gradients], mean))
    totals, said = play(plan_with(kind="parameters"), tmp_path)
    assert totals.doubled or totals.wrong, said


def test_a_gradient_that_is_left_out_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = with_options(plan_with(kind="parameters"), optimizer="sgd", mean=False, workers=4, quorum=0)
    plan = replace(plan, places=tuple(replace(place, workers=4 * bool(place.workers)) for place in plan.places))
    monkeypatch.setattr(parameters, "combined", lambda gradients, mean: combined(gradients[:1], mean))
    totals, said = play(plan, tmp_path)
    assert totals.lost or totals.wrong, said


def test_rows_that_do_not_outlive_their_eviction_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Disk, "write", lambda *_: None)
    totals, said = play(with_options(plan_with(kind="table"), ram_rows=1), tmp_path)
    assert totals.lost or totals.wrong, said


def test_a_push_that_is_replayed_over_rows_that_have_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is done again when a device restarts. Rows on disk may be further than the checkpoint, which their positions
    tell."""
    monkeypatch.setattr(devices, "JOURNAL", 4000)
    plan = with_options(plan_with(kind="table"), ram_rows=1)
    plan = replace(plan, events=kills(plan, after=90))
    read, write = Disk.read, Disk.write

    def without_positions(disk: Disk, keys: Keys) -> tuple[NDArray[np.bool_], Rows]:
        there, rows = read(disk, keys)
        return there, rows._replace(positions=np.zeros_like(rows.positions))

    def at_once(disk: Disk, rows: Rows) -> None:
        write(disk, rows)
        disk.sync()

    monkeypatch.setattr(Disk, "write", at_once)
    totals, said = play(plan, tmp_path / "right")
    assert not totals.failures, said
    monkeypatch.setattr(Disk, "read", without_positions)
    totals, said = play(plan, tmp_path / "wrong")
    assert totals.doubled or totals.wrong, said


def test_zeros_in_the_place_of_lost_memory_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(header: MemoryHeader, status: MemoryStatus) -> bytes:
        if status != MemoryStatus.LOST:
            return reply(header, status)
        return reply(header, payload=bytes(header.length * (header.instruction == Instruction.READ)))

    monkeypatch.setattr(network, "reply", lie)
    totals, said = play(plan_that_loses(), tmp_path)
    assert totals.wrong, said


def test_memory_that_does_not_say_that_it_is_lost_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(region: Region, shard: Shard, standings: Standings, loads: MutableMapping[str, int]) -> Shard:
        after = advance(region, shard, standings, loads)
        return shard if after.lost else after

    monkeypatch.setattr(controller, "advance", silent)
    totals, said = play(plan_that_loses(), tmp_path)
    assert totals.hangs, said


def test_a_seed_gives_the_same_round_again(tmp_path: Path) -> None:
    plan = replace(make_plan(1, 1, SITE, instructions=8), events=())
    first, second = (play(plan, tmp_path / name)[0] for name in "ab")
    assert first.figures() == second.figures()
