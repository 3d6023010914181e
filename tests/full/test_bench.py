# SPDX-License-Identifier: MIT
"""The bench measures what it claims: a few rounds on each switch, and its last line for programs."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from netsum.text import format_size, parse_size
from netsum_bench.cli import bench
from netsum_bench.harness import Calls, Measured, Timing
from netsum_bench.switch import ADDER, AGGREGATE, FORWARD, Case, Rig, adder_rig, figures, remarks
from netsum_bench.traffic_generator import HOSTS, LANES, Blasted, Load
from netsum_bench.train import BACKENDS

from tests.full.commands import invoke


@pytest.mark.full
@pytest.mark.root
def test_a_contribution_is_measured_next_to_forwarding_and_a_bare_adder(switch: str) -> None:
    _, found = invoke(bench, f"switch --switch {switch} --repetitions 2 --run-seconds 0.05")
    of = found[switch]
    assert len(of["forward_pps_by_size"]) == 3
    assert min(of["forward_pps_by_size"].values()) > 0
    assert of["forward_pps"] == of["forward_pps_by_size"]["4178"]
    assert of["ratio"] == pytest.approx(of["forward_pps"] / of["aggregate_pps"], abs=0.01)
    own_logic = 1 - of["aggregate_pps"] / of["bare_adder_pps"]
    assert of["own_logic_share"] == pytest.approx(own_logic, abs=0.02)
    assert of["cpu_us_per_packet"]["aggregate"] > 0
    assert found["floor_pps"] > 0


@pytest.mark.full
def test_the_embedded_switch_is_measured_without_root() -> None:
    _, found = invoke(bench, "switch --rootless --repetitions 1 --run-seconds 0.05")
    assert (found["ports"], "bmv2" in found) == ("udp", False)
    assert found["embedded"]["aggregate_pps"] > 0 < found["embedded"]["bare_adder_pps"]


@pytest.mark.root
def test_the_bare_adder_adds(switch: str) -> None:
    lanes = np.random.default_rng(1).integers(0, (1 << 32) // HOSTS, (HOSTS, LANES), dtype=np.uint64)
    with adder_rig(switch) as rig:
        heads = [bytes(frame[: -4 * LANES]) for frame in rig.loads[ADDER].frames]
        frames = [bytearray(head + lane.astype(">u4").tobytes()) for head, lane in zip(heads, lanes, strict=True)]
        rig.loads = {ADDER: Load(ADDER, tuple(frames), lanes.sum(axis=0).astype(">u4").tobytes())}
        rig.run(ADDER, 300, 1)  # checks the last reply; by then each register has been used more than once


@pytest.mark.full
@pytest.mark.root
def test_what_a_block_costs_a_host_is_measured(switch: str) -> None:
    _, found = invoke(bench, f"host --switch {switch} --workers 1,2 --size 64K --calls 1")
    for transport in ("packet", "udp"):
        for figure in ("us_per_block", "small_call_us", "MBps"):
            assert set(found[figure][transport][switch]) == {"1", "2"}
            assert min(found[figure][transport][switch].values()) > 0
        assert found["kernel_us_per_block"][transport] > 0
    assert found["wrong"] == 0


def cases_of(generator_cpu: float = 0.005) -> dict[str, Case]:
    """Runs of 1000 packets: one that takes a bit less, and an outlier."""

    def measured(load: str, seconds: float, switch_cpu: float, generator_cpu: float) -> Case:
        runs = [Blasted(1000, seconds * factor, switch_cpu, generator_cpu) for factor in (1.0, 0.9, 4.0)]
        return Case("x", load, cast(Rig, None), 16, runs=runs)  # nothing is sent any more

    forward, aggregate = measured(FORWARD, 0.02, 0.03, generator_cpu), measured(AGGREGATE, 0.05, 0.06, 0.005)
    return {FORWARD: forward, AGGREGATE: aggregate, ADDER: measured(ADDER, 0.04, 0.05, 0.005)}


def test_figures_are_medians_and_an_outlier_does_not_count() -> None:
    found = figures(cases_of())
    assert (found["forward_pps"], found["ratio"], found["own_logic_share"]) == (50_000, 2.5, 0.2)
    assert found["cpu_us_per_packet"]["aggregate"] == pytest.approx(60)


def test_a_generator_that_sets_the_pace_is_admitted() -> None:
    notes = remarks(50_000, {"idle": figures(cases_of()), "busy": figures(cases_of(0.019))})
    assert not any(note.startswith("idle") for note in notes)
    assert any(note.startswith("busy: the generator was busy 95%") for note in notes)


def test_bandwidths_are_those_of_nccl_tests() -> None:
    calls = Calls((1 << 20,), "float32", 4, 1)
    measured = Measured(calls, 1 << 20, [Timing(seconds=[seconds]) for seconds in (0.0005, 0.001, 0.0002, 0.0001)])
    assert measured.algbw == pytest.approx(1.048576)
    assert measured.busbw == pytest.approx(1.572864)


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("4K", 4096), ("1m", 1 << 20)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("text", ["", "K", "4T", "-1", "1.5K"])
def test_a_wrong_size_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size such as"):
        parse_size(text)


@pytest.mark.full
@pytest.mark.root
@pytest.mark.torch
def test_a_training_on_netsum_and_on_gloo(switch: str) -> None:
    said, found = invoke(bench, f"train --switch {switch} --rates 100 --workers 2 --steps 2 --width 64 --batch 16")
    (run,) = found[switch]
    assert "100 Mbit/s" in said
    assert run["rate_mbps"] == 100
    assert run["replicas_equal"] == dict.fromkeys(BACKENDS, True)
    assert run["loss_difference"] < 1e-5
    assert run["copied_per_byte"] == 0
    assert run["gradient_bytes"] == 4 * (64 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10)
    for backend in BACKENDS:
        assert run[backend]["step_ms"] >= run[backend]["backward_ms"] > 0
