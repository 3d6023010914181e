# SPDX-License-Identifier: MIT
"""Jobs over trees as they are watched: on the command line, in `top` and the metrics, and by the scanner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from netsum.wire import parse_header
from netsum.wire.schema import BlockState
from netsum_controller import Controller, JobSpec, Topology
from netsum_controller.cli.top import Watch
from netsum_controller.monitoring.collector import JobCollector, Presence, whole
from netsum_controller.monitoring.metrics import SwitchCollector
from netsum_controller.monitoring.scanner import AgingScanner
from netsum_controller.state.model import Late

from tests.controller.conftest import Run
from tests.controller.fake_fabric import HOSTS, FakeFabric, controller
from tests.controller.members import TOKEN, join_all
from tests.controller.watched import put_record
from tests.threads import until

__all__ = ["controller"]  # the fixture


def create(controller: Controller, **options: Any) -> None:
    controller.create_job(JobSpec(name="wide", members=HOSTS, window=8, token=TOKEN, algorithm="switch", **options))
    join_all(controller, name="wide")


@pytest.fixture
def busy(fabric: FakeFabric, controller: Controller) -> FakeFabric:
    """Blocks 0 to 2 are done; block 3 has rank 0 and waits for rank 1, both on leaf1."""
    create(controller)
    job = controller.job("wide")
    leaf1, leaf2 = fabric.switches["leaf1"], fabric.switches["leaf2"]
    for ahead in range(3):
        put_record(leaf1, job, ahead, 0b0011, BlockState.DONE, on="leaf1")
        put_record(leaf2, job, ahead, 0b0011, BlockState.DONE, on="leaf2")
    put_record(leaf1, job, 3, 0b0001, on="leaf1")
    put_record(leaf2, job, 3, 0b0011, BlockState.SENT, on="leaf2")
    leaf1.age = 2000
    leaf1.let_in({0: 4, 1: 3})
    leaf2.let_in({0: 5, 1: 6})
    fabric.switches["spine1"].let_in({0: 2, 1: 2})  # the leaves', which are no member's
    return fabric


def test_a_job_is_one_whatever_switches_it_is_on(busy: FakeFabric, controller: Controller) -> None:
    observer = JobCollector(controller.context)
    (job,) = whole(view for name in busy.switches for view in observer.look(name).jobs)
    assert (job.job.name, job.blocks, job.open_blocks) == ("wide", 4, 1)
    assert [(one.rank, one.host) for one in job.members] == [(0, "h1"), (1, "h2"), (2, "h3"), (3, "h4")]
    assert [one.packets for one in job.members] == [4, 3, 5, 6]
    assert [one.missing for one in job.members] == [0, 1, 0, 0]
    assert [one.waits for one in job.members] == [0, 1, 0, 0]
    assert job.members[1].presence is Presence.SILENT  # for two seconds
    assert [one.repeats for one in job.members] == [0, 0, 1, 2]


def test_members_on_a_switch_that_does_not_answer(busy: FakeFabric, controller: Controller) -> None:
    busy.switches["leaf2"].stop()
    snapshot = Watch(controller, "wide").snapshot()
    (standing,) = snapshot.jobs
    assert [one.member.packets for one in standing.members] == [4, 3, 0, 0]
    assert ["leaf2" in trouble for trouble in snapshot.troubles] == [True]
    assert standing.to_dict()["switches"] == ["spine1", "spine2", "leaf1", "leaf2"]


def test_metrics_have_each_job_and_member_once(busy: FakeFabric, controller: Controller) -> None:
    counter = controller.context.program.object_id("counters", "outcomes")
    job = controller.job("wide")
    for name in ("spine1", "leaf1"):
        busy.switches[name].counters[counter, job.job_id * 32] = 10
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    for metric in SwitchCollector(controller.context).collect():
        for sample in metric.samples:
            key = sample.name, tuple(sample.labels.values())
            assert key not in found, f"{key} comes twice"
            found[key] = sample.value
    assert found["netsum_job_packets_total", ("wide", "accepted")] == 20
    assert found["netsum_member_packets_total", ("wide", "3", "h4")] == 6
    assert found["netsum_job_open_blocks", ("wide",)] == 1
    busy.switches["spine2"].stop()
    families = SwitchCollector(controller.context).collect()
    names = {sample.name for family in families for sample in family.samples if sample.labels}
    assert "netsum_member_packets_total" in names
    assert "netsum_job_packets_total" not in names, "a part of the sum"


def test_stats_of_each_switch(busy: FakeFabric, controller: Controller) -> None:
    counter = controller.context.program.object_id("counters", "outcomes")
    job = controller.job("wide")
    busy.switches["spine1"].counters[counter, job.job_id * 32] = 2
    busy.switches["leaf2"].counters[counter, job.job_id * 32] = 5
    stats = controller.stats("wide")
    assert stats.outcomes["accepted"] == 7
    accepted = {name: one["accepted"] for name, one in stats.by_switch.items()}
    assert accepted == {"spine1": 2, "spine2": 0, "leaf1": 0, "leaf2": 5}
    assert [one.packets for one in stats.members] == [4, 3, 5, 6]


def test_every_switch_is_scanned_at_its_own_age(fabric: FakeFabric, controller: Controller) -> None:
    create(controller, late=Late.DEGRADE, block_exp=10.0, quorum=2)
    scanner = AgingScanner(controller.context)
    try:
        until(lambda: all(len(switch.scans) >= 4 for switch in fabric.switches.values()))
        counts = {name: len(switch.scans) for name, switch in fabric.switches.items()}
        for name, switch in fabric.switches.items():
            assert switch.scans[0][:6].hex(":") == fabric.topology.switches[name].mac
            assert parse_header(switch.scans[0][42:]).job_id == controller.job("wide").job_id
        periods = {one._name: [each.period for each in one._rounds.values()] for one in scanner._switches}
        assert periods == {"spine1": [0.0125], "spine2": [0.0125], "leaf1": [0.005], "leaf2": [0.005]}
        for rank in (2, 3):
            controller.evict("wide", rank)
        until(lambda: all(not one._rounds for one in scanner._switches if one._name == "leaf2"))
        assert counts["leaf1"] > 0
    finally:
        scanner.close()


@pytest.fixture
def topology(fabric: FakeFabric) -> Topology:
    """The options of commands that run beside the test's controller."""
    return fabric.topology


