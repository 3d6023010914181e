"""docs/tour.md, run command by command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from netsum_testbed.free_ports import free_port

from tests.docs.pages import ROOT, blocks, commands, write_files
from tests.threads import PATIENCE

FILE = ROOT / "docs" / "tour.md"
PAGE = blocks(FILE)
BIN = Path(sys.executable).parent
# Ports that the page names; the test uses free ones instead.
PORTS = ("9001", "9002", "9101", "9102", "9559")


class Tour:
    """A folder with the page's files, its ports replaced, and its commands run there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {port: str(free_port()) for port in PORTS}
        self.variables = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "200"}
        write_files(folder, FILE)
        for path in folder.glob("*.yaml"):
            path.write_text(self.here(path.read_text("utf-8")), "utf-8")

    def here(self, text: str) -> str:
        return re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: self.ports[found[1]], text)

    def run(self, line: str) -> str:
        """The output of the command, errors last."""
        words = shlex.split(line)
        if words[0] == "export":
            self.variables |= dict(word.split("=", 1) for word in words[1:])
            return ""
        done = subprocess.run(
            words, cwd=self.folder, env=self.variables, text=True, capture_output=True, check=False, timeout=120
        )
        assert done.returncode == 0, (line, done.stderr)
        return done.stdout + done.stderr

    def start_switch(self) -> tuple[subprocess.Popen[str], str]:
        """The page's switch, and the line that it printed when it was ready."""
        ((line, expected),) = commands(next(block for block in PAGE if block.title == "switch").text)
        words = shlex.split(self.here(line.removesuffix(" &")))
        words[1:1] = ["--ready-file", "ready.json"]
        process = subprocess.Popen(
            words, cwd=self.folder, env=self.variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        deadline = time.monotonic() + PATIENCE
        while not (self.folder / "ready.json").exists():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline, "the switch did not get ready"
            time.sleep(0.01)
        return process, self.here(expected)


@pytest.fixture
def tour(tmp_path: Path) -> Iterator[Tour]:
    tour = Tour(tmp_path)
    process, expected = tour.start_switch()
    try:
        yield tour
    finally:
        process.terminate()
        printed, _ = process.communicate(timeout=PATIENCE)
    assert expected in printed
    assert process.returncode == 0


def without_what_changes(text: str) -> str:
    """Epoch and token are new in every run."""
    for changing, fixed in ((r"epoch \d+", "epoch N"), (r"token \S+", "token T"), (r"open for \S+ s", "open for T s")):
        text = re.sub(changing, fixed, text)
    return text


@pytest.mark.full
def test_tour_prints_what_the_page_says(tour: Tour) -> None:
    done = 0
    for block in PAGE:
        if block.title != "tour":
            continue
        for line, expected in commands(block.text):
            assert without_what_changes(tour.run(line)) == without_what_changes(expected), line
            done += 1
    assert done >= 9
