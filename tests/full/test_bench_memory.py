"""``netsum bench memory`` and ``optimizer``."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from netsum_testbed.bench.memory_command import bench_memory
from netsum_testbed.bench.optimizer import EACH, HERE, SUMMED
from netsum_testbed.bench.optimizer_command import optimizer

from tests.full.commands import invoke


@pytest.mark.full
def test_memory_is_timed_beside_an_echo_and_behind_a_switch() -> None:
    words = "--switch embedded --sizes 64,8K --seconds 0.05 --turns 1 --latencies 5"
    _, told = invoke(bench_memory, words)
    assert list(told["loopback"]["echo"]) == ["read", "write"]
    assert list(told["embedded"]) == ["interleaved", "not interleaved", "two replicas", "skewed"]
    for target in (*told["loopback"].values(), *list(told["embedded"].values())[:3]):
        for sizes in target.values():
            for size, each in sizes.items():
                assert each["bytes_per_second"] == pytest.approx(each["per_second"] * int(size), rel=0.01)
                assert 0 < each["p50_us"] <= each["p99_us"]
    skewed = told["embedded"]["skewed"]
    assert all(sum(each["shares"]) == pytest.approx(1, abs=0.01) for each in skewed.values())
    assert max(skewed["interleaved"]["shares"]) < 0.5 < max(skewed["not interleaved"]["shares"])


def test_a_size_that_no_instruction_has_is_refused() -> None:
    ran = CliRunner().invoke(bench_memory, ["--sizes", "100"])
    assert ran.exit_code == 2
    assert "8, 16, ... or 8192 bytes, not 100" in ran.output


@pytest.mark.full
def test_three_ways_are_timed_and_agree(tmp_path: Path) -> None:
    words = f"--switch embedded --steps 2 --workers 2 --devices 1 --sizes 8K,64K --plot {tmp_path}"
    _, told = invoke(optimizer, words)
    for size, found in zip((8192, 65536), told["embedded"], strict=True):
        assert found["size"] == size
        assert found["apart"] < 1e-6  # an allreduce's fixed point, and float32 at the memory
        assert size <= found[EACH]["sent"] <= 1.2 * size
        assert 2 * size <= found[EACH]["to_memory"] <= 2.4 * size
        # Once to both, but for what is asked for again, which takes at least as many bytes to ask.
        assert size <= found[EACH]["from_memory"] < found[EACH]["to_memory"]
        assert size <= found[SUMMED]["to_memory"] <= 1.2 * size
        assert found[HERE]["to_memory"] == 0
    assert {path.name for path in tmp_path.iterdir()} == {"optimizer-embedded-time.png", "optimizer-embedded-bytes.png"}
