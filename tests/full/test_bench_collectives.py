# SPDX-License-Identifier: MIT
"""The commands that time collectives: nccl-tests' options, its definitions and its file, and what they check."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from netsum.communicator import Communicator
from netsum.descriptor import SWITCH
from netsum_bench import compare
from netsum_bench.cli import bench
from netsum_bench.collective_command import straggler_note
from netsum_bench.collectives import OPERATIONS, REDUCTIONS, Arrays, Place, make_call
from netsum_bench.harness import Calls, Counts, Measured, Timing, percentile
from netsum_controller.config.job_spec import JobSpec
from netsum_testbed.fabrics import open_fabric
from netsum_testbed.links import FRAME_BYTES

from tests.full.commands import invoke
from tests.threads import returned

RANKS = 3


def test_every_collective_is_made_and_checked() -> None:
    """In place and out of place, each reduction, and the last rank as the root."""
    cases = [
        (name, redop, in_place)
        for name, operation in OPERATIONS.items()
        for redop in (REDUCTIONS if operation.reduces else ("sum",))
        for in_place in (False, True)
    ]

    def run(comm: Communicator) -> list[tuple[int, int]]:
        found = []
        for name, redop, in_place in cases:
            place = Place(comm.rank, comm.size, RANKS - 1, redop)
            arrays = Arrays(name, place, 1500, "float32", in_place=in_place)
            arrays.prepare()
            before = arrays.wrong()
            make_call(name, place, arrays, {})(comm)
            found.append((before, arrays.wrong()))
        return found

    with open_fabric("embedded", hosts=RANKS, rootless=True) as fabric:
        job = fabric.create_job(JobSpec(name="bench", members=tuple(fabric.topology.hosts), algorithm=SWITCH))
        comms = fabric.join_all(job)
        ranks = returned([partial(run, comm) for comm in comms])
        for comm in comms:
            comm.close()
    for case, *found in zip(cases, *ranks, strict=True):
        assert max(before for before, _ in found) > 0, f"{case}: nothing would be noticed"
        assert [after for _, after in found] == [0] * RANKS, case


def test_sizes_count_as_in_nccl_tests() -> None:
    """The parts of all ranks together, where there are parts; whole elements."""
    counts = {name: Calls((), "float32", 4, 1, operation=name) for name in OPERATIONS}
    whole = {name for name, calls in counts.items() if calls.count(1026) == 256}
    assert whole == {"allreduce", "broadcast", "reduce", "sendrecv"}
    assert {calls.count(1026) for name, calls in counts.items() if name not in whole} == {64}
    assert {calls.true_size(1026) for calls in counts.values()} == {1024}
    factors = {name: operation.factor(4) for name, operation in OPERATIONS.items()}
    assert factors == {
        "allreduce": 1.5,
        "broadcast": 1.0,
        "reduce": 1.0,
        "sendrecv": 1.0,
        **dict.fromkeys(["all_gather", "reduce_scatter", "alltoall", "gather", "scatter"], 0.75),
    }


def measured(ranks: list[list[float]], begins: list[list[float]] | None = None, **more: Any) -> Measured:
    """An allreduce of 4096 bytes, by rank and call."""
    timings = [Timing(seconds=seconds, begins=began) for seconds, began in zip(ranks, begins or ranks, strict=True)]
    return Measured(Calls((4096,), "float32", len(ranks), len(ranks[0])), 4096, timings, **more)


def test_percentiles_are_of_the_slowest_rank() -> None:
    calls = [0.001] * 98 + [0.003, 0.005]
    assert measured([calls, [0.002] * 100]).percentile(50) == 0.002
    assert measured([calls, [0.002] * 100]).percentile(99) == 0.003
    assert percentile([5.0], 99) == percentile([5.0], 0) == 5.0


def test_the_straggler_begins_last() -> None:
    one, other = (measured([[1.0]] * 3, [[began] for began in begins]) for begins in ((7.0, 9.0, 8.0), (1.0, 4.0, 5.0)))
    assert [each.straggler for each in (one, other)] == [(1, 2.0), (2, 4.0)]
    note = straggler_note([(one, other), (other, other)])
    assert note.startswith("rank 2 began last at 3 of 4 sizes and places, by up to 4000000 us")


def test_shares_of_a_link() -> None:
    """A block's frame in 2 ms on a link of 20 Mbit/s: 5000 bytes fit into that time."""
    ring = measured([[5e-3]] * 2)
    by_switch = measured([[2e-3]] * 2, rate_mbps=20)
    by_switch.timings[1].counts = Counts(frames_in=FRAME_BYTES)
    assert by_switch.link_share == pytest.approx(FRAME_BYTES / 5000)
    assert by_switch.payload_share == pytest.approx(FRAME_BYTES / 5000)
    assert compare.figures("switch", by_switch, ring)["over_ring"] == 2.5


