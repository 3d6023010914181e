# SPDX-License-Identifier: MIT
"""``netsum run``: what each rank gets, and whole runs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from netsum_controller.errors import InputError
from netsum_testbed.errors import TestbedError
from netsum_testbed.launch import attached_programs, command_line, explain_failure, job_spec, run, shared_environment
from netsum_testbed.side_by_side import ProgramFailed

from tests.testbed.conftest import ROOT, Start
from tests.threads import until

MEMBERS = [{"rank": rank, "host": f"h{rank + 1}", "evicted": rank == 1} for rank in range(4)]
NO_JOB: dict[str, Any] = dict.fromkeys(("late", "block_exp", "quorum", "window", "algorithm"))


def test_what_a_rank_runs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    assert command_line([str(script), "--lr", "0.1"]) == [sys.executable, str(script), "--lr", "0.1"]
    assert command_line(["sh", "-c", "true"]) == [shutil.which("sh"), "-c", "true"]
    for missing in (str(tmp_path / "no.py"), "no-such-command"):
        with pytest.raises(click.UsageError, match=missing):
            command_line([missing])


def test_a_command_is_what_the_callers_path_and_environment_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not netsum's own Python: the user's packages are in the environment that is active."""
    for folder, code in (("path", 0), ("active/bin", 0), ("bare", 1)):
        python = tmp_path / folder / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\nexit {code}\n", "utf-8")
        python.chmod(0o755)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:{os.environ['PATH']}")
    assert command_line(["python", "x.py"]) == [str(tmp_path / "path" / "python"), "x.py"]
    assert shared_environment(1)["PATH"] == os.environ["PATH"]
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
    assert command_line(["python", "x.py"]) == [str(tmp_path / "active" / "bin" / "python"), "x.py"]
    assert shared_environment(1)["PATH"].startswith(f"{tmp_path / 'active' / 'bin'}:")
    bare = tmp_path / "bare" / "python"
    with pytest.raises(TestbedError, match=f"^{bare} has no netsum: {bare} -m pip install {ROOT}; or run a SCRIPT.py"):
        command_line([str(bare), "x.py"])


def test_a_clone_in_the_current_folder_is_not_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netsum").symlink_to(ROOT)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', "utf-8")  # without its packages
    python.chmod(0o755)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TestbedError, match="python has no netsum"):
        command_line([str(python), "x.py"])


def test_a_rank_that_cannot_import_netsum_is_told_how() -> None:
    failure = ProgramFailed("rank 1 (h2)", 1, "ModuleNotFoundError: No module named 'netsum'")
    told = str(explain_failure(failure))
    assert told.startswith("rank 1 (h2) failed with exit code 1: ModuleNotFoundError: No module named 'netsum'; install it")
    assert told.endswith(f"pip install {ROOT}")
    assert failure.exit_code == 1
    other = ProgramFailed("rank 1 (h2)", 1, "gives up")
    assert str(explain_failure(other)) == "rank 1 (h2) failed with exit code 1: gives up"


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [shared_environment(ranks)["OMP_NUM_THREADS"] for ranks in (1, 3, 9)] == ["8", "2", "1"]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert shared_environment(9)["OMP_NUM_THREADS"] == "5"