@pytest.mark.usefixtures("controller")
def test_on_the_command_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "wide.yaml").write_text("name: wide\nmembers: [h1, h2, h3, h4]\nwindow: 8\nalgorithm: switch\n")

    def printed(*arguments: str) -> str:
        return run(*arguments).printed

    assert "'spine1=x' is not like spine1=2" in printed("job", "create", "wide.yaml", "--root", "spine1=x")
    assert "no switch 'spine9' to be a root" in printed("job", "create", "wide.yaml", "--root", "spine9")
    made = printed("job", "create", "wide.yaml", "--root", "spine1=3", "--root", "spine2")
    assert made.startswith(
        "job wide: created, id 1 on spine1, spine2, leaf1, leaf2, 16 slots each, roots spine1 12/16, spine2 4/16, epoch "
    )
    again = printed("job", "create", "wide.yaml", "--root", "spine1=3", "--root", "spine2=1")
    assert again == "job wide: unchanged (id 1 on spine1, spine2, leaf1, leaf2)\n"
    assert "exists with roots spine1=3, spine2=1, not as the controller chooses" in printed("job", "create", "wide.yaml")
    assert "spine1 +3" in printed("job", "list")
    shown = json.loads(printed("job", "show", "wide", "--json"))
    assert shown["switches"] == ["spine1", "spine2", "leaf1", "leaf2"]
    parts = {part["switch"]: part for part in shown["parts"]}
    assert [part["role"] for part in shown["parts"]] == ["root", "root", "leaf", "leaf"]
    assert set(parts["leaf2"]["parents"]) == {"spine1", "spine2"}
    assert parts["leaf2"]["ranks"] == [2, 3]
    assert "spine1, spine2" in printed("job", "show", "wide")
    lines = [line.split() for line in printed("job", "stats", "wide", "--all").splitlines()]
    assert ["SPINE1", "SPINE2", "LEAF1", "LEAF2"] in lines
    assert ["OUTCOME", *["packets"] * 4] in lines
    assert "epoch" in printed("job", "top", "wide", "--once", "--interval", "0.2")
    rows = json.loads(printed("switch", "show", "--json"))
    assert {row["switch"]: (row["jobs"], row["slots_used"]) for row in rows} == {
        name: (["wide"], 16) for name in ("spine1", "spine2", "leaf1", "leaf2")
    }
    assert printed("job", "delete", "wide") == "job wide: deleted\n"
