# SPDX-License-Identifier: MIT
"""docs/operating.md: its tests and metrics exist, and its program survives the death of a rank."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from documentation import metrics
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.fabrics import RootlessFabric

from tests.docs.pages import ROOT, blocks
from tests.docs.programs import start
from tests.threads import PATIENCE

PAGE = ROOT / "docs" / "operating.md"
TEXT = PAGE.read_text("utf-8")


def test_every_file_of_tests_that_is_named_exists() -> None:
    named = set(re.findall(r"`(?:tests/full/)?(test_[\w*]+\.py)`", TEXT))
    assert len(named) > 10
    assert {name for name in named if not any((ROOT / "tests").rglob(name))} == set()


def test_every_metric_that_is_named_is_exported() -> None:
    exported = set(re.findall(r"^\| `(netsum_\w+)` \|", metrics.page(), re.MULTILINE))
    named = set(re.findall(r"netsum_\w+_(?:total|up|seconds|members)", TEXT))
    assert len(named) > 3
    assert named <= exported


@pytest.mark.full
def test_the_program_survives_the_death_of_a_rank(tmp_path: Path) -> None:
    """Rank 1 is killed in the middle, and started again."""
    (program,) = [block for block in blocks(PAGE) if block.title == "ranks=2"]
    said = program.text.replace("            step += 1\n", "            step += 1\n            print(step, flush=True)\n")
    assert said != program.text
    script = tmp_path / "program.py"
    script.write_text(said, "utf-8")
    with RootlessFabric(star(2)) as fabric, ExitStack() as stack:
        job = fabric.create_job(JobSpec(name="page", members=("h1", "h2")))
        first, second = (start(stack, script, fabric, job, rank) for rank in range(2))
        assert second.stdout is not None
        while second.stdout.readline() != "50\n":
            assert second.poll() is None, "rank 1 has ended"
        second.kill()
        second.communicate()
        again = start(stack, script, fabric, job, 1)
        ends = [process.communicate(timeout=PATIENCE)[0].splitlines()[-1] for process in (first, again)]
    assert ends == ["400 -600.0"] * 2
