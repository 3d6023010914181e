# SPDX-License-Identifier: MIT
"""`make protocol-conformance SWITCH=...`: the embedded switch passes, a program with one wrong entry fails."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netsum_p4
import pytest
from click.testing import CliRunner
from netsum.wire.schema import Outcome
from netsum_switch.runtime import EmbeddedSwitch
from netsum_testbed.free_ports import free_port

from tests.conformance.command import protocol_conformance
from tests.conformance.specification import ROOT, rules
from tests.conformance.switch import PROTOCOL, is_of
from tests.protocol import star
from tests.switch.harness.api import CPU_PORT
from tests.threads import PATIENCE

DEVICE = 7


class Running:
    """A switch with ports on UDP, and what tells the command about it."""

    def __init__(self) -> None:
        ports = free_port(2 * len(star.PORTS))
        near = {port: ports + index for index, port in enumerate(star.PORTS)}
        self.far = {port: ports + len(star.PORTS) + index for index, port in enumerate(star.PORTS)}
        self.near = near
        self.switch = EmbeddedSwitch(
            [f"{port}@udp:127.0.0.1:{near[port]}:127.0.0.1:{self.far[port]}" for port in star.PORTS],
            device_id=DEVICE,
            cpu_port=CPU_PORT,
            grpc_address="127.0.0.1:0",
        )

    def arguments(self, **other: str) -> list[str]:
        """The command's options; ``other`` replaces some of them."""
        ends = [f"--port={port}@udp:127.0.0.1:{self.far[port]}:127.0.0.1:{self.near[port]}" for port in star.PORTS]
        given = {"switch": self.switch.grpc_address, "device-id": str(DEVICE), "patience": str(PATIENCE), **other}
        return [*ends, *(f"--{name}={value}" for name, value in given.items())]


@pytest.fixture
def running() -> Iterator[Running]:
    running = Running()
    yield running
    running.switch.stop()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command; warnings of gRPC go to standard error."""
    words = [sys.executable, "-m", "tests.system", "protocol-conformance", *arguments]
    return subprocess.run(words, check=False, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)


def verdicts(output: str) -> tuple[dict[str, str], dict[str, int]]:
    """The verdict on each rule, and the last line."""
    *lines, last = output.splitlines()
    return {line.split()[0]: line[5:16].strip() for line in lines}, json.loads(last)


def test_a_switch_elsewhere_passes(running: Running) -> None:
    done = run(*running.arguments(), "--rule=S1", "--rule=S14", "--rule=S63")
    assert verdicts(done.stdout) == (
        {"S1": "passed", "S14": "passed", "S63": "passed"},
        {"passed": 3, "failed": 0, "not_covered": 0},
    ), done.stdout + done.stderr
    assert done.returncode == 0


def wrong_program(folder: Path) -> Path:
    """The program, whose switch sends a finished block's result to all instead of to the source that sends again."""
    program: Any = json.loads(netsum_p4.json_text())
    (deliver,) = [t for each in program["pipelines"] for t in each["tables"] if t["name"] == "NetsumIngress.deliver.deliver"]
    actions = dict(zip(deliver["actions"], deliver["action_ids"], strict=True))
    (entry,) = [each for each in deliver["entries"] if int(each["match_key"][0]["key"], 16) == Outcome.REPLAYED]
    entry["action_entry"]["action_id"] = actions["NetsumIngress.deliver.result_to_all"]
    (folder / "netsum.json").write_text(json.dumps(program), "utf-8")
    (folder / "netsum.p4info.txtpb").write_text(netsum_p4.p4info_text(), "utf-8")
    return folder


def test_a_wrong_program_fails(running: Running, tmp_path: Path) -> None:
    done = run(*running.arguments(), f"--program={wrong_program(tmp_path)}", "--rule=S2", "--rule=S14", "--rule=S15")
    found, counts = verdicts(done.stdout)
    assert (found["S2"], found["S14"]) == ("passed", "failed"), done.stdout + done.stderr
    assert "test_scenario[remote-plain]" in done.stdout
    assert counts["failed"] >= 1
    assert done.returncode == 1


def test_nothing_at_the_address_is_one_error(running: Running) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        done = run(*running.arguments(switch=address))
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("netsum: ")
    assert address in line


def test_a_wrong_end_of_a_port_is_named(running: Running) -> None:
    running.near[3] = running.far[3] + 1000  # where nothing is
    done = run(*running.arguments(patience="1"))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "did not come out of port" in line or "--port 3@" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--switch=nowhere"], "'nowhere' is not HOST:PORT"),
        (["--switch=127.0.0.1:1"], "give the far end of each with --port"),
        (["--switch=127.0.0.1:1", "--port=1"], "'1' is not a port"),
        (["--switch=embedded", "--rule=S999"], "there is no rule S999 of switches"),
        (["--switch=embedded", "--program=."], "--program .: "),
    ],
)
def test_wrong_arguments_are_one_error(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(protocol_conformance, arguments)
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert words in line


def test_most_rules_of_a_switch_are_covered() -> None:
    """Each names a test of tests/protocol that has a target, or a scenario that is played there."""
    sources = {path: path.read_text("utf-8") for path in PROTOCOL.glob("test_*.py")}
    played = [(PROTOCOL / "test_scenarios.py", "test_scenario"), (PROTOCOL / "test_tree_scenarios.py", "test_as_a_leaf")]
    uncovered = []
    for rule in rules():
        if rule.number[0] != "S":
            continue
        tests = [each.test for each in rule.evidence if each.test and each.test[0] in sources]
        on_target = any(
            f"def {name}(target: Target" in sources[path] or f"def {name}(blocks" in sources[path] for path, name in tests
        )
        scenario = any(
            is_of(each, *test, f"remote-{each.scenario.name}")
            for each in rule.evidence
            for test in played
            if each.scenario is not None
        )
        if not on_target and not scenario:
            uncovered.append(rule.number)
    assert uncovered == []
