# SPDX-License-Identifier: MIT
"""The demo as a user sees it: it trains, its replicas are equal, its last line is JSON, and it leaves nothing."""

from __future__ import annotations

import os
import signal

import pytest

from tests.testbed.conftest import Netsum, Refused, Start

KEYS = {
    "switch", "workers", "accuracy", "accuracy_single", "max_weight_difference", "goodput_MBps", "retransmissions",
    "seconds", "fabric", "steps",
}  # fmt: skip


def check(command: Netsum, switch: str, fabric: str, workers: int) -> None:
    """A demo of 60 steps that went well."""
    command.ends()
    said = command.json()
    assert set(said) == KEYS
    assert (said["switch"], said["fabric"], said["workers"]) == (switch, fabric, workers)
    assert said["max_weight_difference"] == 0
    assert said["accuracy"] > 0.9
    # The same batches: only the quantization of the gradients differs.
    assert abs(said["accuracy"] - said["accuracy_single"]) < 0.02
    assert said["goodput_MBps"] > 0
    assert said["seconds"] > 0
    assert "\x1b[" not in command.output, "control sequences where there is no terminal"
    assert f"{switch} switch and {workers} workers, {fabric}: up" in command.output


@pytest.mark.full
def test_rootless_on_the_embedded_switch(netsum: Start) -> None:
    command = netsum("demo", "--rootless", "--topology", "mininet/topologies/star2.yaml", "--steps", "60")
    check(command, "embedded", "rootless", 2)
    assert "running rootless" in command.output


@pytest.mark.full
def test_in_mininet(netsum: Start, switch: str) -> None:
    check(netsum("demo", "--switch", switch, "--workers", "2", "--steps", "60"), switch, "mininet", 2)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_on_the_embedded_switch(netsum: Start, number: signal.Signals) -> None:
    command = netsum("demo", "--rootless", "--workers", "2", "--steps", "100000")
    command.wait_for(": up")
    os.kill(command.process.pid, number)
    command.ends(128 + number)
    assert command.lines[-1] == "netsum: interrupted"


@pytest.mark.full
def test_interrupted_in_mininet(netsum: Start, switch: str) -> None:
    command = netsum("demo", "--switch", switch, "--workers", "2", "--steps", "400")
    command.wait_for("step ")  # a tenth of the training
    assert len(command.marked()) >= 5, "a switch, two hosts, two workers"
    os.kill(command.process.pid, signal.SIGINT)
    command.ends(130)


@pytest.mark.full
def test_killed_in_mininet(netsum: Start, switch: str) -> None:
    """A killed demo cannot clean up, but no process outlives it, and namespaces and wires vanish with the last one."""
    command = netsum("demo", "--switch", switch, "--workers", "2", "--steps", "100000")
    command.wait_for(": up")
    command.process.kill()
    command.finish()
    command.no_process_left()


@pytest.mark.full
def test_a_worker_that_dies_on_the_embedded_switch(netsum: Start) -> None:
    command = netsum("demo", "--rootless", "--workers", "2", "--steps", "400")
    command.wait_for("step ")
    [victim] = [pid for pid, words in command.marked().items() if "demo.worker" in words][:1]
    os.kill(victim, signal.SIGKILL)
    command.ends(1)
    assert command.lines[-1].startswith("netsum: worker ")
    assert "failed (exit code -9)" in command.lines[-1]


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (
            "--switch bmv2",
            1,
            "netsum: --rootless: simple_switch_grpc needs network interfaces; run as root, or --switch embedded",
        ),
        (
            "--workers 3 --topology mininet/topologies/star2.yaml",
            1,
            "netsum: mininet/topologies/star2.yaml: 3 workers need a host each, and it has 2 hosts",
        ),
        ("--topology nowhere.yaml", 2, "netsum: nowhere.yaml: "),
    ],
)
def test_what_cannot_be(refused: Refused, words: str, code: int, complaint: str) -> None:
    said, lines = refused("demo", "--rootless", *words.split())
    assert said == code
    (line,) = lines
    assert line.startswith(complaint)
