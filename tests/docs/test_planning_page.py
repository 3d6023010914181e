# SPDX-License-Identifier: MIT
"""docs/planning.md: commands and the program print what the page says, and its tables are what they find."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from netsum_controller.cli import cli
from netsum_planner.training.job import Machine, read_training
from netsum_planner.training.timeline import scaling

from tests.docs.pages import ROOT, blocks, commands, write_files
from tests.docs.tables import table
from tests.threads import PATIENCE

PAGE = ROOT / "docs" / "planning.md"
ELISION = "..."
"""A line of the page that stands for any number of lines of output."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Has the page's files."""
    write_files(tmp_path, PAGE)
    return tmp_path


def told(text: str) -> list[str]:
    """Lines without the spaces of a table, and without the seconds that something took."""
    return [re.sub(r"\b\d+\.\d+ s\b", "T s", " ".join(line.split())) for line in text.splitlines() if line.strip()]


def shows(page: list[str], printed: list[str]) -> bool:
    """Whether the page's lines are those that were printed, all of them but for what an elision stands for."""
    pattern = "".join("(?:.*\n)+" if line == ELISION else re.escape(line + "\n") for line in page)
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


def test_an_elision_is_some_lines_and_nothing_else_is_left_out() -> None:
    assert shows(["a", ELISION, "d"], ["a", "b", "c", "d"])
    assert not shows(["a", ELISION, "d"], ["a", "d"])
    assert not shows(["a", ELISION, "d"], ["a", "b", "d", "e"])
    assert not shows(["a", "c"], ["a", "b", "c"])
    assert not shows(["a.c"], ["abc"])


@pytest.mark.full
def test_commands_print_what_the_page_says(folder: Path) -> None:
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run = partial(subprocess.run, cwd=folder, env=variables, text=True, capture_output=True, timeout=PATIENCE)
    done = 0
    for block in blocks(PAGE):
        for line, expected in commands(block.text) if block.language == "console" else ():
            ran = run(["bash", "-c", line])
            assert (ran.returncode, told(ran.stderr)) == (0, []), line
            assert shows(told(expected), told(ran.stdout)), (line, told(ran.stdout))
            done += 1
    assert done >= 15


def test_the_program_prints_what_its_comment_says(folder: Path) -> None:
    (program,) = [block.text for block in blocks(PAGE) if block.language == "python"]
    ran = subprocess.run([sys.executable, "-c", program], cwd=folder, text=True, capture_output=True, check=True)
    (comment,) = re.findall(r"# (.*)$", program, re.MULTILINE)
    assert ran.stdout.strip() == comment


def test_the_optima_are_what_the_command_finds(folder: Path) -> None:
    shapes, rates, trees = (row[1:] for row in table(PAGE, "`netsum plan make`"))
    assert len(shapes) == 8
    for words, rate, number in zip(shapes, rates, trees, strict=True):
        made = CliRunner().invoke(cli, ["plan", "make", *words.split()], catch_exceptions=False)
        (folder / "made.yaml").write_text(made.output)
        shown = CliRunner().invoke(
            cli, ["plan", "optimum", str(folder / "made.yaml"), "--collective", "allgather"], catch_exceptions=False
        )
        (line,) = [line.split() for line in shown.output.splitlines() if "forward " in line]
        assert (line[1], line[3]) == (rate, number), words


@pytest.mark.parametrize("workers", [8, pytest.param(512, marks=pytest.mark.full)])
def test_the_steps_are_what_is_predicted(workers: int, folder: Path) -> None:
    head, *rows = table(PAGE, "Gbit/s")
    column = next(n for n, cell in enumerate(head) if re.fullmatch(rf"(?:ring: )?{workers}(?: workers)?", cell))
    told = {
        (float(row[0]), algorithm): row[number] for row in rows for algorithm, number in (("in_network", 1), ("ring", column))
    }
    assert len(told) == 8
    found = scaling(read_training(folder / "bert.yaml"), Machine(gflops=100_000), [workers], sorted({rate for rate, _ in told}))
    for point in found:
        step, efficiency = point.step.step * 1e3, point.step.efficiency
        assert told.pop((point.gbps, point.algorithm)) == f"{step:,.1f} ({efficiency:.0%})"
    assert not told
