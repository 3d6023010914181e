# SPDX-License-Identifier: MIT
"""Child processes that never outlive this one: stopped in order, and ended by the kernel if this process is killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final

from netsum.status_signal import handles
from netsum_controller.config.topology import Topology

from netsum_testbed.errors import TestbedError

STARTS: Final = 600.0
"""Seconds within which a child must answer. A child that ends is noticed at once; this is for one that hangs, and longer than a
busy machine makes a start."""

STOPS: Final = 60.0
"""Seconds that a child may take to go after SIGTERM."""


def _dies_with_us() -> list[str]:
    """A command prefix: the kernel sends SIGTERM when the thread that started the child is gone."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


class Child:
    """A process in its own process group, so that Ctrl-C does not reach it and it is stopped in order. It stays in this session:
    Linux schedules each session as a group (autogroup), and on a core that is busy such a group may get nothing for minutes.

    Start it from a thread that lives as long as it is needed: the kernel ends it with that thread. ``pid`` changes when it is
    started again.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        output: Path | None,
        piped: bool = False,
        apart: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``output``: the file for standard error and, unless it is ``piped`` to :attr:`stdout`, standard output; without
        a file, the pipe takes both, or two pipes take one each if they are to be kept ``apart``. ``environment`` is added to
        this process's."""
        self._command, self._environment = command, environment or {}
        self._output, self._piped, self._apart = output, piped or output is None, apart
        self._start()

    def _start(self) -> None:
        """Also start it again after it ended."""
        with ExitStack() as stack:
            without = subprocess.PIPE if self._apart else subprocess.STDOUT
            file = without if self._output is None else stack.enter_context(self._output.open("wb"))
            try:
                # mnexec and `ip netns exec` exec what they start, so setpriv also works in front of them.
                self._process = subprocess.Popen(
                    [*_dies_with_us(), *self._command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if self._piped else file,
                    stderr=file,
                    env={**os.environ, **self._environment},
                    process_group=0,
                    text=True,
                    errors="backslashreplace",
                )
            except FileNotFoundError as error:
                raise TestbedError(f"{error.filename} is not on PATH") from None
        self.pid = self._process.pid

    @property
    def stdout(self) -> IO[str]:
        """The standard output of a piped child."""
        assert self._process.stdout is not None, "the child is not piped"
        return self._process.stdout

    @property
    def stderr(self) -> IO[str]:
        """The standard error of a child whose outputs are kept apart."""
        assert self._process.stderr is not None, "the child's outputs are not apart"
        return self._process.stderr

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def wait(self, timeout: float | None = STOPS) -> int:
        """Wait for the exit code, at most ``timeout`` seconds (None: forever). Raises :class:`TestbedError` if it still runs."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TestbedError(f"process {self.pid} does not end") from None

    def wait_unreaped(self) -> None:
        """Wait for it to end, and leave it a zombie: until :meth:`wait`, its process group is still its own, and what it has
        left running there can be ended without ending another process."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def last_words(self, lines: int = 12) -> str:
        """The end of what it wrote to its output file."""
        if self._output is None:
            return ""
        return "\n".join(self._output.read_text(errors="replace").strip().splitlines()[-lines:])

    def pass_on(self, number: signal.Signals) -> bool:
        """Send the signal to those processes of its group that handle it: it may end others. Returns False if none does."""
        handling = [pid for pid in self._group() if handles(pid, number)]
        for pid in handling:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return bool(handling)

    def _group(self) -> Iterator[int]:
        if self._process.returncode is None:
            for name in os.listdir("/proc"):
                with contextlib.suppress(ValueError, ProcessLookupError):
                    if os.getpgid(pid := int(name)) == self.pid:
                        yield pid

    def terminate(self) -> None:
        """Ask it to end without waiting, so that several can end at the same time before each is stopped."""
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """End it and its process group, by force if necessary. May be repeated."""
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(STOPS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def kill(self) -> None:
        """Kill it and wait until it is gone; :meth:`stop` still cleans up."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)


def said_by(ranks: Sequence[Child]) -> list[Any]:
    """The next line of JSON that each rank prints. Raises :class:`TestbedError` if one has ended instead."""
    lines = [rank.stdout.readline() for rank in ranks]
    for number, (rank, line) in enumerate(zip(ranks, lines, strict=True)):
        if not line:
            raise TestbedError(f"rank {number} failed: {rank.last_words(1)}")
    return [json.loads(line) for line in lines]


# The controller as a process, ``netsum serve``, which can be killed, stopped, and started again.


_SERVE: Final = "import sys; from netsum_controller.cli import main; sys.exit(main())"


class ServedController(Child):
    """The controller on the state file ``directory/state.db``, always at the same ``url``. It answers as soon as it is made."""

    def __init__(self, topology: Topology, directory: Path) -> None:
        file, state = directory / "topology.yaml", directory / "state.db"
        file.write_text(topology.to_yaml(), "utf-8")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = free.getsockname()
        port = self._address[1]
        self.url = f"http://127.0.0.1:{port}"
        words = ["--topology", str(file), "--state", str(state), "-v", "serve", "--port", str(port)]
        super().__init__([sys.executable, "-c", _SERVE, *words], output=directory / "controller.log")
        self._wait_ready()

    def start(self) -> None:
        """Start it (again); returns when it answers. Call it from a thread that lives as long as it is needed."""
        self._start()
        self._wait_ready()

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + STARTS
        while True:
            try:
                socket.create_connection(self._address, timeout=1.0).close()
                return
            except OSError as error:
                if self.exit_code is not None or time.monotonic() > deadline:
                    self.stop()
                    raise TestbedError(f"the controller does not answer ({error}): {self.last_words()}") from None
                time.sleep(0.02)

    def hang(self, *, hang: bool) -> None:
        """Stop it with all its connections open, or let it go on. After :meth:`kill` this does nothing."""
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGSTOP if hang else signal.SIGCONT)
