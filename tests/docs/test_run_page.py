"""docs/run.md: its commands, run as a person would, print what the page says."""

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

PAGE = ROOT / "docs" / "run.md"
BLOCKS = blocks(PAGE)
PORTS = ("9001", "9002", "9003", "9004", "9559", "8080")
"""Ports that the page names; the test uses free ones instead."""


class Session:
    """A shell in a folder with the page's files, whose background jobs end with it."""

    def __init__(self, folder: Path, ports: dict[str, str]) -> None:
        self._folder = folder
        self._ports = ports
        self._token = ("", "")
        self._variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self._jobs: list[subprocess.Popen[bytes]] = []
        write_files(folder, PAGE)

    def here(self, text: str) -> str:
        """The page's text with this run's ports and token."""
        text = re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: self._ports[found[1]], text)
        return text.replace(*self._token) if self._token[0] else text

    def run(self, command: Command, code: int) -> None:
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
        printed = done.stderr + done.stdout
        assert done.returncode == code, (line, printed)
        assert same(printed) == same(expected), line
        for path in self._folder.glob("*.yaml"):  # what was just written names the page's ports
            path.write_text(self.here(path.read_text("utf-8")), "utf-8")
        if token := re.search(r"^token (\S+)", printed, re.MULTILINE):
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


def same(text: str) -> list[str]:
    """Lines in any order, as ranks print them; epoch and token are new in every run."""
    return sorted(re.sub(r"(epoch|token) \S+", r"\1 X", text).splitlines())


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Runs the page's blocks whose title begins with a word."""
    with ExitStack() as stack:
        ports = {port: hold_address(stack).rpartition(":")[2] for port in PORTS}
    opened = Session(tmp_path, ports)

    def go(word: str) -> None:
        for block in BLOCKS:
            kind, *more = block.title.split() or [""]
            code = next((int(each.removeprefix("exit=")) for each in more if each.startswith("exit=")), 0)
            for command in commands(block.text) if kind == word else ():
                opened.run(command, code)

    yield go
    opened.close()


@pytest.mark.full
def test_runs_in_a_fabric_of_their_own_on_the_embedded_switch(session: Callable[[str], None]) -> None:
    session("own")


@pytest.mark.full
def test_attached_runs_on_the_embedded_switch(session: Callable[[str], None]) -> None:
    session("attached")


def test_every_command_is_run() -> None:
    assert {block.title.split()[0] for block in BLOCKS if block.language == "console"} == {"own", "attached"}


def test_every_option_is_on_the_page() -> None:
    text = PAGE.read_text("utf-8")
    options = {option for parameter in run.params for option in parameter.opts if option.startswith("-")}
    assert {option for option in options if not re.search(rf"`[^`]*{option}\b", text)} == set()
