# SPDX-License-Identifier: MIT
"""Priorities between jobs: what their entries hold, and how others' entries change in place when a job comes or goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from netsum_controller.cli.top import Watch
from netsum_controller.config.job_spec import JobSpec, parse_job
from netsum_controller.controller import Controller
from netsum_controller.entries import JobEntry
from netsum_controller.errors import InputError, RejectedError, SwitchError
from netsum_controller.state.model import JobState
from netsum_p4runtime import p4runtime_pb2 as p4

from tests.controller.conftest import Run
from tests.controller.fake_switch import FakeSwitch
from tests.controller.items import items_on
from tests.controller.test_top import shown

TOKEN = "a-token-of-ours"


def spec(name: str, priority: int = 0) -> JobSpec:
    return JobSpec(name=name, members=("h1", "h2"), window=8, token=TOKEN, priority=priority)


def entries(controller: Controller) -> dict[str, JobEntry]:
    """Job entries on the switch, by the job's name."""
    names = {job.job_id: job.name for job in controller.context.store.jobs()}
    return {names[entry.job_id]: entry for entry in items_on(controller, JobEntry)}


def priorities(controller: Controller) -> dict[str, int]:
    return {name: entry.priority for name, entry in entries(controller).items()}


def test_jobs_of_one_class_take_no_part(controller: Controller) -> None:
    for name in ("a", "b"):
        controller.create_job(spec(name, 3))
    assert priorities(controller) == {"a": 0, "b": 0}


def test_entries_change_in_place_as_jobs_come_and_go(controller: Controller, switch: FakeSwitch) -> None:
    before = {name: controller.create_job(spec(name)) for name in ("a", "b")}
    epochs = {name: job.epoch for name, job in before.items()}
    del switch.writes[:]
    controller.create_job(spec("urgent", 7))
    assert priorities(controller) == {"a": 1, "b": 1, "urgent": 8}
    assert [update.type for update in switch.writes].count(p4.Update.MODIFY) == 2, "one a job, and nothing else of it"
    assert {name: controller.job(name).epoch for name in before} == epochs
    del switch.writes[:]
    assert not controller.create_job(spec("urgent", 7)).created
    assert switch.writes == []

    controller.create_job(spec("middle", 3))
    assert priorities(controller) == {"a": 1, "b": 1, "middle": 4, "urgent": 8}
    controller.delete_job("urgent")
    assert priorities(controller) == {"a": 1, "b": 1, "middle": 4}
    controller.delete_job("middle")
    assert priorities(controller) == {"a": 0, "b": 0}
    assert {name: controller.job(name).epoch for name in before} == epochs


def test_a_job_keeps_its_priority_in_a_new_epoch(controller: Controller) -> None:
    controller.create_job(spec("a"))
    controller.create_job(spec("b", 2))
    for instance in ("one", "two"):
        for rank in range(2):
            controller.join("a", TOKEN, rank, f"{instance}{rank}")
    assert entries(controller)["a"].epoch == controller.job("a").epoch.number
    assert priorities(controller) == {"a": 1, "b": 3}


def test_a_job_that_moves_to_its_members_and_back(controller: Controller) -> None:
    controller.create_job(spec("a"))
    controller.create_job(spec("b", 2))
    controller.move("b", "ring")
    assert priorities(controller) == {"a": 0}
    controller.move("b", "switch")
    assert priorities(controller) == {"a": 1, "b": 3}


def test_groups_are_of_their_jobs_class(controller: Controller) -> None:
    controller.create_job(spec("a"))
    controller.create_job(spec("b", 2))
    epoch = controller.join("b", TOKEN, 0, "one").epoch
    group = controller.membership.group("b", TOKEN, 0, "one", epoch, "1/0", [0, 1])[0]
    assert controller.job(group).priority == 2
    assert priorities(controller) == {"a": 1, "b": 3, group: 3}


