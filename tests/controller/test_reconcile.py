# SPDX-License-Identifier: MIT
"""Desired state against what is read back: after a restart, after a change by hand, and when nothing is wrong."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from netsum_controller import Controller, JobSpec
from netsum_controller.config.topology import parse_topology
from netsum_controller.entries import TABLES
from netsum_controller.errors import RejectedError, StateError, SwitchError
from netsum_controller.jobs.reconcile import Report
from netsum_controller.p4runtime.converge import plan

from tests.controller.conftest import TOPOLOGY
from tests.controller.fake_switch import FakeSwitch


def test_pushing_twice_changes_nothing(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    controller.create_job(spec)
    writes, installed = len(switch.writes), switch.installed
    assert controller.push() == [Report("s1")]
    assert controller.reconcile() == [Report("s1")]
    assert (len(switch.writes), switch.installed) == (writes, installed)


def test_after_a_restart_jobs_come_back_under_a_new_epoch(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    old = [controller.create_job(spec), controller.create_job(JobSpec(name="vgg", members=("h1", "h2")))]
    entries = len(switch.installed)
    switch.restart()
    (report,) = controller.reconcile()
    assert report.program_pushed
    assert set(report.new_epochs) == {"resnet", "vgg"}
    assert len(switch.installed) == entries
    for before in old:
        now = controller.job(before.name)
        assert now.epoch.number > max(job.epoch.number for job in old)
        assert now.epoch.first_block_id >= before.epoch.first_block_id + (1 << 28)  # the controller does not know how far it got
        assert (now.job_id, now.slot_base) == (before.job_id, before.slot_base)
    assert not controller.reconcile()[0].changed


def test_deleted_entries_come_back(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    """The job entry is still there, so the records are too: no new epoch."""
    job = controller.create_job(spec)
    installed = switch.installed
    member = controller.context.program.object_id("tables", "member")
    gone = next(key for key in switch.rows if key[0] == member)
    del switch.rows[gone]
    switch.groups.pop(job.job_id)
    (report,) = controller.reconcile()
    assert (report.inserted, report.modified, report.deleted, report.new_epochs) == (2, 0, 0, {})
    assert switch.installed == installed


def test_what_does_not_belong_is_removed(controller: Controller, switch: FakeSwitch, tmp_path: Path, spec: JobSpec) -> None:
    clean = switch.installed
    with Controller(controller.topology, tmp_path / "lost.db") as other:
        other.create_job(spec)  # its state file is lost
    theirs = switch.installed
    with pytest.raises(StateError, match=r"switch s1 has jobs that .*state.db does not know \(id 1 in epoch \d+\).*take-over"):
        controller.push(force=True)
    assert switch.installed == theirs
    (report,) = controller.push(take_over=True)
    assert report.deleted == 9
    assert switch.installed == clean


def test_force_loads_the_program_again(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    job = controller.create_job(spec)
    entries = len(switch.installed)
    (report,) = controller.push(force=True)
    assert report.program_pushed
    assert controller.job("resnet").epoch.number > job.epoch.number
    assert len(switch.installed) == entries


def test_another_program_is_replaced(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    switch.config.cookie.cookie = 1
    with pytest.raises(SwitchError, match="runs another P4 program"):
        controller.create_job(spec)
    assert controller.push()[0].program_pushed
    assert controller.create_job(spec).created


def test_a_job_whose_host_left_the_topology(controller: Controller, switch: FakeSwitch, spec: JobSpec) -> None:
    controller.create_job(spec)
    installed = switch.installed
    hosts = {name: host for name, host in controller.topology.hosts.items() if name != "h2"}
    controller.topology = controller.topology.model_copy(update={"hosts": hosts})
    with pytest.raises(RejectedError, match="job 'resnet': its member h2 is no longer on switch s1"):
        controller.reconcile()
    assert switch.installed == installed
    controller.delete_job("resnet")
    assert controller.reconcile()[0].deleted == 2  # h2's forwarding, and what its address comes through
    assert controller.reconcile() == [Report("s1")]


def test_several_switches(switch: FakeSwitch, second_switch: FakeSwitch, tmp_path: Path) -> None:
    text = TOPOLOGY.replace("hosts:", '  s2: {device_id: 2, ip: 10.0.1.254, mac: "02:6e:73:00:01:fe"}\nhosts:').replace(
        "switch: s1, port: 4", "switch: s2, port: 1"
    )
    topology = parse_topology(text).filled({"s1": {"p4runtime": switch.address}, "s2": {"p4runtime": second_switch.address}})
    with Controller(topology, tmp_path / "two.db") as controller:
        controller.push()
        first = controller.create_job(JobSpec(name="a", members=("h1", "h2")))
        second = controller.create_job(JobSpec(name="b", members=("h4", "h4")))
        assert (first.switch, second.switch) == ("s1", "s2")
        assert first.slot_base == second.slot_base == 0  # each switch has its own slots
        with pytest.raises(RejectedError, match=r"no path joins s1 \(with h1\) and s2 \(with h4\)"):
            controller.create_job(JobSpec(name="c", members=("h1", "h4"), algorithm="switch"))
        second_switch.restart()
        switch.stop()
        with pytest.raises(SwitchError, match="switch s1: no P4Runtime server"):
            controller.reconcile()
        assert second_switch.installed  # the other was done all the same
        assert controller.job("b").epoch.number > second.epoch.number
        assert controller.job("a").epoch.number == first.epoch.number


def test_every_table_has_its_place_in_the_order() -> None:
    entries = [table(**{field.name: 1 for field in fields(table) if field.init}) for table in TABLES]
    written = [step.update.item.identity[0] for step in plan(entries, [])]
    assert set(written) == {table.TABLE for table in TABLES}
    assert written[-1] == "job", "the one that lets a contribution in comes last"
    assert next(step.update.item.identity[0] for step in plan([], entries)) == "job"