def test_the_file_is_nccl_tests(tmp_path: Path) -> None:
    """The part that tools/analyze_perf_json.py reads, and the figures of the last line."""
    file = tmp_path / "found.json"
    words = f"reduce_scatter --switch embedded -b 4K -e 16K -f 4 -n 3 -w 2 -c 2 --workers 2 -J {file}"
    _, found = invoke(bench, words)
    written = json.loads(file.read_text())
    assert [each["size"] for each in written["results"]] == [4096, 16384]
    assert [written["config"][name] for name in ("warmup_iters", "iterations", "validation")] == [2, 3, 2]
    assert [device["hostname"] for device in written["config"]["devices"]] == ["h1", "h2"]
    for each, ours in zip(written["results"], found["embedded"], strict=True):
        assert (each["type"], each["redop"], each["experiment_name"]) == ("float", "sum", "embedded")
        for place, key in enumerate(("out_of_place", "in_place")):
            per_call = each[f"{key}_per_iter"]
            ranks = per_call["per_process_max_times_us"]
            assert per_call["times_us"] == [max(times) for times in zip(*ranks, strict=True)]
            assert min(per_call["times_us"]) == per_call["min_us"] <= per_call["p50_us"] <= per_call["p99_us"]
            assert per_call["p50_us"] == pytest.approx(ours["p50_us"][place], abs=0.1)
            assert each[key]["nwrong"] == ours["wrong"][place] == 0
            assert each[key]["bus_bw"] == pytest.approx(each[key]["alg_bw"] / 2)


@pytest.mark.full
def test_runs_are_compared() -> None:
    words = "broadcast --switch embedded --sizes 4K,16K -n 2 --workers 2,3 --loss 0,0.01 --rate-mbps 400"
    _, found = invoke(bench, words)
    assert [(run["workers"], run["loss"]) for run in found["runs"]] == [(2, 0.0), (3, 0.0), (2, 0.01)]
    assert found["embedded"] == found["runs"][0]["lines"]
    assert all(sum(line["wrong"]) == 0 < line["link_share"][0] for run in found["runs"] for line in run["lines"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("-e 1M", "-e, -i and -f need -b"),
        ("-b 1M -e 1K", "-e 1024 is less than -b 1048576"),
        ("-b 1K -e 1M -f 2 -i 4K", "not both"),
        ("-b 0 -e 4 -f 2", "-b must be 1 or more"),
        ("-b 4T", "'4T' is not a size such as"),
        ("--op avg --dtype int32", "--op avg is for floats"),
        ("--workers 2,9", "each must be within 1..8"),
    ],
)
def test_wrong_options_are_said(words: str, told: str) -> None:
    ran = CliRunner().invoke(bench, ["allreduce", *words.split()])
    assert (ran.exit_code, told in ran.output) == (2, True), ran.output


def test_a_root_must_be_a_rank_of_every_run() -> None:
    ran = CliRunner().invoke(bench, ["broadcast", "--workers", "4,2", "--root", "2"])
    assert (ran.exit_code, "--root 2 is not a rank of 2 workers" in ran.output) == (2, True), ran.output


def test_without_torch_gloo_is_left_out_and_its_extra_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "find_spec", lambda _name: None)
    assert compare.missing(["switch", "ring"]) == {}
    assert "[torch]" in compare.missing(["switch", "gloo"])["gloo"]


def test_a_comparison_is_drawn_with_every_number_of_workers(tmp_path: Path) -> None:
    rows = [
        {"rate_mbps": rate, "algorithm": name, "workers": workers, "size": 1 << 24, "time_us": 1e6, "wrong": 0}
        for rate in (0, 100)
        for name in ("switch", "gloo-bridge")
        for workers in (2, 4, 8)
    ]
    picture = tmp_path / "compared.svg"
    compare.draw(picture, {"rows": rows, "switch": "embedded", "date": "2026-01-31", "cores": 2, "python": "3.11.2"})
    texts = re.findall("<!-- (.*) -->", picture.read_text("utf-8"))
    assert "allreduce of float32, embedded switch; 2026-01-31, 2 cores, Python 3.11.2" in texts
    assert {"16M, links without a limit", "16M, links of 100 Mbit/s", "switch", "gloo-bridge"} <= {*texts}
    assert texts[texts.index("workers") - 3 : texts.index("workers")] == ["2", "4", "8"]


@pytest.mark.full
@pytest.mark.root
@pytest.mark.torch
def test_the_switch_hosts_and_gloo_are_compared_on_the_same_wires() -> None:
    words = "compare --switch embedded --rate-mbps 200,0 --delay-us 500 --workers 2 --size 4K,64K -n 2"
    _, found = invoke(bench, f"{words} --algorithms switch,ring,gloo")
    assert [(row["rate_mbps"], row["algorithm"], row["workers"], row["size"]) for row in found["rows"]] == [
        (rate, name, 2, size) for rate in (200, 0) for size in (4096, 65536) for name in ("switch", "ring", "gloo")
    ]
    rows = [row for row in found["rows"] if row["rate_mbps"]]
    assert (found["missing"], {row["wrong"] for row in rows}, found["delay_us"]) == ({}, {0}, 500)
    for row in rows:
        assert row["time_us"] > 2 * 500  # at least one round trip
        assert row["link_bytes"] > row["size"]  # by each algorithm: with two ranks, everything crosses every link
        assert 0 < row["payload_share"] <= row["link_share"]  # equal where nothing but blocks was sent
    ring = np.array([[row["time_us"], row["over_ring"]] for row in rows if row["algorithm"] == "ring"])
    assert (ring[:, 1] == 1).all()


@pytest.mark.full
@pytest.mark.root
@pytest.mark.torch
def test_gloo_over_a_bridge_and_links_without_a_limit() -> None:
    names = ("switch", "gloo", "gloo-bridge")
    words = f"compare --switch embedded --rate-mbps 0 --workers 2 --size 64K -n 2 --algorithms {','.join(names)}"
    _, found = invoke(bench, words)
    rows = found["rows"]
    assert [row["algorithm"] for row in rows] == list(names)
    for row in rows:
        assert (row["wrong"], row["payload_share"]) == (0, None)
        assert row["link_bytes"] > row["size"]
