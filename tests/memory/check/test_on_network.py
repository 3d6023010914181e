"""Short rounds of memory-check on networks: what is to happen happens, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.system import SEARCH_PATH

FABRICS = [
    pytest.param(["--switch", "embedded", "--rootless"], id="rootless-embedded"),
    pytest.param(["--switch", "embedded"], id="namespace-embedded", marks=pytest.mark.root),
    pytest.param(["--switch", "bmv2"], id="namespace-bmv2", marks=[pytest.mark.root, pytest.mark.bmv2]),
]


@pytest.mark.full
@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_round_goes_well(fabric: list[str], number: int) -> None:
    words = [*fabric, "--stage", "network", "--only", str(number), "--instructions", "40"]
    command = [sys.executable, "-m", "tests.system", "memory-check", *words]
    environment = {**os.environ, "PYTHONPATH": SEARCH_PATH}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["operations"] >= 8 * 40
    assert told["rounds"] == 1
