"""The ``netsum`` command, plus a command for each trial."""

from __future__ import annotations

from typing import Any

from netsum_controller.cli import cli
from netsum_controller.cli import main as netsum

from netsum_trials.bytes.command import links
from netsum_trials.conformance.command import conformance
from netsum_trials.exact.command import matrix
from netsum_trials.memory.command import memory_check
from netsum_trials.planned.commands import predict_check, simulate_check
from netsum_trials.soak.command import soak
from netsum_trials.stragglers.command import stragglers
from netsum_trials.stragglers.detection import detection
from netsum_trials.strangers.run import fuzz

PROGRAM = "python -m netsum_trials"


def main() -> Any:
    """Entry point; exits."""
    for command in (
        *(matrix, links, fuzz, soak, memory_check, stragglers, detection, conformance),
        *(simulate_check, predict_check),
    ):
        cli.add_command(command)
    return netsum(program=PROGRAM)
