# SPDX-License-Identifier: MIT
"""The parts of `make simulate-check` and `make predict-check` that need no network."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from netsum_planner.simulator.network import Wire
from netsum_planner.simulator.run import run_flows
from netsum_planner.simulator.scenario import JobPlan, Scenario
from netsum_planner.topologies import shapes

from tests.system.predictions.commands import SMALL, reaction
from tests.system.predictions.measured import Errors, PredictionRow


@pytest.mark.parametrize("algorithm", ["in_network", "ring", "double_binary_tree"])
def test_how_long_a_host_takes_is_found_with_a_small_call(algorithm: str) -> None:
    topology = shapes.star(4, Fraction(20, 8000))
    scenario = Scenario(jobs=(JobPlan(algorithm=algorithm, size=SMALL),))
    seconds = run_flows(topology, scenario, Wire(host_s=0.003)).jobs[0].mean
    assert reaction(topology, algorithm, seconds) == pytest.approx(0.003, rel=0.01)
    assert reaction(topology, algorithm, 0.0) == 0.0


def test_every_row_counts() -> None:
    rows = [PredictionRow("star2", 2, "ring", "flow", foreseen, 2.0, 0.5) for foreseen in (2.0, 1.0, 2.2)]
    told = json.loads(Errors("embedded", rows=rows).to_json())
    assert [row["error"] for row in told["rows"]] == [0.0, 0.5, 0.1]
    assert (told["median_error"], told["worst_error"]) == (0.1, 0.5)
    assert Errors("embedded").exit_code == 1  # nothing tried proves nothing
