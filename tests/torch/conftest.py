# SPDX-License-Identifier: MIT
"""Programs of torch as the ranks of a job, on both switches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.fabric import Fabric
from netsum_testbed.launch import fabric_programs
from netsum_testbed.side_by_side import ChildProgram, run_side_by_side

from tests.full.conftest import make_fabric

PROGRAMS = Path(__file__).parent / "programs"
TRAINING = Path(__file__).parents[2] / ".venv-training" / "bin" / "python"
"""The Python that has torchft, Ray, JAX and other frameworks."""
HOSTS = 4
FABRICS = [
    "rootless-embedded",
    pytest.param("mininet-bmv2", marks=[pytest.mark.root, pytest.mark.bmv2, pytest.mark.full]),
]

Run = Callable[..., None]


@pytest.fixture(scope="session", params=FABRICS)
def torch_fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """Rootless, or in Mininet, where each rank has a namespace of its own."""
    with make_fabric(request.param, star(HOSTS)) as fabric:
        yield fabric


@pytest.fixture
def run_ranks(torch_fabric: Fabric, request: pytest.FixtureRequest) -> Iterator[Run]:
    """``run_ranks(program, ranks, *arguments)`` runs a program as the ranks of a new job, as `netsum run` does; or with one
    torchrun for all of them (``torchrun=True``), or as one process that starts them itself (``once=True``). All must end well."""
    made: list[str] = []

    def run(
        program: Path,
        ranks: int,
        *arguments: str,
        torchrun: bool = False,
        once: bool = False,
        python: Path | str = sys.executable,
        **options: Any,
    ) -> None:
        name = f"torch-{request.node.originalname.replace('_', '-')[:40]}-{len(made)}"
        spec = JobSpec(name=name, members=tuple(f"h{host + 1}" for host in range(ranks)), **options)
        job = torch_fabric.create_job(spec)
        made.append(name)
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"] if torchrun else []
        command = [str(python), *launcher, str(program), *arguments]
        programs = fabric_programs(torch_fabric, job, command)
        if torchrun or once:
            first = programs[0]
            names = ("NETSUM_JOB", "NETSUM_TOKEN", "NETSUM_CONTROLLER")
            programs = [ChildProgram("launcher", "", command, {name: first.environment[name] for name in names})]
        run_side_by_side(programs)

    yield run
    for name in made:
        torch_fabric.controller.delete_job(name, force=True)
