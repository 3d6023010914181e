"""``python -m netsum_trials``: the ``netsum`` command, plus a command for each trial."""

from __future__ import annotations

from netsum_controller.cli import cli, main

from netsum_trials.bytes.command import links
from netsum_trials.conformance.command import conformance
from netsum_trials.exact.command import matrix
from netsum_trials.memory.command import memory_check
from netsum_trials.planned.predict_command import predict_check
from netsum_trials.planned.simulate_command import simulate_check
from netsum_trials.soak.command import soak
from netsum_trials.stragglers.command import stragglers
from netsum_trials.stragglers.detection_command import detection
from netsum_trials.strangers.command import fuzz

if __name__ == "__main__":
    for command in (
        *(matrix, links, fuzz, soak, memory_check, stragglers, detection, conformance),
        *(simulate_check, predict_check),
    ):
        cli.add_command(command)
    main(program="python -m netsum_trials")
