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
from netsum_testbed.launch.ranks import fabric_programs
from netsum_testbed.opening import fabric_of
from netsum_testbed.side_by_side import run_side_by_side

PROGRAMS = Path(__file__).parent / "programs"
HOSTS = 4
FABRICS = [
    "rootless-embedded",
    pytest.param("namespace-bmv2", marks=[pytest.mark.root, pytest.mark.bmv2, pytest.mark.full]),
]

Run = Callable[..., None]


@pytest.fixture(scope="session", params=FABRICS)
def torch_fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    wires, switch = request.param.split("-")
    with fabric_of(star(HOSTS), switch, rootless=wires == "rootless") as fabric:
        yield fabric


@pytest.fixture
def run_ranks(torch_fabric: Fabric, request: pytest.FixtureRequest) -> Iterator[Run]:
    """``run_ranks(program, ranks, *arguments)`` runs a file of ``programs/`` as the ranks of a new job, as `netsum run` does;
    all must end well."""
    made: list[str] = []

    def run(program: str, ranks: int, *arguments: str, **options: Any) -> None:
        name = f"torch-{request.node.originalname.replace('_', '-')[:40]}-{len(made)}"
        spec = JobSpec(name=name, members=tuple(f"h{host + 1}" for host in range(ranks)), **options)
        job = torch_fabric.create_job(spec)
        made.append(name)
        command = [sys.executable, str(PROGRAMS / program), *arguments]
        run_side_by_side(fabric_programs(torch_fabric, job, command))

    yield run
    for name in made:
        torch_fabric.controller.delete_job(name, force=True)
