# SPDX-License-Identifier: MIT
"""PTF, the P4 testing framework, drives both switches."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.switch.harness.api import DEVICE_ID
from tests.switch.harness.bmv2 import ProcessUnderTest
from tests.switch.harness.controller import PROGRAMS
from tests.switch.harness.launch import BMV2
from tests.switch.harness.tutorials import APART
from tests.threads import PATIENCE

pytestmark = [pytest.mark.ptf, pytest.mark.root, pytest.mark.full]

SESSION = Path(__file__).parents[1] / "ptf"
TESTS = ("TableEntries", "Counters", "PacketIo", "Digests", "Multicast")
DRIVEN = pytest.mark.parametrize("kind", [pytest.param("embedded", marks=pytest.mark.root), BMV2])


def run_ptf(
    switch: ProcessUnderTest,
    tests: Path,
    parameters: Mapping[str, object],
    folder: Path,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """Run the PTF tests of a folder in the switch's namespace, at the other ends of its interfaces. They must pass; returns what
    PTF prints. ``folder``: for what it writes."""
    program = ["ip", "netns", "exec", switch.namespace.name, APART / "bin" / "python", APART / "bin" / "ptf"]
    ports = [word for port in switch.ports for word in ("-i", f"{port}@h{port}")]
    told = ["--test-params", ";".join(f"{name}={value!r}" for name, value in parameters.items())]
    command = [*program, "--test-dir", tests, *ports, *told, "--default-timeout", PATIENCE, "--failfast", "--disable-ipv6"]
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


@DRIVEN
def test_session(kind: str, tmp_path: Path) -> None:
    switch = ProcessUnderTest(kind)
    try:
        config = {name: str(PROGRAMS / f"contract.{ending}") for name, ending in (("p4info", "p4info.txtpb"), ("config", "json"))}
        said = run_ptf(switch, SESSION, {"address": switch.grpc_address, "device": DEVICE_ID, **config}, tmp_path)
    finally:
        switch.close()
    for name in TESTS:
        assert f"session.{name} ... ok" in said, said
