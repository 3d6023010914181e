# SPDX-License-Identifier: MIT
"""The ``netsum`` command, plus a command for each system test."""

from __future__ import annotations

from typing import Any

from netsum_controller.cli import cli
from netsum_controller.cli import main as netsum

from tests.conformance.command import protocol_conformance
from tests.system.cluster.command import cluster_check
from tests.system.conformance.command import conformance
from tests.system.fuzz.run import fuzz
from tests.system.matrix.command import matrix
from tests.system.memory.command import memory_check
from tests.system.predictions.commands import predict_check, simulate_check
from tests.system.soak.run import soak
from tests.system.stragglers.command import stragglers
from tests.system.stragglers.detection import detection
from tests.system.traffic.command import links

PROGRAM = "python -m tests.system"


def main() -> Any:
    """Entry point; exits."""
    for command in (
        *(matrix, links, fuzz, soak, memory_check, stragglers, detection, conformance),
        *(simulate_check, predict_check, cluster_check, protocol_conformance),
    ):
        cli.add_command(command)
    return netsum(program=PROGRAM)
