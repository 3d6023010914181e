# SPDX-License-Identifier: MIT
"""Fixtures of the testbed's tests: the switches, and commands that must leave nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from netsum_controller.cli import cli, main

from tests.full.commands import shell_code
from tests.system import SEARCH_PATH
from tests.system.stragglers.command import stragglers
from tests.system.stragglers.detection import detection
from tests.threads import PATIENCE

MARK = "NETSUM_TEST_MARK"
NETSUM = ("-c", "from netsum_controller.cli import main; main()")
SYSTEM = ("-m", "tests.system")
SYSTEM_TESTS = {"stragglers", "detection", "cluster-check"}
ROOT = Path(__file__).parents[2]


@pytest.fixture(
    params=[
        pytest.param("embedded", marks=pytest.mark.root),
        pytest.param("bmv2", marks=[pytest.mark.root, pytest.mark.bmv2]),
    ]
)
def switch(request: pytest.FixtureRequest) -> str:
    """Each kind of switch, on network interfaces."""
    return str(request.param)


class Netsum:
    """A ``netsum`` command, or a system test's, with a TMPDIR of its own; all it starts has a mark in its environment."""

    def __init__(self, *arguments: str, commands: str = "") -> None:
        self.mark = uuid.uuid4().hex
        self.directory = Path(tempfile.mkdtemp(prefix="ns"))  # short: there will be unix sockets in it
        self._interfaces = interfaces()
        self.process = subprocess.Popen(
            [sys.executable, *(SYSTEM if arguments[0] in SYSTEM_TESTS else NETSUM), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                MARK: self.mark,
                "TMPDIR": str(self.directory),
                "COLUMNS": "200",
                "PYTHONPATH": SEARCH_PATH,
            },
            cwd=ROOT,
            text=True,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(commands)
        self.process.stdin.close()
        self.lines: list[str] = []
        self._arrived = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._arrived:
                self.lines.append(line.rstrip("\n"))
                self._arrived.notify_all()
        with self._arrived:
            self._arrived.notify_all()

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, text: str, timeout: float = PATIENCE) -> None:
        """Return when a line with that text has come."""
        with self._arrived:
            came = self._arrived.wait_for(
                lambda: any(text in line for line in self.lines) or not self._reader.is_alive(), timeout
            )
        assert came, self.output
        assert text in self.output, self.output

    def finish(self, timeout: float = PATIENCE) -> int:
        """The exit code, as a shell shows it."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {timeout} s:\n{self.output}")
        self._reader.join(timeout)
        return shell_code(code)

    def json(self) -> Any:
        """The last line."""
        return json.loads(self.lines[-1])

    def marked(self) -> dict[int, str]:
        """The processes that carry the mark, except the command itself: pid -> command line."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.process.pid:
                try:
                    if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue  # it has just ended, or is not ours
        return {pid: command for pid, command in found.items() if command}

    def no_process_left(self) -> None:
        """Assert that all processes end (and with them namespaces that have no name, and their interfaces)."""
        deadline = time.monotonic() + PATIENCE
        while self.marked():
            assert time.monotonic() < deadline, self.marked()
            threading.Event().wait(0.05)

    def nothing_left(self) -> None:
        """Assert that no process, file, named namespace or interface is left."""
        self.no_process_left()
        assert list(self.directory.iterdir()) == []
        assert list(Path("/run/netns").glob(f"netsum-{self.process.pid}-*")) == []
        assert interfaces() <= self._interfaces

    def ends(self, code: int = 0) -> None:
        """Assert that it ends with this exit code, and that nothing is left."""
        assert self.finish() == code, self.output
        self.nothing_left()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(PATIENCE)
        for pid in self.marked():
            os.kill(pid, signal.SIGKILL)
        if self.process.stdout is not None:
            self.process.stdout.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def interfaces() -> set[str]:
    """Mininet-like interfaces in our own namespace."""
    return {path.name for path in Path("/sys/class/net").iterdir() if "-eth" in path.name}


Start = Callable[..., Netsum]


@pytest.fixture
def netsum() -> Iterator[Start]:
    """Starts ``netsum`` with these arguments and, on its standard input, ``commands``."""
    running: list[Netsum] = []

    def start(*arguments: str, commands: Sequence[str] = ()) -> Netsum:
        running.append(Netsum(*arguments, commands="".join(f"{line}\n" for line in commands)))
        return running[-1]

    yield start
    for command in running:
        command.close()


Refused = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs a command that ends before it has started anything, in this process: its exit code and its lines."""
    for command in (stragglers, detection):
        monkeypatch.setitem(cli.commands, str(command.name), command)
    for module in (
        "netsum_testbed.commands",
        "tests.system.stragglers.command",
        "tests.system.stragglers.detection",
    ):
        monkeypatch.setattr(f"{module}.end_on_signals", lambda: None)
    monkeypatch.chdir(ROOT)

    def run(*arguments: str) -> tuple[int, list[str]]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        assert isinstance(ended.value.code, int)
        return ended.value.code, "".join(capsys.readouterr()).splitlines()

    return run
