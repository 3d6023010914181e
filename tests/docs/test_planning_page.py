"""docs/planning.md, docs/placement.md: commands and the program print what the pages say, and a table is what they find."""

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

from tests.docs.pages import ROOT, blocks, commands, write_files
from tests.threads import PATIENCE

PAGE = ROOT / "docs" / "planning.md"
PLACEMENT = ROOT / "docs" / "placement.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Has the pages' files."""
    write_files(tmp_path, PAGE, PLACEMENT)
    return tmp_path


def told(text: str) -> list[str]:
    """Lines without the spaces of a table, and without the seconds that something took."""
    return [re.sub(r"\b\d+\.\d+ s\b", "T s", " ".join(line.split())) for line in text.splitlines() if line.strip()]


@pytest.mark.full
@pytest.mark.parametrize(("page", "least"), [(PAGE, 5), (PLACEMENT, 3)], ids=lambda each: getattr(each, "stem", ""))
def test_commands_print_what_the_page_says(page: Path, least: int, folder: Path) -> None:
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run = partial(subprocess.run, cwd=folder, env=variables, text=True, capture_output=True, timeout=PATIENCE)
    done = 0
    for block in blocks(page):
        for line, expected in commands(block.text) if block.language == "console" else ():
            ran = run(["bash", "-c", line])
            assert (ran.returncode, told(ran.stderr), told(ran.stdout)) == (0, [], told(expected)), line
            done += 1
    assert done >= least


def test_the_program_prints_what_its_comment_says(folder: Path) -> None:
    (program,) = [block.text for block in blocks(PAGE) if block.language == "python"]
    ran = subprocess.run([sys.executable, "-c", program], cwd=folder, text=True, capture_output=True, check=True)
    (comment,) = re.findall(r"# (.*)$", program, re.MULTILINE)
    assert ran.stdout.strip() == comment


def test_the_table_is_what_the_command_finds(folder: Path) -> None:
    rows = re.findall(r"^\| [^|]* \| `([^`]*)` \| ([\d.]+) \| (\d+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == 8
    for words, rate, trees in rows:
        made = CliRunner().invoke(cli, ["plan", "make", *words.split()], catch_exceptions=False)
        (folder / "made.yaml").write_text(made.output)
        shown = CliRunner().invoke(
            cli, ["plan", "optimum", str(folder / "made.yaml"), "--collective", "allgather"], catch_exceptions=False
        )
        (line,) = [line.split() for line in shown.output.splitlines() if "forward " in line]
        assert (line[1], line[3]) == (rate, trees), words
