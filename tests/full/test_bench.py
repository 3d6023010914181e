"""The bench measures what it claims: a few rounds on each switch, and its last line for programs."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from netsum.text import parse_size
from netsum_testbed.bench.blast import Blasted, Load
from netsum_testbed.bench.collective import Line
from netsum_testbed.bench.command import bench
from netsum_testbed.bench.instructions import parts
from netsum_testbed.bench.loads import HOSTS, LANES
from netsum_testbed.bench.rigs import ADDER, AGGREGATE, Rig, adder_rig
from netsum_testbed.bench.switches import FORWARD, SwitchFigures, remarks
from netsum_testbed.bench.turns import Case
from netsum_testbed.switches import runs_machine_code

from tests.full.commands import invoke


@pytest.mark.full
@pytest.mark.root
def test_forwarding_and_aggregating_are_measured_on_the_same_switch(switch: str) -> None:
    _, found = invoke(bench, f"switches --switch {switch} --repetitions 1 --rounds 200")
    figures = found[switch]
    assert figures["forward_pps"] > 0
    assert figures["aggregate_pps"] > 0
    assert figures["ratio"] == pytest.approx(figures["forward_pps"] / figures["aggregate_pps"], abs=0.01)
    assert figures["cpu_us_per_packet"]["aggregate"] > 0
    assert found["floor_pps"] > 0
    assert ("embedded_python" in found) == (switch == "embedded" and runs_machine_code())


@pytest.mark.root
@pytest.mark.parametrize(
    "engine",
    [pytest.param("native", marks=pytest.mark.llvmlite), "python", pytest.param("bmv2", marks=pytest.mark.bmv2)],
)
def test_the_bare_adder_adds(engine: str) -> None:
    lanes = np.random.default_rng(1).integers(0, (1 << 32) // HOSTS, (HOSTS, LANES), dtype=np.uint64)
    with adder_rig(engine) as rig:
        heads = [bytes(frame[: -4 * LANES]) for frame in rig.loads[ADDER].frames]
        frames = [bytearray(head + lane.astype(">u4").tobytes()) for head, lane in zip(heads, lanes, strict=True)]
        rig.loads = {ADDER: Load(ADDER, tuple(frames), lanes.sum(axis=0).astype(">u4").tobytes())}
        rig.run(ADDER, 300, 1)  # checks the last reply; by then each register has been used more than once


@pytest.mark.root
@pytest.mark.bmv2
@pytest.mark.llvmlite
@pytest.mark.full
def test_engines_are_compared_in_one_run() -> None:
    _, found = invoke(bench, "switch --repetitions 2 --run-seconds 0.05")
    for engine in ("native", "python", "bmv2"):
        figures = found[engine]
        assert min(figures["forward_pps"][size] for size in ("64", "1500", "4162")) > 0
        own_logic = 1 - figures["aggregate_pps"] / figures["bare_adder_pps"]
        assert figures["own_logic_share"]["time"] == pytest.approx(own_logic, abs=0.02)
    assert found["floor_pps"] == found["floor"]["forward_pps"]["4162"] > 0
    assert found["repetitions"] == 2


@pytest.mark.llvmlite
@pytest.mark.full
def test_engines_are_compared_without_root() -> None:
    said, found = invoke(bench, "switch --rootless --repetitions 1 --run-seconds 0.05")
    assert found["ports"] == "udp"
    for engine in ("floor", "native", "python"):
        assert min(found[engine]["forward_pps"].values()) > 0
    assert found["native"]["aggregate_pps"] > 0 < found["native"]["bare_adder_pps"]
    assert "bmv2" not in found
    assert "bmv2 IS NOT MEASURED: its ports are interfaces" in said


@pytest.mark.root
@pytest.mark.full
def test_a_collective_is_timed_and_checked_also_beside_a_flood(switch: str) -> None:
    _, found = invoke(bench, f"allreduce --switch {switch} --sizes 4,16K --workers 2 --iterations 2 --flood")
    flooded = found["flooded"][switch]
    assert flooded["flood_pps"] > 0
    for lines in (found[switch], flooded["lines"]):
        assert [(line["size"], line["wrong"]) for line in lines] == [(4, [0, 0]), (16384, [0, 0])]


def test_instructions_are_those_of_the_whole_function() -> None:
    listing = """
 1,600 (100.0%)  PROGRAM TOTALS
 1,000 (62.50%)  ???:bm::Parser::parse(bm::Packet*) const [/bin/simple_switch_grpc]
    90 ( 5.63%)  parser.cpp:bm::Parser::parse(bm::Packet*) const [/bin/simple_switch_grpc]
