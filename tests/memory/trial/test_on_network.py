"""Short rounds of memory-check on networks: what is to happen happens, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from netsum_trials import SEARCH_PATH

from tests.full.commands import shell_code

FABRICS = [
    pytest.param(["--switch", "embedded", "--rootless"], id="rootless-embedded"),
    pytest.param(["--switch", "embedded"], id="namespace-embedded", marks=pytest.mark.root),
    pytest.param(["--switch", "bmv2"], id="namespace-bmv2", marks=[pytest.mark.root, pytest.mark.bmv2]),
]


def memory_check(*words: str) -> tuple[int, str, dict[str, Any]]:
    """The exit code, what was printed, and the last line parsed."""
    command = [sys.executable, "-m", "netsum_trials", "memory-check", *words]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": SEARCH_PATH}
    )
    return shell_code(ran.returncode), ran.stdout + ran.stderr, json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.full
@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_round_goes_well(fabric: list[str], number: int) -> None:
    code, said, told = memory_check(*fabric, "--stage", "network", "--only", str(number), "--instructions", "40")
    assert code == 0, said
    assert told["operations"] >= 8 * 40
    assert told["rounds"] == 1
