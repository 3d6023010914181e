"""The ranks as programs: what each runs, where, and with what environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
from netsum.controller_client import ControllerClient
from netsum.extras import advice
from netsum_controller.state.model import Job

from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.free_ports import hold_address
from netsum_testbed.side_by_side import Program, ProgramFailed

_PYTHON: Final = re.compile(r"python[\d.]*")
MASTER_PORT: Final = 29500
"""torch's own default; each host of a Mininet has all its ports to itself."""


def search_path() -> str:
    """The caller's PATH, with an active virtual environment first: `sudo` and others may have lost that."""
    path, active = os.environ.get("PATH", os.defpath), os.environ.get("VIRTUAL_ENV")
    return f"{active}/bin:{path}" if active else path


def command_line(words: Sequence[str]) -> list[str]:
    """What each rank runs: a ``.py`` file with this Python, anything else as the caller's PATH finds it.
    :class:`click.UsageError` if there is no such program, :class:`TestbedError` if it is a Python without netsum."""
    program = words[0]
    if program.endswith(".py"):
        if not Path(program).is_file():
            raise click.UsageError(f"there is no file {program}")
        return [sys.executable, *words]
    found = shutil.which(program, path=search_path())
    if found is None:
        raise click.UsageError(f"{program!r} is neither a .py file nor a command on PATH")
    if _PYTHON.fullmatch(Path(found).name) and not _has_netsum(found):
        raise TestbedError(
            f"{found} has no netsum: {found} -m {advice('')}; or run a SCRIPT.py, with netsum's own Python"
        )
    return [found, *words[1:]]


def _has_netsum(python: str) -> bool:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('netsum') is None)"
    return not subprocess.run([python, "-c", code], capture_output=True, check=False).returncode


def explain_failure(error: ProgramFailed) -> ProgramFailed:
    """The failure of a rank, with what to do if its Python lacks netsum."""
    if "No module named 'netsum'" in str(error):
        return error.with_advice(f"install it where the rank's program finds it: {advice('')}")
    return error


def shared_environment(ranks: int) -> dict[str, str]:
    """The environment that all ranks on this machine share. The user's settings win."""
    threads = max(1, (os.cpu_count() or 1) // ranks)
    usual = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": str(threads)}
    return {"PATH": search_path(), **{name: os.environ.get(name) or value for name, value in usual.items()}}


def torch_environment(rank: int, size: int, place: int, places: int) -> dict[str, str]:
    """What torchrun sets; the rank is number ``place`` of the ``places`` on this machine."""
    values = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": place, "LOCAL_WORLD_SIZE": places}
    return {name: str(value) for name, value in values.items()}


def _free_master() -> dict[str, str]:
    with ExitStack() as stack:
        address, _, port = hold_address(stack).rpartition(":")
    return {"MASTER_ADDR": address, "MASTER_PORT": port}


def fabric_programs(fabric: Fabric, job: Job, command: Sequence[str]) -> list[Program]:
    """All ranks of a job of a fabric, each on its host."""
    size = job.workers
    shared = shared_environment(size)
    if fabric.rootless:
        shared |= _free_master()
    else:
        shared |= {"MASTER_ADDR": fabric.topology.hosts[job.members[0]].ip, "MASTER_PORT": str(MASTER_PORT)}
    programs = []
    for rank, host in enumerate(job.members):
        environment = {**shared, **torch_environment(rank, size, rank, size), **fabric.environment(job, rank)}
        if not fabric.rootless:
            environment["GLOO_SOCKET_IFNAME"] = fabric.interface(host)  # gloo would take the name of this machine
        name = f"rank {rank} ({host})"
        programs.append(Program(name, str(rank), [*fabric.prefix(host), *command], environment))
    return programs


def attached_programs(
    members: Sequence[Mapping[str, object]],
    chosen: Sequence[int],
    environment: Mapping[str, str],
    command: Sequence[str],
) -> list[Program]:
    """Ranks of a running controller's job: the ``chosen`` ones, or all that are not evicted. ``members`` are as the controller
    lists them, ``environment`` has what they join with."""
    size = len(members)
    if chosen and max(chosen) >= size:
        raise TestbedError(f"the job has no rank {max(chosen)}: its ranks are 0..{size - 1}")
    ranks = sorted(set(chosen)) or [rank for rank, member in enumerate(members) if not member["evicted"]]
    shared = {**shared_environment(len(ranks)), **environment}
    if not chosen:  # else other machines have the other ranks, and only the user knows where rank 0 listens
        shared |= _free_master()
    return [
        Program(
            f"rank {rank} ({members[rank]['host']})",
            str(rank),
            command,
            {**shared, "NETSUM_RANK": str(rank), **torch_environment(rank, size, place, len(ranks))},
        )
        for place, rank in enumerate(ranks)
    ]


def join_environment(client: ControllerClient, job: str, token: str) -> dict[str, str]:
    """What every rank of an attached job joins with."""
    return {"NETSUM_JOB": job, "NETSUM_TOKEN": token, "NETSUM_CONTROLLER": client.controller}
