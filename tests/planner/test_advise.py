# SPDX-License-Identifier: MIT
"""`netsum advise`: forecasts follow from what was measured, and the shipped measurement bears them out."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from netsum_bench.train import Training
from netsum_planner.training.advise import GLOO, MEASURED, advise, check, forecast, read

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "performance.md").read_text("utf-8")

BACKENDS = ("netsum", "gloo")


def measured(switch_ms: float, gloo_ms: float) -> dict[str, Any]:
    """As printed for 4 workers whose sums of a megabyte take so long over links without a limit."""
    figures = {"netsum": {"communicate_ms": switch_ms}, GLOO: {"communicate_ms": gloo_ms}}
    return {"workers": 4, "embedded": [{"rate_mbps": None, "gradient_bytes": 10**6, **figures}]}


def test_a_ring_carries_more_over_each_link_and_a_switch_costs_the_host_more() -> None:
    figures = measured(50, 10)
    by_way = {each.way: each for each in forecast(figures, 10**6, 4, 10, 100)}
    assert by_way["embedded"].sums_ms == pytest.approx(50 + 800)
    assert by_way[GLOO].sums_ms == pytest.approx(10 + 1.5 * 800)
    assert by_way[GLOO].step_ms == pytest.approx(100 + 10 + 1.5 * 800)
    assert [each.way for each in forecast(figures, 10**6, 4, 10, 100)] == ["embedded", GLOO]
    assert [each.way for each in forecast(figures, 10**6, 4, 1000, 100)] == [GLOO, "embedded"]
    twice = {each.way: each for each in forecast(figures, 2 * 10**6, 8, None, 0)}
    assert twice["embedded"].sums_ms == pytest.approx(4 * 50)


def test_the_shipped_measurement_and_what_the_page_says_of_it() -> None:
    figures = read(MEASURED)
    rows = check(figures)
    errors = [abs(expected / step - 1) for _, _, step, expected in rows]
    said = f"off by {statistics.median(errors):.0%} (median) and at most {max(errors):.0%}"
    assert said in " ".join(PAGE.split())
    for switch in ("bmv2", "embedded"):
        for run in figures[switch]:
            assert run["replicas_equal"] == dict.fromkeys(BACKENDS, True)
            assert run["copied_per_byte"] == 0
            name = {"bmv2": "simple_switch_grpc"}.get(switch, switch)
            rate = f"{run['rate_mbps']} Mbit/s" if run["rate_mbps"] else "unlimited"
            figured = ("step", "backward", "compute", "communicate")
            cells = [" / ".join(f"{run[backend][f'{each}_ms']:.0f}" for backend in BACKENDS) for each in figured]
            assert f"| {name} | {rate} | {' | '.join(cells)} |" in PAGE
    assert all(figures[name] == value for name, value in vars(Training()).items() if name not in ("steps",))


def test_the_command_says_which_is_fastest_and_how_sure_it_is(tmp_path: Path) -> None:
    words = ["--size", "45M", "--compute-ms", "200", "--host-rate", "10M"]
    ran = CliRunner().invoke(advise, words)
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.output.splitlines()[-1])
    assert found["fastest"] == found["ways"][0]["way"] == "embedded"
    assert found["speedup"] > 1
    assert 0 < found["error"] < found["largest_error"]
    assert "Nothing was measured at 47.2 MB: run" in ran.output.splitlines()[0]
    far = ["--size", "1M", "--compute-ms", "200", "--host-rate", "25G", "--hosts", "16"]
    first = CliRunner().invoke(advise, far).output.splitlines()[0]
    assert first.startswith("Extrapolated from 6 trainings of 4 workers on 2 cores that workers and switch shared: ")
    assert " Nothing was measured at 25000 Mbit/s, 16 workers: run `netsum bench train` on such hosts, " in first
    within = CliRunner().invoke(advise, ["--size", "1M", "--compute-ms", "200", "--host-rate", "1000M"])
    assert "Nothing was measured" not in within.output
    broken = tmp_path / "broken.json"
    broken.write_text('{"workers": 4}\n')
    ran = CliRunner().invoke(advise, [*words, "--measured", str(broken)])
    assert ran.exit_code == 1
    assert "not that of a `netsum bench train`" in str(ran.exception)
