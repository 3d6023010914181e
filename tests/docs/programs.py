"""Programs of the documentation, run by the ranks of a job."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from netsum_controller.state.model import Job
from netsum_testbed.fabric import Fabric


def start(stack: ExitStack, script: Path, fabric: Fabric, job: Job, rank: int) -> subprocess.Popen[str]:
    """A rank's process; it does not outlive the stack."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(script)],
        env={**os.environ, "NETSUM_TIMEOUT": "60", **fabric.environment(job, rank)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def run_ranks(script: Path, fabric: Fabric, job: Job) -> list[str]:
    """What each rank of the job prints; all of them must end well."""
    with ExitStack() as stack:
        workers = [start(stack, script, fabric, job, rank) for rank in range(job.workers)]
        printed = [worker.communicate(timeout=120) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * job.workers, printed
    return [out for out, _ in printed]
