# SPDX-License-Identifier: MIT
"""docs/getting-started.md: its commands, run as a person would, print what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from netsum_testbed.free_ports import hold_address
from netsum_testbed.launch import run

from tests.docs.pages import ROOT, Command, blocks, commands, write_files
from tests.threads import PATIENCE

PAGE = ROOT / "docs" / "getting-started.md"
BLOCKS = blocks(PAGE)
PORTS = ("9001", "9002", "9003", "9004", "9559", "8080")
"""Ports that the page names; the test uses free ones instead."""


class Session:
    """A shell in a folder with the page's files, whose background jobs end with it."""

    def __init__(self, folder: Path, ports: dict[str, str]) -> None:
        self._folder = folder
        self._ports = ports
        self._token = ("", "")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._variables = {**os.environ, "PATH": path, "COLUMNS": "200"}  # tables do not fold
        self._jobs: list[subprocess.Popen[bytes]] = []
        write_files(folder, PAGE)

    def here(self, text: str) -> str:
        """The page's text with this run's ports and token."""
        text = re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: self._ports[found[1]], text)
        return text.replace(*self._token) if self._token[0] else text

    def run(self, command: Command) -> None:
        line, expected = self.here(command.line), self.here(command.output)
        if line.startswith("export "):
            self._variables |= dict(word.split("=", 1) for word in line.split()[1:])
            return
        if line.endswith(" &"):
            self._start(line.removesuffix(" &"), expected)
            return
        done = subprocess.run(
            ["bash", "-c", line], cwd=self._folder, env=self._variables, text=True, capture_output=True, check=False,
            timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        if line.startswith("netsum run "):
            assert in_any_order(done.stderr + done.stdout) == in_any_order(expected), line
        else:
            assert without_what_changes(done.stdout + done.stderr) == without_what_changes(expected), line
        for path in self._folder.glob("*.yaml"):  # what was just written names the page's ports
            path.write_text(self.here(path.read_text("utf-8")), "utf-8")
        if token := re.search(r"^token (\S+)", done.stdout, re.MULTILINE):
            named = re.search(r"^token (\S+)", expected, re.MULTILINE)
            assert named is not None
            self._token = (named[1], token[1])

    def _start(self, line: str, expected: str) -> None:
        """Start a background job and wait until it has printed what the page says."""
        output = self._folder / f"output.{len(self._jobs)}"
        with output.open("wb") as file:
            words = ["bash", "-c", f"exec {line}"]
            self._jobs.append(subprocess.Popen(words, cwd=self._folder, env=self._variables, stdout=file, stderr=file))
        deadline = time.monotonic() + PATIENCE
        while expected not in output.read_text():
            assert self._jobs[-1].poll() is None, output.read_text()
            assert time.monotonic() < deadline, (line, output.read_text())
            time.sleep(0.02)

    def close(self) -> None:
        """End the background jobs, the last one first; all of them must end well."""
        for job in reversed(self._jobs):
            job.terminate()
            assert job.wait(PATIENCE) == 0


def without_what_changes(text: str) -> str:
    """The text without what is new in every run: epochs, tokens and times."""
    for changing, fixed in ((r"epoch \d+", "epoch N"), (r"token \S+", "token T"), (r"open for \S+ s", "open for T s")):
        text = re.sub(changing, fixed, text)
    return text


def in_any_order(text: str) -> list[str]:
    """The lines in an order of their own: ranks print theirs in any order."""
    return sorted(without_what_changes(text).splitlines())


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Callable[[str], int]]:
    """Runs the commands of the page's console blocks of a title, and returns their number."""
    with ExitStack() as stack:
        ports = {port: hold_address(stack).rpartition(":")[2] for port in PORTS}
    opened = Session(tmp_path, ports)

    def go(title: str) -> int:
        lines = [each for block in BLOCKS if block.title == title for each in commands(block.text)]
        for line in lines:
            opened.run(line)
        return len(lines)

    yield go
    opened.close()


@pytest.mark.full
def test_runs_in_a_fabric_of_their_own_on_the_embedded_switch(session: Callable[[str], int]) -> None:
    assert session("own") >= 2


@pytest.mark.full
def test_a_look_inside_prints_what_the_page_says(session: Callable[[str], int]) -> None:
    assert session("inside") >= 13


def test_every_command_is_run() -> None:
    assert {block.title for block in BLOCKS if block.language == "console"} == {"own", "inside"}


def test_every_option_is_on_the_page() -> None:
    text = PAGE.read_text("utf-8")
    options = {option for parameter in run.params for option in parameter.opts if option.startswith("-")}
    assert {option for option in options if not re.search(rf"`[^`\n]*{option}\b", text)} == set()
