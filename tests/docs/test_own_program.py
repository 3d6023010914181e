"""docs/your-own-program.md: its commands and programs do what it says."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, commands, write_files
from tests.switch.harness.mininet_prompt import MininetPrompt
from tests.switch.harness.p4shell import PYTHON

pytestmark = [pytest.mark.p4c, pytest.mark.shell]

PAGE = ROOT / "docs" / "your-own-program.md"
COMPILATION, TRIAL = (command for block in blocks(PAGE) if block.language == "console" for command in commands(block.text))


ENVIRONMENT = {**os.environ, "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}


def run(line: str, folder: Path) -> str:
    """Run a command of the page, with the Python that has p4runtime-shell; returns its standard output."""
    words = [PYTHON if word == "python3" else word for word in shlex.split(line)]
    done = subprocess.run(words, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Has the page's files, and those of the compiler."""
    write_files(tmp_path, PAGE)
    assert run(COMPILATION.line, tmp_path) == ""
    return tmp_path


def test_without_root(folder: Path) -> None:
    assert run(TRIAL.line, folder).endswith(TRIAL.output)


@pytest.mark.root
def test_in_mininet(folder: Path) -> None:
    with MininetPrompt([PYTHON, "network.py"], folder, ENVIRONMENT) as mininet:
        assert "3 packets transmitted, 3 received, 0% packet loss" in mininet.run("h1 ping -c 3 -W 600 h2")
        for name in ("s1-eth1_in.pcap", "s1-eth2_out.pcap"):
            assert (folder / name).stat().st_size >= 24 + 3 * (16 + 98), "the pings"
        mininet.exit()
    assert "stopped by SIGTERM" in (folder / "s1.txt").read_text()
