# SPDX-License-Identifier: MIT
"""``netsum run``: a program as the ranks of a job."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from netsum.controller_client import ControllerClient
from netsum.extras import advice
from netsum.text import counted
from netsum_controller.cli.options import Algorithm
from netsum_controller.config.job_spec import MAX_WINDOW, JobSpec
from netsum_controller.config.topology import Topology
from netsum_controller.config.yaml_files import MarkedYaml, Strict, load_yaml, validate
from netsum_controller.memory.model import RegionSpec
from netsum_controller.state.model import Job, Late
from pydantic import Field
from rich.console import Console

from netsum_testbed.checking import list_option, rootless_option, switch_option
from netsum_testbed.commands import MAX_WORKERS, WORKERS, choose_topology, open_topology, without_mininet
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.free_ports import hold_address
from netsum_testbed.interrupts import end_on_signals, handled_by
from netsum_testbed.side_by_side import ChildProgram, ProgramFailed, run_side_by_side

# `netsum run --memory FILE`: memory devices beside the ranks, and the regions that the program opens.


class MemoryFile(Strict):
    """``devices``: how many hosts serve memory, besides those of the ranks."""

    devices: int = Field(default=1, ge=1, le=64)
    regions: tuple[RegionSpec, ...] = Field(strict=False, min_length=1)


def load_memory(path: Path) -> MemoryFile:
    """Raises :class:`InputError` with a line for everything that is wrong."""
    return validate(MemoryFile, load_yaml(path))


def start_memory(fabric: Fabric, wanted: MemoryFile, hosts: Sequence[str], token: str) -> None:
    """Start devices on these hosts and make the regions, which open with the job's token."""
    fabric.memory.start(hosts)
    for spec in wanted.regions:
        fabric.memory.create(spec.model_copy(update={"token": spec.token or token}))


# The ranks as programs: what each runs, where, and with what environment.


_PYTHON: Final = re.compile(r"python[\d.]*")
MASTER_PORT: Final = 29500
"""torch's own default; each host of a Mininet has all its ports to itself."""


def search_path() -> str:
    """The caller's PATH, with an active virtual environment first: `sudo` and others may have lost that."""
    path, active = os.environ.get("PATH", os.defpath), os.environ.get("VIRTUAL_ENV")
    return f"{active}/bin:{path}" if active else path


