"""The ``netsum run`` command."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from netsum.controller_client import ControllerClient
from netsum.text import counted
from netsum_controller.cli.algorithm import Algorithm
from netsum_controller.config.job_spec import MAX_WINDOW, JobSpec
from netsum_controller.config.topology import Topology
from netsum_controller.config.yaml_marks import MarkedYaml, validate
from netsum_controller.state.model import Late
from rich.console import Console

from netsum_testbed.checking import list_option, rootless_option, switch_option
from netsum_testbed.commands import MAX_WORKERS, WORKERS, choose_topology, open_topology, without_mininet
from netsum_testbed.errors import TestbedError
from netsum_testbed.interrupts import end_on_signals
from netsum_testbed.launch.memory import load_memory, start_memory
from netsum_testbed.launch.ranks import (
    attached_programs,
    command_line,
    explain_failure,
    fabric_programs,
    join_environment,
)
from netsum_testbed.side_by_side import ProgramFailed, run_side_by_side

JOB: Final = "run"
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
    help="memory devices on further hosts, and regions: a YAML file (docs/memory-training.md)",
)  # fmt: skip
@click.option(
    "--attach", metavar="URL", help="join --job of the controller at this URL, instead of bringing up a fabric"
)
@click.option("--job", envvar="NETSUM_JOB", show_envvar=True, metavar="NAME", help=f"the job's name [default: {JOB}]")
@click.option("--token", envvar="NETSUM_TOKEN", show_envvar=True, help="with --attach: the job's token")
@list_option("--ranks", int, 0, MAX_WORKERS - 1, None, "with --attach: start only these, such as 0,2 or 0-3")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT.py|COMMAND [ARGUMENT]...")
@click.pass_context
def run(context: click.Context, /, command: tuple[str, ...], attach: str | None, **options: Any) -> None:
    """Run a program as the ranks of a job: brings up a fabric, the controller and the job, and one process for each rank.

    In the program `netsum.join()` joins the job, and torch's env:// works. Each line that a rank prints has the rank in front.
    The first rank that fails ends all, with its exit code. A SCRIPT.py runs with the Python of netsum; put `--` before a
    COMMAND, which PATH finds.
    """
    _require_sense(context, attach)
    words = command_line(command)
    end_on_signals()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # whatever a rank prints
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
            why = (
                "is for --attach" if attach is None else "is for a fabric of our own: with --attach the job is as it is"
            )
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
        run_side_by_side(programs)


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
    run_side_by_side(attached_programs(members, ranks, join_environment(client, job, token), command))
