# SPDX-License-Identifier: MIT
"""Disturbed training gives the same losses as undisturbed, bit for bit: a rank dies, the switch dies. Needs PyTorch."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from netsum_controller import Job, JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import RootlessFabric
from netsum_testbed.launch import fabric_programs
from netsum_testbed.processes import Child
from netsum_testbed.side_by_side import ChildProgram, run_side_by_side

from tests.threads import until
from tests.torch.conftest import PROGRAMS

pytestmark = pytest.mark.torch
PROGRAM = PROGRAMS / "resuming.py"
RANKS, MIDDLE = 2, 6


def losses(folder: Path) -> list[str]:
    """The losses by step; all ranks have the same, and a step that was done twice had the same both times."""
    lines = {line for rank in range(RANKS) for line in (folder / f"{rank}.losses").read_text().splitlines()}
    found = {int(line.split()[0]): line for line in lines}
    assert len(found) == len(lines)
    assert sorted(found) == list(range(len(found)))
    return [found[step] for step in sorted(found)]


def job_of(fabric: Fabric, name: str) -> Job:
    return fabric.create_job(JobSpec(name=name, members=tuple(f"h{rank + 1}" for rank in range(RANKS))))


def job_environment(fabric: Fabric, job: Job) -> Mapping[str, str]:
    """State that the ranks of a job share."""
    environment = fabric_programs(fabric, job, ())[0].environment
    names = ("PATH", "OMP_NUM_THREADS", "MASTER_PORT", "NETSUM_JOB", "NETSUM_TOKEN", "NETSUM_CONTROLLER")
    return {name: environment[name] for name in names}


def start(fabric: Fabric, job: Job, folder: Path, *disturbance: str, variable: str) -> list[Child]:
    """The ranks as mpirun or srun starts them: all that a process has is its rank, in a variable of its launcher."""
    environment = job_environment(fabric, job)
    return [
        fabric.spawn(
            host,
            [sys.executable, str(PROGRAM), str(folder), *disturbance],
            name=f"{job.name}-{rank}",
            environment={**environment, variable: str(rank)},
            piped=True,
        )
        for rank, host in enumerate(job.members)
    ]


def finish(ranks: list[Child]) -> list[int]:
    """The number of times each rank went on after a restart of the switch."""
    said = [rank.stdout.read() for rank in ranks]
    for rank in ranks:
        assert rank.wait() == 0, rank.last_words(5)
    return [int(re.findall(r"resumes: (\d+)", each)[0]) for each in said]


@pytest.mark.full
def test_a_killed_rank_that_torchrun_restarts_and_a_restart_of_the_switch_change_no_bit(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("undisturbed", "held", "killed")}
    for folder in folders.values():
        folder.mkdir()
    with RootlessFabric(star(RANKS)) as fabric:
        job = job_of(fabric, "undisturbed")
        assert finish(start(fabric, job, folders["undisturbed"], variable="OMPI_COMM_WORLD_RANK")) == [0, 0]
        fabric.delete_job(job.name)

        job = job_of(fabric, "held")
        ranks = start(fabric, job, folders["held"], "hold", variable="SLURM_PROCID")
        until(lambda: len(losses_so_far(folders["held"])) == MIDDLE, "both ranks are in the middle")
        fabric.kill_switch()
        fabric.start_switch()
        (folders["held"] / "go").touch()
        assert min(finish(ranks)) >= 1
        fabric.delete_job(job.name)

        job = job_of(fabric, "killed")
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--nnodes", str(RANKS)]
        environment = job_environment(fabric, job)
        torchrun += ["--rdzv-backend", "netsum", "--rdzv-conf", f"port={environment['MASTER_PORT']}"]
        torchrun += ["--max-restarts", "1", str(PROGRAM), str(folders["killed"]), "kill"]
        run_side_by_side([ChildProgram(f"node {node}", str(node), torchrun, environment) for node in range(RANKS)])

    assert losses(folders["undisturbed"]) == losses(folders["held"]) == losses(folders["killed"])


def losses_so_far(folder: Path) -> list[str]:
    path = folder / "0.losses"
    return path.read_text().splitlines() if path.exists() else []
