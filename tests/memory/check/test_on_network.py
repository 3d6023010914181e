# SPDX-License-Identifier: MIT
"""Short rounds of memory-check on networks: what is to happen happens, and nothing is lost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.system import SEARCH_PATH

FABRICS = [
    pytest.param(["--switch", "embedded", "--rootless"], id="rootless-embedded"),
    pytest.param(["--switch", "embedded"], id="namespace-embedded", marks=pytest.mark.root),
    pytest.param(["--switch", "bmv2"], id="namespace-bmv2", marks=[pytest.mark.root, pytest.mark.bmv2]),
]


ATTEMPTS = 5


def all_were_silent(said: str) -> bool:
    """True if the controller believed that every device of a round was silent. A round stops one at a time: so the machine was
    too busy for all of them, or for the controller, for longer than a lease."""
    there = {
        device for listed in re.findall(r"round \d+: devices (.*?); regions", said) for device in re.findall(r"h\d+", listed)
    }
    return bool(there) and there <= set(re.findall(r"memory device (h\d+) is silent", said))


@pytest.mark.full
@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_round_goes_well(fabric: list[str], number: int) -> None:
    words = [*fabric, "--stage", "network", "--only", str(number), "--instructions", "40"]
    command = [sys.executable, "-m", "tests.system", "memory-check", *words]
    environment = {**os.environ, "PYTHONPATH": SEARCH_PATH}
    for _ in range(ATTEMPTS):
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        said = ran.stdout + ran.stderr
        if not (ran.returncode and all_were_silent(said)):
            break
        print("all devices were silent at once: the machine gave the round too little of a core, so it is repeated")
    assert ran.returncode == 0, said
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["operations"] >= 8 * 40
    assert told["rounds"] == 1


def test_a_machine_that_is_too_busy_is_known_by_all_devices() -> None:
    round_of_two = "  round 2: devices h9 (file), h10 (RAM); regions region0 table dim=3\n"
    silent = "WARNING netsum_controller.regions.reconciler: memory device {} is silent\n"
    assert all_were_silent(round_of_two + silent.format("h9") + silent.format("h10"))
    assert not all_were_silent(round_of_two + silent.format("h10"))
    assert not all_were_silent("WRONG: refused\n" + silent.format("h9"))
