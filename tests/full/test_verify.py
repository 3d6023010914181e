# SPDX-License-Identifier: MIT
"""`netsum verify` itself: what it prints, how it ends, and that it catches a wrong sum."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from netsum import CallTimeoutError, Communicator
from netsum_testbed.checking import Screen, running
from netsum_testbed.fabrics import open_fabric
from netsum_testbed.verify.command import verify
from netsum_testbed.verify.run import CellTotals, VerifyOptions, run

from tests.full.commands import invoke, shell_code
from tests.threads import PATIENCE

EMBEDDED = "--switch embedded --rootless"
SHORT = VerifyOptions(duration=PATIENCE, calls=30, seed=4, workers=(3,), max_elements=3000)


def test_the_last_line_is_one_json_object() -> None:
    _, last = invoke(verify, f"{EMBEDDED} --duration 30 --calls 30 --seed 9 --loss 0.01")
    assert (last["switch"], last["seed"], last["wrong"], last["timeouts"]) == ("embedded", 9, 0, 0)
    assert last["calls"] >= 30
    assert last["elements"] > 0
    assert 0 < last["dropped"] < last["packets"]
    assert (last["duplicated"], last["reordered"]) == (0, 0)


def run_with(spoil: Callable[[np.ndarray[Any, Any]], Any]) -> tuple[CellTotals, list[str]]:
    """A short run in which ``spoil`` changes every float32 result of every rank."""
    said: list[str] = []
    totals = CellTotals("embedded", seed=SHORT.seed)
    honest = Communicator.allreduce

    def allreduce(self: Communicator, x: Any, *args: Any, **options: Any) -> Any:
        result = honest(self, x, *args, **options)
        return spoil(result) if result.dtype == np.float32 and result.size else result

    with pytest.MonkeyPatch.context() as patch, open_fabric("embedded", hosts=3, rootless=True) as fabric:
        patch.setattr(Communicator, "allreduce", allreduce)
        run(fabric, SHORT, totals, Screen(said.append))
    return totals, said


def test_a_wrong_sum_is_counted_and_how_to_see_it_again_is_said() -> None:
    def off_by_one_bit(result: np.ndarray[Any, Any]) -> Any:
        result.reshape(-1)[-1:].view(np.uint32)[...] ^= 1
        return result

    totals, said = run_with(off_by_one_bit)
    assert totals.wrong > 0
    assert totals.exit_code == 1
    assert any("not the reference: 1 of" in line for line in said)
    again = "netsum verify --switch embedded --seed 4 --only 0 --workers 3 --max-elements 3000"
    assert any(again in line for line in said)


@pytest.mark.full
def test_a_call_that_times_out_is_counted_as_that() -> None:
    def too_late(_: np.ndarray[Any, Any]) -> Any:
        raise CallTimeoutError("no result for block 7", 7)

    totals, said = run_with(too_late)
    assert totals.timeouts > 0
    assert totals.wrong == 0
    assert totals.exit_code == 1
    assert any("CallTimeoutError: no result for block 7" in line for line in said)


@pytest.mark.full
def test_a_round_can_be_made_again_alone() -> None:
    _, last = invoke(verify, f"{EMBEDDED} --only 2 --seed 4 --max-elements 500")
    assert (last["rounds"], last["calls"]) == (1, 40)


def test_ctrl_c_ends_in_the_json_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("netsum_testbed.checking.end_on_signals", lambda: None)
    with pytest.raises(SystemExit) as ended, running(CellTotals("embedded")):
        raise KeyboardInterrupt
    assert ended.value.code == 130
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["interrupted"] is True


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_in_the_json_line(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "netsum_testbed.verify", *EMBEDDED.split(), "--duration", "100"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline()]  # it says when it has begun
    process.send_signal(number)
    rest, _ = process.communicate(timeout=PATIENCE)
    lines += rest.splitlines()
    assert shell_code(process.returncode) == 128 + number, lines
    assert json.loads(lines[-1])["interrupted"] is True


@pytest.mark.parametrize(("text", "counts"), [("4", (4,)), ("2,4", (2, 4)), ("1-3,8", (1, 2, 3, 8))])
def test_worker_counts(text: str, counts: tuple[int, ...]) -> None:
    context = verify.make_context("verify", ["--workers", text])
    assert context.params["workers"] == counts


@pytest.mark.parametrize("text", ["0", "65", "4-", "two", ""])
def test_wrong_worker_counts_are_usage_errors(text: str) -> None:
    ran = CliRunner().invoke(verify, ["--workers", text])
    assert ran.exit_code == 2
    assert "workers" in ran.output


@pytest.mark.full
def test_another_topology() -> None:
    """More ranks than hosts, on three switches."""
    words = f"{EMBEDDED} --topology mininet/topologies/tree2x2.yaml --workers 9 --calls 3 --max-elements 2000"
    output, last = invoke(verify, words)
    assert "verify on the embedded switch (RootlessFabric, tree2x2)" in output
    assert (last["calls"], last["wrong"]) == (3, 0)
