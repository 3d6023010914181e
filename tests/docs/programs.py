# SPDX-License-Identifier: MIT
"""Programs of the documentation, run by the ranks of a job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from netsum_controller.state.model import Job
from netsum_testbed.fabric import Fabric
from netsum_testbed.launch import fabric_programs

from tests.threads import PATIENCE


def start(
    stack: ExitStack, script: Path, fabric: Fabric, job: Job, rank: int, more: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a rank's process, with ``more`` in its environment; it ends with the stack."""
    command, pipe = [sys.executable, "-W", "error", str(script)], subprocess.PIPE
    environment = {**os.environ, "NETSUM_TIMEOUT": "60", **fabric.environment(job, rank), **(more or {})}
    process = subprocess.Popen(command, env=environment, text=True, stdout=pipe, stderr=pipe)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def run_ranks(script: Path, fabric: Fabric, job: Job) -> list[str]:
    """Run a program as every rank of the job and return what each prints; all must succeed."""
    environments = [program.environment for program in fabric_programs(fabric, job, ())]
    with ExitStack() as stack:
        workers = [start(stack, script, fabric, job, rank, environments[rank]) for rank in range(job.workers)]
        printed = [worker.communicate(timeout=PATIENCE) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * job.workers, printed
    return [out for out, _ in printed]
