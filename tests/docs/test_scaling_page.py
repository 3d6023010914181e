"""docs/scaling.md: its training is read, and the table's first rows are what the simulator finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from netsum_planner.training.job import Machine, read_training
from netsum_planner.training.timeline import scaling

from tests.docs.pages import ROOT, write_files

PAGE = ROOT / "docs" / "scaling.md"


@pytest.mark.parametrize("workers", [8, pytest.param(512, marks=pytest.mark.full)])
def test_the_table_is_what_is_predicted(workers: int, tmp_path: Path) -> None:
    write_files(tmp_path, PAGE)
    rows = re.findall(
        r"^\| ([\d,]+) \| (\d+) \| ([\d.,]+) \| \d+% \| ([\d.,]+) \| \d+% \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert len(rows) == 16
    told = {
        (float(rate), name): float(text.replace(",", ""))
        for number, rate, inside, ring in rows
        if number == str(workers)
        for name, text in (("in_network", inside), ("ring", ring))
    }
    found = scaling(read_training(tmp_path / "bert.yaml"), Machine(gflops=100_000), [workers], sorted({rate for rate, _ in told}))
    for point in found:
        assert round(point.step.step * 1e3, 1) == told.pop((point.gbps, point.algorithm))
    assert not told
