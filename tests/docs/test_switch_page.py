# SPDX-License-Identifier: MIT
"""docs/switch.md: its commands and programs do what it says; its table of the contract and its flags are the code's."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest
from netsum_switch.cli import parse

from tests.docs.pages import ROOT, blocks, commands
from tests.switch.harness.contract_table import all_rows, summary
from tests.switch.harness.mininet_prompt import MininetPrompt
from tests.switch.harness.p4shell import PYTHON

PAGE = ROOT / "docs" / "switch.md"
COPY, COMPILATION, TRIAL = (
    command for block in blocks(PAGE) if (block.language, block.title) == ("console", "own") for command in commands(block.text)
)
FLAG = re.compile(r"--[a-z][a-z0-9-]+")


def environment(tools: Path) -> dict[str, str]:
    """The environment of the page's commands, with ``tools`` first on PATH."""
    return {**os.environ, "PATH": f"{tools}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}


def run(lines: str, folder: Path, tools: Path) -> str:
    """Run commands of the page in a shell and return their standard output; all must succeed."""
    done = subprocess.run(["bash", "-ec", lines], cwd=folder, env=environment(tools), capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Has the command python3: the Python that has p4runtime-shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").write_text(f'#!/bin/sh\nexec {PYTHON} "$@"\n', "utf-8")
    (folder / "python3").chmod(0o755)
    return folder


@pytest.fixture
def folder(tmp_path: Path, tools: Path) -> Path:
    """Has the example's files, and those of the compiler."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert run(f"{COPY.line}\n{COMPILATION.line}", tmp_path, tools) == ""
    return tmp_path / "l2"


@pytest.mark.p4c
@pytest.mark.shell
def test_without_root(folder: Path, tools: Path) -> None:
    assert run(TRIAL.line, folder, tools).endswith(TRIAL.output)


@pytest.mark.p4c
@pytest.mark.shell
@pytest.mark.root
def test_in_mininet(folder: Path, tools: Path) -> None:
    with MininetPrompt([PYTHON, "network.py"], folder, environment(tools)) as mininet:
        assert "3 packets transmitted, 3 received, 0% packet loss" in mininet.run("h1 ping -c 3 -W 600 h2")
        for name in ("s1-eth1_in.pcap", "s1-eth2_out.pcap"):
            assert (folder / name).stat().st_size >= 24 + 3 * (16 + 98), "the pings"
        mininet.exit()
    assert "stopped by SIGTERM" in (folder / "s1.txt").read_text()


def test_quotations() -> None:
    quoted = [block for block in blocks(PAGE) if block.title.startswith("from=")]
    assert {Path(block.title).suffix for block in quoted} == {".p4", ".py"}
    for block in quoted:
        source = (ROOT / block.title.removeprefix("from=")).read_text("utf-8")
        assert any(textwrap.indent(block.text, " " * depth) in source for depth in (0, 4, 8)), block.text


def test_table_of_the_contract() -> None:
    assert f"\n{summary(all_rows())}\n" in PAGE.read_text("utf-8"), "python -m tests.switch.harness.contract_table prints it"


def test_flags(capsys: pytest.CaptureFixture[str]) -> None:
    """The command takes those that the table has, and none of those that the page says it refuses."""
    with pytest.raises(SystemExit):
        parse(["--help"])
    known = set(FLAG.findall(capsys.readouterr().out))
    section = PAGE.read_text("utf-8").partition("\n## Starting it\n")[2].partition("\n## ")[0]
    table = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    assert {"--ready-file", "--cpu-port"} <= set(FLAG.findall(table)) <= known
    refused = set(FLAG.findall(section)) - known
    assert len(refused) == 3
    for flag in refused:
        for line in (["--no-p4", flag], ["--no-p4", "--", flag]):
            with pytest.raises(SystemExit) as error:
                parse(line)
            assert error.value.code == 2
