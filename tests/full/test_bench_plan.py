"""``netsum bench plan``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from netsum.peers.plans.from_file import load_plan
from netsum_controller.errors import InputError
from netsum_planner.topologies.files import read_topology
from netsum_planner.trees.plan import plan_allreduce
from netsum_testbed.bench.plan import bench_plan, tuned

from tests.full.commands import invoke

UNEVEN = Path(__file__).parents[2] / "mininet" / "uneven2x2x2.yaml"


@pytest.mark.parametrize("best", [1, 2, 3, 7, 12, 20, 32])
def test_tuning_comes_near_the_best_chunk(best: int) -> None:
    """Of a rate that rises to its peak and falls beyond, within a quarter; and it measures few."""
    measured: list[int] = []

    def rate(blocks: int) -> float:
        measured.append(blocks)
        return blocks / best if blocks <= best else best / blocks

    chosen = tuned(rate, 32)
    assert rate(chosen) >= 0.75
    assert len(measured) <= 12


@pytest.mark.full
def test_a_plan_is_timed_and_tuned(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan_allreduce(read_topology(UNEVEN)).to_json()))
    words = f"{file} --topology {UNEVEN} --switch embedded --size 64K --iterations 1 --tune"
    _, told = invoke(bench_plan, words)
    assert list(told["ways"]) == ["plan, its roots", "equal stripes", "plan, between hosts", "ring"]
    assert all(way["GBps"] > 0 for way in told["ways"].values())
    assert told["chunk_bytes"] == load_plan(str(file)).chunk_bytes
    assert told["optimum_GBps"] == pytest.approx(0.0015)
    assert told["ways"]["plan, its roots"]["predicted_GBps"] == pytest.approx(0.00145, rel=0.01)


@pytest.mark.full
@pytest.mark.root
def test_what_a_dead_link_costs_is_predicted_and_timed(tmp_path: Path) -> None:
    """Without one way from leaf2 up, the other carries everything."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan_allreduce(read_topology(UNEVEN)).to_json()))
    words = f"{file} --topology {UNEVEN} --switch embedded --size 64K --iterations 3 --cut leaf2_spine2"
    _, told = invoke(bench_plan, words)
    assert told["ways"]["planned anew, without leaf2_spine2"]["predicted_GBps"] == pytest.approx(0.001)
    assert told["ways"]["planned anew, without leaf2_spine2"]["GBps"] > 0


def test_a_link_that_cannot_be_cut_is_named(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    told = plan_allreduce(read_topology(UNEVEN)).to_json()
    words = [str(file), "--topology", str(UNEVEN), "--cut"]
    file.write_text(json.dumps(told))
    with pytest.raises(InputError, match=r"--cut l9: uneven2x2x2 has no such link.*leaf1_spine1"):
        bench_plan.main([*words, "l9"], standalone_mode=False)
    del told["network"]
    file.write_text(json.dumps(told))
    with pytest.raises(InputError, match="no roots can be planned"):
        bench_plan.main([*words, "leaf1_spine1"], standalone_mode=False)
