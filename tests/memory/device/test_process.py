# SPDX-License-Identifier: MIT
"""`netsum-memory` as people start it, and as it is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import urllib.request
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner
from netsum import logs
from netsum_memory.cli import command

from tests.memory.device.desk import region
from tests.memory.device.process import Caller, orders, start


def options(folder: Path, *more: str) -> list[str]:
    return ["--orders", str(orders(region(shards=4), folder / "orders.json")), *more]


def run(*arguments: str) -> tuple[int, str]:
    with patch.object(logs, "configure"):  # the other tests of this process have logs of their own
        done = CliRunner().invoke(command, ["--host", "h1", *arguments])
    assert done.stdout == ""
    return done.exit_code, done.stderr.strip().splitlines()[-1]


def killed_and_done_once(folder: Path, seed: int, kills: int) -> None:
    """FETCH_ADDs while the process is killed at random instants and started again: on each lane, each number comes once."""
    given = options(folder, "--folder", str(folder / "memory"))
    child, port = start(given)
    caller = Caller(port, 6, seed)
    try:
        for _ in range(kills):
            before = caller.sequence + caller.random.randrange(50, 400)
            timer = threading.Timer(caller.random.random() * 0.05, child.kill)
            timer.start()
            caller.work(before, child)
            timer.join()
            child.stop()
            child, _ = start(given, port)
        caller.finish()
    finally:
        child.stop()
        caller.sock.close()
    asked = sum(map(len, caller.fetched.values()))
    assert asked == caller.sequence
    for fetched in caller.fetched.values():
        assert sorted(fetched) == list(range(len(fetched)))


def test_a_killed_process_has_done_each_instruction_once(tmp_path: Path) -> None:
    killed_and_done_once(tmp_path, seed=1, kills=2)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 12))
def test_a_process_killed_often_has_done_each_instruction_once(tmp_path: Path, seed: int) -> None:
    killed_and_done_once(tmp_path, seed, kills=12)


def test_ctrl_c_ends_it_in_order(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    folder = tmp_path / "memory"
    child, port = start(options(tmp_path, "--ready-file", str(ready), "--folder", str(folder), "--metrics", "0"))
    caller = Caller(port, 2, 0)
    try:
        caller.work(10, child)
        caller.finish()
        known = json.loads(ready.read_text())
        assert (known["address"], known["pid"]) == (f"127.0.0.1:{port}", child.pid)
        with urllib.request.urlopen(f"http://127.0.0.1:{known['metrics']}/metrics") as page:
            found = re.search(r'netsum_memory_instructions_total\{instruction="fetch_add"\} (\d+)\.0', page.read().decode())
        assert found
        assert int(found[1]) in range(10, caller.sent + 1)  # repeats count, and some may still be on their way
        os.kill(child.pid, signal.SIGINT)
        assert child.wait() == 0
        assert not ready.exists()
        again, _ = start(options(tmp_path, "--folder", str(folder)), port)  # the lock is free
        again.stop()
        assert again.exit_code == 0
    finally:
        child.stop()
        caller.sock.close()


WRONG: dict[str, tuple[int, list[str], str]] = {
    "no controller": (2, [], "give --controller (or NETSUM_CONTROLLER), or --orders, and not both"),
    "no mac": (2, ["--interface", "i"], "--mac goes with --frames or --interface, and they with it"),
    "fsync of nothing": (2, ["--fsync"], "--fsync needs --folder"),
    "no size": (2, ["--ram-limit", "x"], "Invalid value for '--ram-limit': 'x' is not a size such as 4096, 64K or 1M"),
    "no url": (1, ["--controller", "here"], "the controller is 'here', not a URL such as http://127.0.0.1:8080"),
    "not ours": (1, ["--address", "192.0.2.1"], "cannot open 192.0.2.1:12001: Cannot assign requested address"),
    "no folder": (1, ["--folder", "/proc/n"], "cannot use folder /proc/n: No such file or directory"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_clear_error(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NETSUM_CONTROLLER", raising=False)
    code, arguments, error = WRONG[case]
    controller = [] if case == "no controller" else ["--controller", "http://127.0.0.1:1"]
    assert run("--address", "127.0.0.1:0", *controller, *arguments) == (code, f"Error: {error}")


def test_orders_that_cannot_be_held_are_refused(tmp_path: Path) -> None:
    path = orders(region(kind="heap"), tmp_path / "orders.json")
    code, error = run("--address", "127.0.0.1:0", "--orders", str(path))
    assert (code, error.partition(";")[0]) == (1, f"Error: {path}: region 7, shard 0: region r is of kind 'heap'")
