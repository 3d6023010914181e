# SPDX-License-Identifier: MIT
"""Predicted steps: by hand, from torch, and what `netsum predict` says."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum_planner.simulator.run import run_flows
from netsum_planner.simulator.scenario import JobPlan, Scenario
from netsum_planner.topologies import shapes
from netsum_planner.training.job import (
    Layer,
    Machine,
    Training,
    calibrate,
    from_torch,
    read_machine,
    read_training,
    to_yaml,
)
from netsum_planner.training.timeline import changes, fat_tree_for, predict, scaling, simulated

from tests.planner.commands import netsum, ran, refused, written

MIB = 1 << 20
LAYERS = (
    Layer(name="a", parameters=MIB / 4, gflops=1),
    Layer(name="b", parameters=2 * MIB / 4, gflops=2),
    Layer(name="c", parameters=MIB / 4, gflops=3),
)
"""1, 2 and 1 MiB of gradients."""
JOB = Training(name="three", layers=LAYERS, bucket_mb=1, batch=10)
MACHINE = Machine(gflops=100)
"""The forward pass of 10 samples takes 0.6 s, the backward pass 1.2 s."""


def test_buckets_are_filled_from_the_last_layer() -> None:
    assert [(bucket.nbytes, bucket.work) for bucket in JOB.buckets()] == [
        (MIB, 3 / 6),
        (2 * MIB, pytest.approx(2 / 6)),
        (MIB, pytest.approx(1 / 6)),
    ]
    (one,) = JOB.model_copy(update={"bucket_mb": 25.0}).buckets()
    assert one.nbytes == 4 * MIB
    assert one.work == pytest.approx(1)


def test_a_step_by_hand() -> None:
    """A MiB takes 0.5 s. The last layer's bucket is there after 0.6 + 0.6 s, the next after 0.4 s more, the first's after 0.2."""
    found = predict(JOB, MACHINE, lambda nbytes: 0.5 * nbytes / MIB, workers=4)
    assert (found.forward, found.backward) == pytest.approx((0.6, 1.2))
    assert [each for call in found.calls for each in call] == pytest.approx([1.2, 1.7, 1.7, 2.7, 2.7, 3.2])
    assert found.step == pytest.approx(3.2)
    assert found.exposed == pytest.approx(1.4)
    assert found.communication == pytest.approx(2.0)
    assert found.efficiency == pytest.approx(1.8 / 3.2)
    assert found.bound_by == "compute"
    apart = predict(JOB.model_copy(update={"overlap": False}), MACHINE, lambda nbytes: 0.5 * nbytes / MIB, workers=4)
    assert apart.step == pytest.approx(1.8 + 2.0)
    assert apart.bound_by == "communication"


@pytest.mark.parametrize(("prefetch", "step"), [(True, 5.0), (False, 6.8)])
def test_input_is_fetched_meanwhile_or_before(prefetch: bool, step: float) -> None:
    job = JOB.model_copy(update={"input_ms": 5000.0, "prefetch": prefetch})
    found = predict(job, MACHINE, lambda _: 0.0, workers=4)
    assert found.step == pytest.approx(step)
    assert found.bound_by == "input"


def test_one_worker_makes_no_calls_and_known_compute_counts() -> None:
    job = JOB.model_copy(update={"compute_ms": 300.0})
    found = predict(job, MACHINE, lambda _: 1.0, workers=1)
    assert (found.forward, found.step) == pytest.approx((0.1, 0.3))
    assert not found.calls


def test_calls_take_what_the_simulator_says_and_the_blocks_take() -> None:
    topology = shapes.star(4, Fraction(1, 10))
    seconds = simulated(topology, "ring", Machine(block_us=100.0))
    alone = run_flows(topology, Scenario(jobs=(JobPlan(algorithm="ring", size=MIB),))).jobs[0].mean
    assert seconds(MIB) == pytest.approx(alone + 256 * 100e-6)


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0.01, 20), st.booleans(), st.booleans())
def test_a_step_is_never_shorter_than_its_parts(
    per_mib: float, fetched: float, bucket: float, overlap: bool, prefetch: bool
) -> None:
    job = JOB.model_copy(update={"bucket_mb": bucket, "overlap": overlap, "prefetch": prefetch, "input_ms": fetched * 1000})
    found = predict(job, MACHINE, lambda nbytes: per_mib * nbytes / MIB, workers=8)
    assert found.communication == pytest.approx(4 * per_mib)
    assert found.step >= max(found.compute, found.communication, fetched) * (1 - 1e-9)
    assert found.step <= (found.compute + found.communication + fetched) * (1 + 1e-9)
    assert sum(bucket.nbytes for bucket in job.buckets()) == 4 * MIB
    assert sum(bucket.work for bucket in job.buckets()) == pytest.approx(1)


def test_advice_is_what_would_gain() -> None:
    """Bound by a slow network: its links, smaller gradients and sums in it help, faster computers hardly."""
    topology = shapes.star(8, Fraction(1, 800))
    now = predict(JOB, MACHINE, simulated(topology, "ring", MACHINE), workers=8)
    found = list(changes(JOB, topology, MACHINE, "ring", now))
    gains = {each.what: each.gain for each in found}
    assert now.bound_by == "communication"
    assert gains["--algorithm in_network"] > 0.3
    assert gains["links of twice the rate"] > 0.5
    assert gains["gradients of 2 bytes"] > 0.5
    assert gains["twice the batch"] > 0
    assert [each.gain for each in found] == sorted(gains.values(), reverse=True)
    assert all(each.gain == pytest.approx((2 if "batch" in each.what else 1) * now.step / each.step.step - 1) for each in found)


@pytest.mark.full
def test_in_the_network_efficiency_does_not_fall_with_workers() -> None:
    points = {(each.workers, each.algorithm): each.step for each in scaling(JOB, MACHINE, (4, 64), (1.0,))}
    assert points[64, "in_network"].step == pytest.approx(points[4, "in_network"].step, rel=0.01)
    assert points[64, "ring"].step > points[4, "ring"].step
    assert len(fat_tree_for(4096).hosts) >= 4096
    assert len(fat_tree_for(16).hosts) == 16


def test_calibration_measures() -> None:
    found = calibrate()
    assert found.gflops > 0.01
    assert 0 < found.block_us < 1e5


@pytest.mark.full
@pytest.mark.torch
def test_layers_of_a_torch_model() -> None:
    import torch

    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.Flatten(), torch.nn.Linear(8 * 4 * 4, 10)
    )
    found = from_torch(model, (torch.zeros(5, 3, 4, 4),), bucket_mb=2.0)
    assert [(layer.name, layer.parameters) for layer in found.layers] == [("0", 8 * 3 * 9), ("2", 128 * 10 + 10)]
    # Two operations for each weight at each of 16 places; for each weight once.
    assert [layer.gflops * 1e9 for layer in found.layers] == pytest.approx([2 * 8 * 3 * 9 * 16, 2 * 128 * 10])
    assert (found.batch, found.bucket_mb, found.name) == (5, 2.0, "Sequential")


def test_yaml_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(to_yaml(JOB))
    assert read_training(path) == JOB


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    job = tmp_path / "job.yaml"
    job.write_text(to_yaml(JOB))
    return job, written(tmp_path, shapes.star(4, Fraction(1, 80)))


@pytest.mark.full
def test_the_command_and_its_picture(files: tuple[Path, Path], tmp_path: Path) -> None:
    machine, picture = tmp_path / "machine.json", tmp_path / "step.png"
    machine.write_text(json.dumps(MACHINE.to_json()))
    told = ran("predict", "step", *files, "--machine", machine, "--plot", picture)
    assert (told["workers"], told["algorithm"], told["forward_ms"]) == (4, "in_network", pytest.approx(600))
    assert told["step_ms"] == pytest.approx(told["forward_ms"] + told["backward_ms"] + told["exposed_ms"])
    assert len(told["calls"]) == 3
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "bound by" in netsum("predict", "step", *files, "--algorithm", "ring").output
    shown = netsum("predict", "scale", files[0], "--workers", "4", "--rates", "10", "--plot", picture)
    assert shown.exit_code == 0, shown.output
    assert "in_network" in shown.output


def test_what_is_wrong_is_said_with_its_line(files: tuple[Path, Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: x\nlayers:\n  - {name: a, parameters: -1}\nbatch: many\n")
    said = refused("predict", "step", bad, files[1])
    assert "bad.yaml:3: layers.0.parameters" in said
    assert "bad.yaml:4: batch" in said
    machine = tmp_path / "machine.json"
    for text, told in (("{", "machine.json:1: not JSON"), ('{"gflop": 1}', "no setting gflop"), ("{}", None)):
        machine.write_text(text)
        if told is None:
            assert read_machine(machine) == Machine()
        else:
            assert told in refused("predict", "step", *files, "--machine", machine)
    assert "no.such:thing" in refused("predict", "torch", "no.such:thing")
