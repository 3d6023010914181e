# SPDX-License-Identifier: MIT
"""Tenants: whose quota a job and its groups count against, in what is stored, refused and shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from netsum_controller import Controller, JobSpec
from netsum_controller.config.topology import Quota, Topology
from netsum_controller.errors import RejectedError

from tests.controller.conftest import Run
from tests.controller.fake_switch import FakeSwitch

TOKEN = "a-token-of-vision"


def spec(name: str, tenant: str = "vision", workers: int = 2) -> JobSpec:
    return JobSpec(name=name, members=("h1", "h2", "h4")[:workers], window=8, tenant=tenant, token=TOKEN)


@pytest.fixture
def quotas() -> dict[str, Quota]:
    """Of two tenants."""
    return {"vision": Quota(slots=48, job_ids=3, members=6), "speech": Quota(slots=16)}


@pytest.fixture
def shared(open_controller: Callable[[], Controller], quotas: dict[str, Quota]) -> Controller:
    """A controller whose topology has tenants."""
    controller = open_controller()
    controller.topology = controller.topology.model_copy(update={"tenants": quotas})
    controller.push()
    return controller


def test_a_tenant_has_its_quota_whatever_the_others_do(shared: Controller, switch: FakeSwitch) -> None:
    for name in ("a", "b", "c"):
        shared.create_job(spec(name))
    installed, jobs = switch.installed, shared.context.store.jobs()
    with pytest.raises(
        RejectedError,
        match=r"no room for 16 slots \(it uses 48 of 48\) and 1 job id .* its largest jobs there: a, b, c$",
    ):
        shared.create_job(spec("d"))
    assert switch.installed == installed
    assert shared.context.store.jobs() == jobs
    shared.create_job(spec("e", "speech"))
    with pytest.raises(RejectedError, match="tenant 'speech'"):
        shared.create_job(spec("f", "speech"))
    shared.delete_job("b")
    assert shared.create_job(spec("d")).tenant == "vision"


def test_groups_count_to_the_tenant_of_their_job(shared: Controller) -> None:
    shared.create_job(spec("resnet"))
    epoch = shared.join("resnet", TOKEN, 0, "one").epoch

    def group(label: str) -> str:
        return shared.membership.group("resnet", TOKEN, 0, "one", epoch, label, [0, 1])[0]

    assert shared.job(group("1/0")).tenant == "vision"
    assert shared.job(group("2/0")).tenant == "vision"
    with pytest.raises(RejectedError, match=r"quota of tenant 'vision' .* its largest jobs there: resnet, resnet\.g-"):
        group("3/0")
    shared.delete_job("resnet")
    assert shared.context.store.jobs() == []


def test_less_quota_than_is_used_leaves_the_jobs_there_are(shared: Controller, quotas: dict[str, Quota]) -> None:
    shared.create_job(spec("a"))
    shared.topology = shared.topology.model_copy(update={"tenants": {**quotas, "vision": Quota(slots=0)}})
    assert not shared.create_job(spec("a")).created
    assert not any(report.changed for report in shared.reconcile())
    with pytest.raises(RejectedError, match=r"16 slots \(it uses 16 of 0\)"):
        shared.create_job(spec("b"))


def test_the_same_job_of_another_tenant(controller: Controller) -> None:
    controller.create_job(spec("a"))
    with pytest.raises(RejectedError, match="job 'a' exists with tenant vision, not speech"):
        controller.create_job(spec("a", "speech"))


def test_on_the_command_line(run: Run, topology: Topology, where: list[str], tmp_path: Path) -> None:
    Path(where[1]).write_text(topology.to_yaml() + "tenants: {vision: {slots: 16}, default: {}}\n")
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\nmembers: [h1, h2]\nwindow: 8\n")
    run("switch", "push")
    assert run("job", "create", "--tenant", "vision", "a.yaml").code == 0
    assert json.loads(run("job", "show", "a", "--json").out)["tenant"] == "vision"
    refused = run("job", "create", "--tenant", "vision", "b.yaml")
    assert (refused.code, refused.printed.count("\n")) == (1, 1)
    words = "netsum: job 'b': the quota of tenant 'vision' on switch s1 has no room for 16 slots (it uses 16 of 16)"
    assert words in refused.err
    assert run("job", "create", "b.yaml").code == 0
    assert [job["tenant"] for job in json.loads(run("job", "list", "--json").out)] == ["vision", "default"]
    assert "vision" in run("job", "list").out
    assert "vision" in run("topology", "show").out
