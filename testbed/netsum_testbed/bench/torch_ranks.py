"""The ranks of a measured training, as processes with torch's environment."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from netsum_controller.state.model import Job

from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.launch import fabric_programs

ENDS: Final = 300.0
"""Seconds within which a rank ends after another."""


def found_by(fabric: Fabric, job: Job, module: str, words: Sequence[object]) -> Any:
    """Run ``python -m MODULE WORDS...`` as every rank of the job, each on its own host; returns the JSON that rank 0
    prints. Raises TestbedError if a rank failed or does not end."""
    command = [sys.executable, "-m", module, *map(str, words)]
    ranks = [
        fabric.spawn(host, command, name=f"rank{rank}", environment=program.environment, piped=True)
        for rank, (host, program) in enumerate(zip(job.members, fabric_programs(fabric, job, ()), strict=True))
    ]
    line = ranks[0].stdout.readline()  # or nothing, if it fails; calls that wait for others' end in a while
    failed = next((number for number, rank in enumerate(ranks) if rank.wait(ENDS)), None)
    if failed is not None:
        raise TestbedError(f"rank {failed} failed: {ranks[failed].last_words(1)}")
    return json.loads(line)