@pytest.mark.parametrize(("kind", "after"), [(p4.Update.INSERT, 2), (p4.Update.MODIFY, 0)], ids=["its own", "others'"])
def test_a_job_of_which_an_entry_fails_changes_nothing(controller: Controller, switch: FakeSwitch, kind: int, after: int) -> None:
    """One of its own, or that of another job whose priority it would change."""
    controller.create_job(spec("a"))
    installed, seen = switch.installed, 0

    def fail(update: Any) -> str | None:
        nonlocal seen
        seen += update.type == kind
        return "no" if update.type == kind and seen > after else None

    switch.fail_update = fail
    with pytest.raises(SwitchError):
        controller.create_job(spec("urgent", 7))
    assert switch.installed == installed
    assert [job.name for job in controller.context.store.jobs()] == ["a"]


def test_a_deleted_job_is_gone_whatever_becomes_of_the_others(controller: Controller, switch: FakeSwitch) -> None:
    """Reconcile later does what could not be done."""
    controller.create_job(spec("a"))
    controller.create_job(spec("urgent", 7))
    switch.fail_update = lambda update: "no" if update.type == p4.Update.MODIFY else None
    controller.delete_job("urgent")
    assert priorities(controller) == {"a": 1}
    switch.fail_update = lambda _: None
    (report,) = controller.reconcile()
    assert (report.modified, report.new_epochs) == (1, {})
    assert priorities(controller) == {"a": 0}
    assert not controller.reconcile()[0].changed


def test_reconcile_knows_priorities(controller: Controller, switch: FakeSwitch) -> None:
    controller.create_job(spec("a"))
    controller.create_job(spec("b", 2))
    assert not controller.reconcile()[0].changed
    switch.restart()
    (report,) = controller.reconcile()
    assert report.new_epochs.keys() == {"a", "b"}
    assert priorities(controller) == {"a": 1, "b": 3}


def test_a_job_that_is_half_deleted_does_not_count(controller: Controller) -> None:
    controller.create_job(spec("a"))
    controller.create_job(spec("b", 2))
    with controller.context.store.transaction():
        controller.context.store.set_state("b", JobState.DELETING)
    controller.create_job(spec("c"))
    assert priorities(controller) == {"a": 0, "c": 0}


def test_another_priority_contradicts(controller: Controller, open_controller: Callable[[], Controller]) -> None:
    controller.create_job(spec("a", 2))
    assert open_controller().job("a").priority == 2
    with pytest.raises(RejectedError, match=r"exists with priority 2, not 0: delete it first"):
        controller.create_job(spec("a"))


def test_job_files() -> None:
    text = "name: a\nmembers: [h1]\n"
    assert parse_job(text).priority == 0
    assert parse_job(text + "priority: 7\n").priority == 7
    with pytest.raises(InputError, match="priority: must be 7 or less"):
        parse_job(text + "priority: 8\n")


def test_top_shows_it(controller: Controller) -> None:
    controller.create_job(spec("a"))
    controller.create_job(spec("b", 2))
    snapshot = Watch(controller, None).snapshot()
    assert [job["priority"] for job in snapshot.to_dict()["jobs"]] == [0, 2]
    lines = shown(snapshot, 120).splitlines()
    assert ["priority 2" in line for line in lines if " on s1, " in line] == [False, True]


def test_on_the_command_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a\nmembers: [h1, h2]\nwindow: 8\n")
    run("switch", "push")
    assert run("job", "create", "--priority", "3", "a.yaml").code == 0
    assert json.loads(run("job", "show", "a", "--json").out)["priority"] == 3
    assert [line.split() for line in run("job", "show", "a").out.splitlines()].count(["priority", "3"]) == 1
    assert "CLASS" in run("job", "list").out
    refused = run("job", "create", "--priority", "8", "a.yaml")
    assert (refused.code, refused.printed.count("\n")) == (2, 1)
    assert "option --priority: priority: must be 7 or less (it is 8)" in refused.err
