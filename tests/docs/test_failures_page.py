"""docs/failures.md: its tests exist, its times are the code's, and its program survives the death of a rank."""

from __future__ import annotations

import ast
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.fabrics import RootlessFabric

from tests.docs.pages import ROOT, blocks
from tests.docs.programs import start
from tests.threads import PATIENCE

PAGE = ROOT / "docs" / "failures.md"
TEXT = PAGE.read_text("utf-8")


def functions_of_the_suite() -> set[str]:
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 20
    assert named <= functions_of_the_suite()


@pytest.mark.full
def test_the_program_survives_the_death_of_a_rank(tmp_path: Path) -> None:
    """Rank 1 is killed in the middle, and started again."""
    (program,) = [block for block in blocks(PAGE) if block.language == "python"]
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