def test_attached_ranks() -> None:
    joins = {"NETSUM_JOB": "pair", "NETSUM_TOKEN": "secret", "NETSUM_CONTROLLER": "http://c"}
    every = attached_programs(MEMBERS, (), joins, ["prog"])
    assert [program.name for program in every] == ["rank 0 (h1)", "rank 2 (h3)", "rank 3 (h4)"], "rank 1 is evicted"
    seen = every[1].environment
    assert seen.items() >= {**joins, "NETSUM_RANK": "2", "RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items()
    assert seen["MASTER_ADDR"] == "127.0.0.1"
    assert len({program.environment["MASTER_PORT"] for program in every}) == 1
    chosen = attached_programs(MEMBERS, (3, 1), joins, ["prog"])
    assert [(program.tag, program.environment["LOCAL_RANK"]) for program in chosen] == [("1", "0"), ("3", "1")]
    assert not any(name.startswith("MASTER") for name in chosen[0].environment), "rank 0 may be on another machine"
    with pytest.raises(TestbedError, match=r"no rank 4: its ranks are 0\.\.3"):
        attached_programs(MEMBERS, (4,), joins, ["prog"])


def test_the_job_is_as_the_options_say() -> None:
    made = job_spec("run", ["h1", "h2"], {**NO_JOB, "late": "degrade", "block_exp": 2.5, "window": 8})
    assert (made.late.value, made.block_exp, made.window, made.members) == ("degrade", 2.5, 8, ("h1", "h2"))
    with pytest.raises(InputError, match=r"quorum.* is 3, and the job has 2 members"):
        job_spec("run", ["h1", "h2"], {**NO_JOB, "late": "degrade", "quorum": 3})


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("true", "--attach needs --job"),
        ("--job pair true", "--attach needs --token"),
        ("-n 2 true", "-n is for a fabric of our own"),
        ("--window 8 true", "--window is for a fabric of our own"),
        ("--ranks 2-x true", "is not a list of numbers"),
    ],
)
def test_attaching_that_cannot_be(words: str, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NETSUM_JOB", "NETSUM_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("netsum_testbed.launch.end_on_signals", lambda: None)
    with pytest.raises(click.UsageError, match=complaint):
        run.main(["--attach", "http://127.0.0.1:1", *words.split()], standalone_mode=False)


def test_options_of_attaching_alone() -> None:
    with pytest.raises(click.UsageError, match="--ranks is for --attach"):
        run.main(["--ranks", "0", "true"], standalone_mode=False)


SCRIPT = """\
import os, sys, netsum
comm = netsum.join()
sum_ = comm.allreduce([1 + comm.rank])
print("sum", sum_.tolist(), *(os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")), flush=True)
if comm.rank == 1 and "fail" in sys.argv:
    raise SystemExit("gives up")
comm.barrier(timeout=600)
comm.close()
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "sum.py"
    path.write_text(SCRIPT, "utf-8")
    return str(path)


def test_the_first_failure_ends_all_on_the_embedded_switch(netsum: Start, script: str) -> None:
    """The others wait for the rank that failed; its exit code becomes that of the run."""
    command = netsum("run", "-n", "3", "--rootless", script, "fail")
    command.ends(1)
    assert {f"{rank}| sum [6] {rank} 3 {rank}" for rank in range(3)} <= set(command.lines), command.output
    assert "1| gives up" in command.lines
    assert command.lines[-1] == "netsum: rank 1 (h2) failed with exit code 1: gives up"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_on_the_embedded_switch(netsum: Start, number: signal.Signals) -> None:
    """As a shell shows it: 130, 143 and 129."""
    words = ["bash", "-c", "echo rank $RANK of $NETSUM_JOB; sleep 1000 & wait"]
    command = netsum("run", "-n", "2", "--rootless", "--job", "mine", "--algorithm", "ring", "--", *words)
    for rank in (0, 1):
        command.wait_for(f"{rank}| rank {rank} of mine")
    command.process.send_signal(number)
    command.ends(128 + number)
    assert command.lines[-1] == "netsum: interrupted"


def test_nohup_stays_in_force(netsum: Start, tmp_path: Path) -> None:
    """For the ranks too."""
    until_told = f"grep SigIgn /proc/self/status; until test -e {tmp_path}/end; do sleep 0.1; done"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup starts a command
    try:
        command = netsum("run", "-n", "1", "--rootless", "--algorithm", "ring", "--", "sh", "-c", until_told)
    finally:
        signal.signal(signal.SIGHUP, before)
    command.wait_for("0| SigIgn:")
    (line,) = [line for line in command.lines if "SigIgn" in line]
    assert int(line.split()[-1], 16) >> (signal.SIGHUP - 1) & 1, line
    command.process.send_signal(signal.SIGHUP)
    (tmp_path / "end").touch()
    command.ends()


WAITS = """\
import sys, netsum, pathlib, time
with netsum.join() as comm:
    comm.barrier()
    print("goes on", flush=True)
    while comm.rank == 1 and not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.05)
    comm.barrier(timeout=600)
"""


def test_sigusr1_shows_what_each_rank_waits_for(netsum: Start, tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(WAITS, "utf-8")
    command = netsum("run", "-n", "2", "--rootless", str(script), str(tmp_path / "end"))
    for rank in (0, 1):
        command.wait_for(f"{rank}| goes on")
    waiting = re.compile(
        r"0\| netsum: job run, rank 0: barrier, in progress for [\d.]+ s; no result for block \d+ .*rank 1 \(h2\)"
    )

    def shown() -> int:
        return sum("| netsum: job run, rank " in line for line in command.lines)

    while not any(waiting.match(line) for line in command.lines):  # it is known once the call has waited for a while
        both = shown() + 2
        command.process.send_signal(signal.SIGUSR1)
        until(lambda: shown() >= both, "a line of each rank")  # noqa: B023 - called at once
    assert "1| netsum: job run, rank 1: no call is in progress" in command.lines
    for rank in (0, 1):
        assert any(line.startswith(f"{rank}| ") and "waits.py" in line for line in command.lines), "its stack"
    (tmp_path / "end").touch()
    command.ends()


@pytest.mark.full
def test_in_mininet(netsum: Start, switch: str, script: str) -> None:
    """Every rank in the namespace of its host."""
    file = str(ROOT / "mininet" / "topologies" / "star2.yaml")
    command = netsum("run", "--topology", file, "--switch", switch, script)
    command.ends()
    assert f"star2: {switch} switch and 2 ranks, Mininet: up" in command.output
    assert {f"{rank}| sum [3] {rank} 2 {rank}" for rank in range(2)} <= set(command.lines)
    shown = "echo $MASTER_ADDR:$MASTER_PORT $GLOO_SOCKET_IFNAME; ip -4 -br addr show dev $GLOO_SOCKET_IFNAME"
    command = netsum("run", "--topology", file, "--switch", switch, "--", "sh", "-c", shown)
    command.ends()
    for rank in (0, 1):
        assert f"{rank}| 10.0.0.1:29500 h{rank + 1}-eth0" in command.lines
        assert any(line.startswith(f"{rank}| h{rank + 1}-eth0") and f"10.0.0.{rank + 1}/" in line for line in command.lines)
