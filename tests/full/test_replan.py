# SPDX-License-Identifier: MIT
"""A plan's roots share the blocks of a real job; a link dies in the middle of a training, and those of a new plan do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from netsum.wire.schema import Outcome
from netsum_controller.config.job_spec import roots_of_plan
from netsum_controller.config.topologies import leaf_spine
from netsum_planner.trees.plan import plan_allreduce
from netsum_planner.trees.stripes import replan
from netsum_testbed.fabric import Fabric

from tests.full.conftest import FABRICS, joined, started
from tests.full.trouble import Training
from tests.planner.test_replan import uneven
from tests.system.faults.make import KernelTrunk
from tests.threads import until

pytestmark = pytest.mark.full


@pytest.fixture(scope="module", params=FABRICS[1:])
def three(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """Three spines, two leaves with two hosts each."""
    with started(request.param, leaf_spine(3, 2, 2)) as fabric:
        fabric.controller.context.replan = replan  # as the entry point does, where the package is installed
        yield fabric


@pytest.fixture
def plan(tmp_path: Path) -> str:
    """Leaf2's link to spine2 has half the rate of the other links between switches, as far as the planner knows."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan_allreduce(uneven()).to_json()))
    return f"plan:{file}"


def completed(fabric: Fabric, name: str) -> dict[str, int]:
    """Blocks that each spine has finished since the job was created."""
    found = fabric.controller.stats(name).by_switch
    return {switch: counts[Outcome.COMPLETED.name.lower()] for switch, counts in found.items() if "spine" in switch}


def test_a_trunk_dies_in_the_middle_of_a_training(three: Fabric, plan: str) -> None:
    """Sums go on, exactly, over the roots of a plan for what is left, with its weights; no rank is disturbed when the link works
    again, and the next epoch uses it."""
    roots = roots_of_plan(plan)
    assert roots == {"spine1": 2, "spine2": 1, "spine3": 2}
    with joined(three, 4, window=16, roots=plan) as communicators, Training(communicators) as training:
        name = communicators[0].descriptor.job

        def shares() -> Counter[str]:
            return Counter(three.controller.job(name).epoch.shape.roots)

        assert shares() == {"spine1": 7, "spine2": 3, "spine3": 6}
        training.on(20)
        before = completed(three, name)
        assert before["spine3"] > 1.8 * before["spine2"]
        with KernelTrunk(three, "leaf2_spine1", 0.0) as trunk:
            trunk.cut()
            until(lambda: "spine1" not in shares(), "its trees avoid the link")
            assert shares() == {"spine2": 5, "spine3": 11}
            training.on(20)
            assert set(completed(three, name)) == {"spine2", "spine3"}
        training.finish()
        assert shares() == {"spine2": 5, "spine3": 11}
        assert {comm.stats.resumes for comm in communicators} == {1}
        assert set(three.controller.context.dead_links) == {"leaf2_spine1"}
    three.controller.context.dead_links.clear()  # its time is over
    with joined(three, 4, window=16, roots=plan) as communicators, Training(communicators) as training:
        training.finish(5)
        assert set(three.controller.job(communicators[0].descriptor.job).epoch.shape.roots) == set(roots)