def command_line(words: Sequence[str]) -> list[str]:
    """The command line of each rank: a ``.py`` file with this Python, anything else as the caller's PATH finds it.
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
        raise TestbedError(f"{found} has no netsum: {found} -m {advice('')}; or run a SCRIPT.py, with netsum's own Python")
    return [found, *words[1:]]


def _has_netsum(python: str) -> bool:
    # A clone of the repository that lies in the current folder is found, too, as a namespace package.
    code = "import importlib.util, sys; found = importlib.util.find_spec('netsum'); sys.exit(not (found and found.origin))"
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
    """The environment that torchrun sets; the rank is number ``place`` of the ``places`` on this machine."""
    values = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": place, "LOCAL_WORLD_SIZE": places}
    return {name: str(value) for name, value in values.items()}


def _free_master() -> dict[str, str]:
    with ExitStack() as stack:
        address, _, port = hold_address(stack).rpartition(":")
    return {"MASTER_ADDR": address, "MASTER_PORT": port}


def fabric_programs(fabric: Fabric, job: Job, command: Sequence[str]) -> list[ChildProgram]:
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
        programs.append(ChildProgram(name, str(rank), [*fabric.prefix(host), *command], environment))
    return programs


def attached_programs(
    members: Sequence[Mapping[str, object]],
    chosen: Sequence[int],
    environment: Mapping[str, str],
    command: Sequence[str],
) -> list[ChildProgram]:
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
        ChildProgram(
            f"rank {rank} ({members[rank]['host']})",
            str(rank),
            command,
            {**shared, "NETSUM_RANK": str(rank), **torch_environment(rank, size, place, len(ranks))},
        )
        for place, rank in enumerate(ranks)
    ]


def join_environment(client: ControllerClient, job: str, token: str) -> dict[str, str]:
    """The arguments with which every rank of an attached job joins."""
    return {"NETSUM_JOB": job, "NETSUM_TOKEN": token, "NETSUM_CONTROLLER": client.controller, "NETSUM_JOIN": ""}


# The ``netsum run`` command.


JOB: Final = "run"
PASSED_ON: Final = (signal.SIGUSR1,)
"""Signals that the ranks get from this command."""
ANSWERS: Final = 10.0
"""Seconds within which a running controller must answer."""

_OF_A_JOB: Final = ("late", "block_exp", "quorum", "window", "algorithm")
_OF_A_FABRIC: Final = ("workers", "topology_file", "switch", "rootless", "memory_file", *_OF_A_JOB)
_OF_ATTACHING: Final = ("token", "ranks")


@click.command(context_settings={"allow_interspersed_args": False}, short_help="Run a program as the ranks of a job.")
@click.option(
    "-n",
    "workers",
    type=click.IntRange(1, MAX_WORKERS),
    metavar="N",
    help="ranks, one on each host [default: the hosts of --topology, else 4]",
)
@click.option("--topology", "topology_file", type=click.Path(path_type=Path), help="a YAML file [default: a star]")
@switch_option()
@rootless_option
@click.option("--late", type=click.Choice([late.value for late in Late]), help="what to do about late ranks")
@click.option("--block-exp", type=float, metavar="MS", help="least time that a block of a degrade job waits")
@click.option("--quorum", type=int, metavar="N", help="ranks that must be in a block that is closed early")
@click.option("--window", type=click.IntRange(1, MAX_WINDOW), metavar="BLOCKS", help="blocks in flight")
@click.option("--algorithm", type=Algorithm(), help="who combines: the switches, or the ranks themselves")
@click.option(
    "--memory", "memory_file", type=click.Path(path_type=Path), metavar="FILE",
    help="memory devices on further hosts, and regions: a YAML file (docs/memory.md)",
)  # fmt: skip
@click.option("--attach", metavar="URL", help="join --job of the controller at this URL, instead of bringing up a fabric")
@click.option("--job", envvar="NETSUM_JOB", show_envvar=True, metavar="NAME", help=f"the job's name [default: {JOB}]")
@click.option("--token", envvar="NETSUM_TOKEN", show_envvar=True, help="with --attach: the job's token")
@list_option("--ranks", int, 0, MAX_WORKERS - 1, None, "with --attach: start only these, such as 0,2 or 0-3")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT.py|COMMAND [ARGUMENT]...")
@click.pass_context
def run(context: click.Context, /, command: tuple[str, ...], attach: str | None, **options: Any) -> None:
    """Run a program as the ranks of a job: brings up a fabric, the controller and the job, and one process for each rank.

    In the program `netsum.join()` joins the job, and torch's env:// works. Each line that a rank prints has the rank in front.
    The first rank that fails ends all, with its exit code. SIGUSR1 makes the ranks print what they wait for. A SCRIPT.py runs
    with the Python of netsum; put `--` before a COMMAND, which PATH finds.
    """
    _require_sense(context, attach)
    words = command_line(command)
    end_on_signals()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # whatever a rank prints
    with handled_by(lambda *_: None, PASSED_ON):  # while there are no ranks
        try:
            if attach is None:
                _run_in_fabric(words, options)
            else:
                _run_attached(words, attach, options["job"], options["token"], options["ranks"])
        except ProgramFailed as error:
            raise explain_failure(error) from None


def _require_sense(context: click.Context, attach: str | None) -> None:
    """Raise :class:`click.UsageError` for an option that has no meaning with, or without, --attach."""
    names = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name in _OF_ATTACHING if attach is None else _OF_A_FABRIC:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            why = "is for --attach" if attach is None else "is for a fabric of our own: with --attach the job is as it is"
            raise click.UsageError(f"{names[name]} {why}", context)


def job_spec(name: str, members: Sequence[str], options: Mapping[str, Any]) -> JobSpec:
    """The job that the options describe."""
    given = {key: options[key] for key in _OF_A_JOB if options[key] is not None}
    names: dict[str | int, str] = {"name": "--job", **{key: f"--{key.replace('_', '-')}" for key in given}}
    return validate(JobSpec, MarkedYaml("job", {"name": name, "members": list(members), **given}, options=names))


def _run_in_fabric(command: Sequence[str], options: Mapping[str, Any]) -> None:
    console = Console(stderr=True)  # standard output is for the ranks
    reason = "--rootless" if options["rootless"] else without_mininet()
    memory = None if options["memory_file"] is None else load_memory(options["memory_file"])
    topology, workers, devices = _hosts(options, 0 if memory is None else memory.devices)
    spec = job_spec(options["job"] or JOB, list(topology.hosts)[:workers], options)
    with ExitStack() as stack:
        with console.status(f"bringing up {topology.name}"):  # shown on a terminal alone
            fabric = stack.enter_context(open_topology(topology, options["switch"], reason, console))
            job = fabric.create_job(spec)
            if memory is not None:
                start_memory(fabric, memory, devices, fabric.tokens[job.name])
            programs = fabric_programs(fabric, job, command)
        kind = "rootless" if fabric.rootless else "Mininet"
        ranks = counted(workers, "rank")
        console.print(f"{topology.name}: {fabric.switch} switch and {ranks}, {kind}: up", highlight=False)
        run_side_by_side(programs, PASSED_ON)


def _hosts(options: Mapping[str, Any], devices: int) -> tuple[Topology, int, Sequence[str]]:
    """The topology, how many of its hosts have a rank, and the hosts behind these that serve memory."""
    file, workers = options["topology_file"], options["workers"]
    if devices and file is None:
        topology, _ = choose_topology(None, (workers or WORKERS) + devices)
        workers = workers or WORKERS
    else:
        topology, workers = choose_topology(file, workers)
    others = list(topology.hosts)[workers : workers + devices]
    if len(others) < devices:
        raise TestbedError(
            f"{file}: {counted(workers, 'rank')} and {counted(devices, 'memory device')} need a host each, and it has "
            f"{counted(len(topology.hosts), 'host')}; say with -n how many ranks there are to be"
        )
    return topology, workers, others


def _run_attached(command: Sequence[str], url: str, job: str | None, token: str | None, ranks: Sequence[int]) -> None:
    for name, value in {"--job (or NETSUM_JOB)": job, "--token (or NETSUM_TOKEN)": token}.items():
        if value is None:
            raise click.UsageError(f"--attach needs {name}")
    assert job is not None
    assert token is not None
    client = ControllerClient.from_options(job, 0, token, url)
    members = client.members(time.monotonic() + ANSWERS)
    run_side_by_side(attached_programs(members, ranks, join_environment(client, job, token), command), PASSED_ON)
