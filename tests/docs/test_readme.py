# SPDX-License-Identifier: MIT
"""The README's code, run: the training loop on a fabric of two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.fabrics import RootlessFabric

from tests.docs.pages import ROOT, blocks
from tests.docs.programs import run_ranks


def test_training_loop_trains_and_all_ranks_hold_the_same_bits(tmp_path: Path) -> None:
    (loop,) = [block for block in blocks(ROOT / "README.md") if block.title == "training-loop"]
    script = tmp_path / "train.py"
    script.write_text(loop.text, "utf-8")
    with RootlessFabric(star(2)) as fabric:
        printed = run_ranks(script, fabric, fabric.create_job(JobSpec(name="pair", members=("h1", "h2"))))
    ranks, weights = zip(*(out.split(" ", 1) for out in printed), strict=True)
    assert ranks == ("0", "1")
    assert weights[0] == weights[1]
    assert json.loads(weights[0]) == pytest.approx([1.0, -2.0, 0.5], abs=1e-6)
