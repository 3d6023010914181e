# SPDX-License-Identifier: MIT
"""Links between switches that die: they are found by what does not arrive, and jobs are planned anew without them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from netsum.wire.schema import BlockState
from netsum_controller import Controller, Job, JobSpec, Topology
from netsum_controller.config.topologies import leaf_spine, tree
from netsum_controller.errors import SwitchError, UnreachableError
from netsum_controller.monitoring.links import AVOIDED, QUIET, LinkWatcher
from netsum_controller.planning.replan import Replanned

from tests.controller.fake_fabric import HOSTS, FakeFabric
from tests.controller.members import TOKEN, come_back, join_all
from tests.controller.watched import put_record

AGE = int(QUIET * 1000 / 1.024) + 100
"""Of a block that has waited long enough, in the switch's units."""


@pytest.fixture
def three(open_fabric: Callable[[Topology], FakeFabric]) -> FakeFabric:
    """Three spines, two leaves with two hosts each."""
    return open_fabric(leaf_spine(3, 2, 2))


def planned(fabric: FakeFabric, tmp_path: Path) -> tuple[Controller, Job]:
    """A job whose roots are a plan's, 2 to 1 to 2, and which all have joined."""
    file = tmp_path / "plan.json"
    whole = {"share": "1", "transfers": [{"step": n - 1, "from": n, "to": 0, "op": "combine"} for n in (1, 2, 3)]}
    whole["transfers"] += [{"step": 3, "from": 0, "to": n, "op": "copy"} for n in (1, 2, 3)]  # type: ignore[operator]
    plan = {"version": 1, "hosts": HOSTS, "parts": [whole], "network": {"name": "three"}}
    file.write_text(json.dumps({**plan, "roots": {"spine1": 2, "spine2": 1, "spine3": 2}}))
    controller = fabric.open()
    controller.push()
    spec = JobSpec.model_validate({"name": "wide", "members": HOSTS, "window": 8, "token": TOKEN, "roots": f"plan:{file}"})
    controller.create_job(spec)
    join_all(controller, name="wide")
    return controller, controller.job("wide")


class Watched:
    """A watcher whose clock the test moves, over fake switches that count what the test says."""

    def __init__(self, fabric: FakeFabric, controller: Controller) -> None:
        self.fabric, self.controller = fabric, controller
        self.now = 1000.0
        self.watcher = LinkWatcher(controller.context, period=0, clock=lambda: self.now)
        self.counter = controller.context.program.object_id("counters", "ports")
        self.repeats = 0

    def looks(self, leaf: str, *, alive: dict[str, str] | None = None) -> list[str]:
        """For twice as long as a link may be quiet, the leaf's members repeat themselves, and packets come in at the ends that
        are ``alive``: switch -> link. Returns what is found dead."""
        found: list[str] = []
        end = self.now + 2 * QUIET
        while self.now < end and not found:
            self.repeats += 1
            self.fabric.switches[leaf].let_in(dict.fromkeys(range(4), self.repeats))
            for switch, link in (alive or {}).items():
                wire = self.fabric.topology.links[link]
                port = wire.ports[wire.switches.index(switch)]
                self.fabric.switches[switch].counters[self.counter, port] = self.repeats
            found = self.watcher.look()
            self.now += QUIET / 2
        return found


def stuck(
    fabric: FakeFabric, job: Job, leaf: str, root: str = "spine1", state: BlockState = BlockState.SENT, age: int = AGE
) -> int:
    """A block that the leaf has sent up, so long ago, and this root must finish; how far it is after the epoch's first."""
    roots, first = job.epoch.shape.roots, job.epoch.first_block_id
    ahead = next(n for n in range(len(roots)) if roots[(first + n) % len(roots)] == root)
    put_record(fabric.switches[leaf], job, ahead, 0b0011, state, on=leaf)
    fabric.switches[leaf].age = age
    return ahead


