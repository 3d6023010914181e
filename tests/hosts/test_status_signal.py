# SPDX-License-Identifier: MIT
"""SIGUSR1 in a rank: the stacks of its threads, what its calls wait for, and it goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from netsum.core.progress import Flow
from netsum.memory.client import MemoryClient
from netsum.memory.run import Task
from netsum.transports import InMemoryTransport

from tests.threads import until

ROOT = Path(__file__).parents[2]

JOIN = """
import ctypes, os, signal, sys
import netsum
from netsum.transports import InMemoryTransport
from tests.hosts.network import descriptor

def join():
    return netsum.join(descriptor=descriptor(1, 3), transport=InMemoryTransport(lambda packet: None))

def say(what):
    print(what, flush=True)
"""
IN_THE_CALL = """
comm = join()
say("waits")
comm.barrier(timeout=600)
"""
IN_AN_EXTENSION = """
comm = join()
comm.barrier_async(timeout=600)
say("waits")
ctypes.CDLL(None).read(0, ctypes.create_string_buffer(1), 1)  # Python runs no handler meanwhile
"""
STATUS = r"netsum: job \S+, rank 1: barrier, in progress for [\d.]+ s; no result for block \d+ \(generation 0\) for [\d.]+ s; "


@contextmanager
def running(code: str) -> Iterator[subprocess.Popen[str]]:
    """A program that has joined as rank 1 of 3 and gets nothing from the switch; it is killed at the end."""
    words = [sys.executable, "-c", JOIN + code]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def errors_until(process: subprocess.Popen[str], end: str) -> list[str]:
    """The lines of standard error up to one that begins with ``end``."""
    assert process.stderr is not None
    lines: list[str] = []
    while not lines or not lines[-1].startswith(end):
        text = process.stderr.readline()
        assert text, lines
        lines.append(text.rstrip("\n"))
    return lines


@pytest.mark.parametrize("code", [IN_THE_CALL, IN_AN_EXTENSION])
def test_it_is_shown_and_the_call_goes_on(code: str) -> None:
    with running(code) as process:
        assert line(process) == "waits"
        for _ in range(2):
            process.send_signal(signal.SIGUSR1)
            *stacks, status = errors_until(process, "netsum:")
            assert any(re.fullmatch(r'  File "<string>", line \d+ in <module>', each) for each in stacks), stacks
            assert re.match(STATUS + "nothing at all has come from the switch", status), status
        assert process.poll() is None


@pytest.mark.parametrize("code", ["handle(); join()", "join(); handle()"])
def test_a_handler_of_the_programs_own_stays(code: str) -> None:
    # The signal may come while "ready" is still being printed, so the handler prints nothing itself.
    handle = "def handle(): signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b'handled\\n'))\n"
    with running(f"{handle}{code}; say('ready'); sys.stdin.read()") as process:
        assert line(process) == "ready"
        process.send_signal(signal.SIGUSR1)
        assert process.communicate() == ("handled\n", "")
        assert process.returncode == 0


def test_what_sets_a_handler_only_where_there_is_none_sets_it() -> None:
    with running("join(); say(signal.getsignal(signal.SIGUSR1))") as process:
        assert line(process) == "0"


def test_calls_on_memory_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    def flow(task: Task) -> Flow:
        task.left = 2
        yield task.done

    with closing(MemoryClient(InMemoryTransport(lambda _: None))) as client:
        client.engine.print_status()
        assert capfd.readouterr().err == "netsum: client of memory: no call is in progress\n"
        client.start(flow, background=True)
        client.start(flow, background=True)
        client.engine.print_status()
        shown = ""

        def printed() -> str:
            nonlocal shown
            shown += capfd.readouterr().err
            return shown

        until(printed)
        status = r"netsum: client of memory: 2 calls in progress, the oldest for [\d.]+ s, 2 instructions without a reply\n"
        assert re.fullmatch(status, shown)


def test_a_forked_process_shows_itself() -> None:
    fork = """
comm = join()
if not (child := os.fork()):
    say(os.getpid())
    os.read(0, 1)
    os._exit(0)
say(os.waitpid(child, 0)[1])
while True:
    signal.pause()
"""
    with running(fork) as process:
        os.kill(int(line(process)), signal.SIGUSR1)
        assert process.stdin is not None
        process.stdin.close()
        assert line(process) == "0"
        process.send_signal(signal.SIGUSR1)
        lines = errors_until(process, "netsum:")
        assert [each for each in lines if each.startswith("netsum:")] == ["netsum: job test, rank 1: no call is in progress"]
        assert sum(" in <module>" in each for each in lines) == 2
