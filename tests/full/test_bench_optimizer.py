"""``netsum bench optimizer``."""

from __future__ import annotations

from pathlib import Path

import pytest
from netsum_testbed.bench.optimizer import EACH, HERE, SUMMED
from netsum_testbed.bench.optimizer_command import optimizer

from tests.full.commands import invoke


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