def test_a_job_is_planned_anew_without_a_dead_link(three: FakeFabric, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    controller, job = planned(three, tmp_path)
    asked = []

    def replan(network: str, hosts: frozenset[str], gone: frozenset[str | tuple[str, str]]) -> Replanned:
        asked.append((json.loads(network)["name"], hosts, gone))
        return Replanned({"spine2": 1, "spine3": 3}, 0.13, 0.25)

    controller.context.replan = replan
    stuck(three, job, "leaf2")
    # The window is full, so nothing crosses the other links either; nothing waits for them.
    assert Watched(three, controller).looks("leaf2") == ["leaf2_spine1"]
    moved = controller.job("wide")
    assert Counter(moved.epoch.shape.roots) == {"spine2": 4, "spine3": 12}
    assert moved.epoch.resumes == job.epoch.number
    assert set(asked) == {("three", frozenset(HOSTS), frozenset({tuple(three.topology.links["leaf2_spine1"].switches)}))}
    told = "planned anew without leaf2_spine1: roots spine2 1, spine3 3, 0.13 of 0.25 GB/s"
    assert sum(told in each.getMessage() for each in caplog.records) == 1
    back = come_back(controller, job)
    assert back.epoch.number == moved.epoch.number
    assert not any(report.new_epochs for report in controller.reconcile()), "once is enough"
    assert back.roots == {"spine1": 2, "spine2": 1, "spine3": 2}, "what was asked for is not forgotten"
    controller.context.dead_links["leaf2_spine1"] -= AVOIDED  # the time is over: no job is disturbed
    assert not any(report.new_epochs for report in controller.reconcile())
    controller.join("wide", TOKEN, 0, "b")
    assert set(controller.job("wide").epoch.shape.roots) == {"spine1", "spine2", "spine3"}


@pytest.mark.full
def test_so_it_is_without_a_switch(three: FakeFabric, tmp_path: Path) -> None:
    """The new plan's weights, not the old ones of those that are left; those again if they cannot be had."""
    controller, _ = planned(three, tmp_path)
    for anew, shares in (({"spine2": 3, "spine3": 1}, {"spine2": 12, "spine3": 4}), ({"leaf1": 1, "spine2": 1}, None)):
        controller.context.replan = lambda *_, roots=anew: Replanned(roots, 0.1, 0.2)
        three.switches["spine1"].stop()
        with pytest.raises(SwitchError, match="spine1"):
            controller.reconcile()
        assert Counter(controller.job("wide").epoch.shape.roots) == (shares or {"spine2": 5, "spine3": 11})
        three.switches["spine1"].start()
        controller.reconcile()
        controller.join("wide", TOKEN, 0, str(anew))
        assert set(controller.job("wide").epoch.shape.roots) == {"spine1", "spine2", "spine3"}
        join_all(controller, str(anew), "wide")


@pytest.mark.full
def test_without_a_planner_the_other_roots_share_alike(three: FakeFabric, tmp_path: Path) -> None:
    controller, job = planned(three, tmp_path)
    controller.context.replan = None
    stuck(three, job, "leaf2")
    assert Watched(three, controller).looks("leaf2") == ["leaf2_spine1"]
    assert Counter(controller.job("wide").epoch.shape.roots) == {"spine2": 8, "spine3": 8}
    # A job that is made meanwhile avoids it at once, unless its roots were asked for.
    other = controller.create_job(JobSpec(name="other", members=HOSTS, window=8))
    assert set(other.epoch.shape.roots) == {"spine2", "spine3"}
    asked = controller.create_job(JobSpec(name="asked", members=HOSTS, window=8, roots={"spine1": 1}))
    assert set(asked.epoch.shape.roots) == {"spine1"}


@pytest.mark.full
def test_results_that_do_not_come_down_are_missed_too(three: FakeFabric, tmp_path: Path) -> None:
    """One way of the link is dead: the root has the result, and hears the leaf ask for it again and again."""
    controller, job = planned(three, tmp_path)
    ahead = stuck(three, job, "leaf2")
    watched = Watched(three, controller)
    assert watched.looks("leaf2", alive={"spine1": "leaf2_spine1"}) == [], "the root may still wait for others"
    put_record(three.switches["spine1"], job, ahead, 0b101, BlockState.DONE, on="spine1")
    assert watched.looks("leaf2", alive={"spine1": "leaf2_spine1"}) == ["leaf2_spine1"]


@pytest.mark.parametrize(
    ("state", "age"),
    [
        (BlockState.SENT, AGE // 2),
        pytest.param(BlockState.OPEN, AGE, marks=pytest.mark.full),
        pytest.param(BlockState.DONE, AGE, marks=pytest.mark.full),
    ],
)
def test_a_link_that_nothing_waits_for_is_not_suspected(three: FakeFabric, tmp_path: Path, state: BlockState, age: int) -> None:
    """A member that is late, a block that has only begun, a job that has nothing to do."""
    controller, job = planned(three, tmp_path)
    stuck(three, job, "leaf2", "spine1", state, age)
    assert Watched(three, controller).looks("leaf2") == []
    assert controller.job("wide").epoch.number == job.epoch.number


def test_where_no_other_way_leads_the_job_waits(open_fabric: Callable[[Topology], FakeFabric]) -> None:
    fabric = open_fabric(tree(2, 2))
    controller = fabric.open()
    controller.push()
    controller.create_job(JobSpec(name="wide", members=HOSTS, window=8, token=TOKEN))
    join_all(controller, name="wide")
    job = controller.job("wide")
    leaf, root = job.epoch.shape.edges[0]
    stuck(fabric, job, leaf, root)
    found = Watched(fabric, controller).looks(leaf)
    assert [set(fabric.topology.links[name].switches) for name in found] == [set(job.epoch.shape.edges[0])]
    assert controller.job("wide").epoch.number == job.epoch.number
    with pytest.raises(UnreachableError, match="links that are up"):
        controller.create_job(JobSpec(name="new", members=HOSTS, window=8, algorithm="switch"))
