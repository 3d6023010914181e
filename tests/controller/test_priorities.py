"""Priorities between jobs: what their entries have, and that others' change in place when a job comes or goes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from netsum_controller import cli
from netsum_controller.cli.top import Watch, render
from netsum_controller.config.job_spec import JobSpec, parse_job
from netsum_controller.config.topology import Topology
from netsum_controller.controller import Controller
from netsum_controller.errors import InputError, Refused, SwitchError
from netsum_controller.stages import JobEntry
from netsum_controller.state.model import JobState
from p4.v1 import p4runtime_pb2 as p4
from rich.console import Console

from tests.controller.fake_switch import FakeSwitch

TOKEN = "a-token-of-ours"


def spec(name: str, priority: int = 0) -> JobSpec:
    return JobSpec(name=name, members=("h1", "h2"), window=8, token=TOKEN, priority=priority)


def entries(controller: Controller) -> dict[str, JobEntry]:
    """Job entries on the switch, by the job's name."""
    names = {job.job_id: job.name for job in controller.site.store.jobs()}
    with controller.site.client("s1") as client:
        return {names[item.job_id]: item for item in client.read_items() if isinstance(item, JobEntry)}


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


def test_what_cannot_be_installed_leaves_the_others_as_they_were(controller: Controller, switch: FakeSwitch) -> None:
    controller.create_job(spec("a"))
    installed = switch.installed
    members = 0

    def second_insert(update: Any) -> str | None:
        nonlocal members
        members += update.type == p4.Update.INSERT
        return "no" if update.type == p4.Update.INSERT and members > 2 else None

    switch.fail_update = second_insert
    with pytest.raises(SwitchError):
        controller.create_job(spec("urgent", 7))
    assert switch.installed == installed
    assert [job.name for job in controller.site.store.jobs()] == ["a"]


def test_a_switch_that_does_not_take_the_others_change_gets_no_job(controller: Controller, switch: FakeSwitch) -> None:
    controller.create_job(spec("a"))
    installed = switch.installed
    switch.fail_update = lambda update: "no" if update.type == p4.Update.MODIFY else None
    with pytest.raises(SwitchError):
        controller.create_job(spec("urgent", 7))
    assert switch.installed == installed
    assert [job.name for job in controller.site.store.jobs()] == ["a"]


def test_a_deleted_job_is_gone_whatever_becomes_of_the_others(controller: Controller, switch: FakeSwitch) -> None:
    """And reconcile puts right what could not be done then."""
    controller.create_job(spec("a"))
    controller.create_job(spec("urgent", 7))
    switch.fail_update = lambda update: "no" if update.type == p4.Update.MODIFY else None
    controller.delete_job("urgent")
    assert priorities(controller) == {"a": 1}
    switch.fail_update = lambda _: None
    (report,) = controller.reconcile()
    assert (report.modified, report.new_epochs) == (1, {})
    assert priorities(controller) == {"a": 0}
    (report,) = controller.reconcile()
    assert not report.changed


def test_reconcile_knows_priorities(controller: Controller, switch: FakeSwitch) -> None:
    controller.create_job(spec("a"))
    controller.create_job(spec("b", 2))
    (report,) = controller.reconcile()
    assert not report.changed
    switch.restart()
    (report,) = controller.reconcile()
    assert report.new_epochs.keys() == {"a", "b"}
    assert priorities(controller) == {"a": 1, "b": 3}


def test_a_job_that_is_half_deleted_does_not_count(controller: Controller) -> None:
    controller.create_job(spec("a"))
    controller.create_job(spec("b", 2))
    with controller.site.store.transaction():
        controller.site.store.set_state("b", JobState.DELETING)
    controller.create_job(spec("c"))
    assert priorities(controller) == {"a": 0, "c": 0}


def test_another_priority_contradicts(controller: Controller, open_controller: Callable[[], Controller]) -> None:
    controller.create_job(spec("a", 2))
    assert open_controller().job("a").priority == 2
    with pytest.raises(Refused, match=r"exists with priority 2, not 0: delete it first"):
        controller.create_job(spec("a"))


def test_job_files() -> None:
    text = "name: a\nmembers: [h1]\n"
    assert parse_job(text).priority == 0
    assert parse_job(text + "priority: 7\n").priority == 7
    with pytest.raises(InputError, match=r"priority.*less than or equal to 7"):
        parse_job(text + "priority: 8\n")


def test_top_shows_it(controller: Controller) -> None:
    controller.create_job(spec("a"))
    controller.create_job(spec("b", 2))
    snapshot = Watch(controller, None).snapshot()
    assert [job["priority"] for job in snapshot.to_dict()["jobs"]] == [0, 2]
    screen = Console(width=120, record=True, file=io.StringIO())
    screen.print(render(snapshot, 120))
    lines = screen.export_text().splitlines()
    assert ["priority 2" in line for line in lines if " on s1, " in line] == [False, True]


def test_on_the_command_line(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "star.yaml").write_text(topology.to_yaml())
    (tmp_path / "a.yaml").write_text("name: a\nmembers: [h1, h2]\nwindow: 8\n")

    def run(*arguments: str) -> tuple[int | str | None, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main(["--topology", "star.yaml", "--state", "state.db", *arguments])
        printed = capfd.readouterr()
        return caught.value.code, printed.out + printed.err

    run("switch", "push")
    assert run("job", "create", "--priority", "3", "a.yaml")[0] == 0
    assert json.loads(run("job", "show", "a", "--json")[1])["priority"] == 3
    assert [line.split() for line in run("job", "show", "a")[1].splitlines()].count(["priority", "3"]) == 1
    assert "CLASS" in run("job", "list")[1]
    code, printed = run("job", "create", "--priority", "8", "a.yaml")
    assert (code, printed.count("\n")) == (2, 1)
    assert "priority: Input should be less than or equal to 7" in printed