"""
    assert parts(listing) == {"all": 1600, "parser": 1000}


@pytest.mark.full
def test_a_training_with_each_way_to_carry_gradients(switch: str) -> None:
    said, found = invoke(bench, f"compression --switch {switch} --workers 2 --steps 20")
    curves = found[switch]
    assert curves["float32"]["accuracy"] > 0.7
    for method, least in (("16 bits", 1.9), ("rotated 8 bits", 3.7), ("rotated 4 bits", 7), ("top 1%, feedback", 20)):
        assert method in said
        assert curves["float32"]["sent_bytes"] > least * curves[method]["sent_bytes"]
        assert len(curves[method]["curve"]) == 2


@pytest.mark.full
@pytest.mark.root
def test_what_a_block_costs_a_host_is_measured(switch: str) -> None:
    _, found = invoke(bench, f"host --switch {switch} --workers 1,2 --sizes 64K --calls 1 --turns 1")
    for transport in ("packet", "udp"):
        for figure in ("us_per_block", "small_call_us", "MBps"):
            assert set(found[figure][transport][switch]) == {"1", "2"}
            assert min(found[figure][transport][switch].values()) > 0
        assert found["kernel_us_per_block"][transport] > 0
    assert found["wrong"] == 0


def figures_of(switch: str, forward_generator_cpu: float = 0.005) -> SwitchFigures:
    """Of runs of 1000 packets: one that takes a bit less, and an outlier."""

    def measured(load: str, seconds: float, switch_cpu: float, generator_cpu: float) -> Case:
        runs = [Blasted(1000, seconds * factor, switch_cpu, generator_cpu) for factor in (1.0, 0.9, 4.0)]
        return Case(switch, load, cast(Rig, None), 16, runs=runs)  # nothing is sent any more

    forward = measured(FORWARD, 0.02, 0.03, forward_generator_cpu)
    return SwitchFigures(switch, forward, measured(AGGREGATE, 0.05, 0.06, 0.005))


def test_figures_are_medians_and_an_outlier_does_not_count() -> None:
    figures = figures_of("x")
    assert figures.forward.pps == pytest.approx(50_000)
    assert figures.ratio == pytest.approx(2.5)
    assert figures.aggregate.cpu_us == pytest.approx(60)


def test_a_generator_that_sets_the_pace_is_admitted() -> None:
    idle, busy = figures_of("idle"), figures_of("busy", 0.019)
    assert not any(note.startswith("idle") for note in remarks([idle], 1e5))
    assert any(note.startswith("busy: the sender was busy 95%") for note in remarks([busy], 1e5))


def test_bandwidths_are_those_of_nccl_tests() -> None:
    line = Line(size=1 << 20, count=1 << 18, workers=4, seconds=(0.001, 0.002), wrong=(0, 0), sent=(0, 0))
    assert line.algbw(0) == pytest.approx(1.048576)
    assert line.busbw(0) == pytest.approx(1.572864)
    assert line.busbw(1) == pytest.approx(0.786432)


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("4K", 4096), ("1m", 1 << 20)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


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
    assert run["replicas_equal"] == {"netsum": True, "gloo": True}
    assert run["loss_difference"] < 1e-5
    assert run["copied_per_byte"] == 0
    assert run["gradient_bytes"] == 4 * (64 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10)
    for backend in ("netsum", "gloo"):
        assert run[backend]["step_ms"] >= run[backend]["backward_ms"] > 0
