"""The ``netsum bench`` command."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from netsum_controller.config.job_spec import JobSpec
from rich.console import Console
from rich.status import Status

from netsum_testbed.bench.algorithms import Trial, choice_table, figures, table, time_all, write_table
from netsum_testbed.bench.collective import Calls, Line, collective_table, parse_size, time_allreduce
from netsum_testbed.bench.fairness import FAIRNESS, PRIORITIES, Setting
from netsum_testbed.bench.fairness_command import bench_fairness
from netsum_testbed.bench.flood import flooding
from netsum_testbed.bench.report import remarks, switch_json, switch_table
from netsum_testbed.bench.switches import Plan, SwitchFigures, measure
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.interrupts import end_on_signals
from netsum_testbed.opening import open_fabric
from netsum_testbed.switches import available_switches, choose_switch, switch_version

HOSTS = 4
SIZES = (4 << 10, 64 << 10, 1 << 20, 4 << 20)
ITERATIONS = 5


def sizes(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """``4K,64K,1M``: bytes, with K, M or G."""
    if text is None:
        return None
    try:
        return tuple(parse_size(part) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option("--switch", type=click.Choice(["all", "bmv2", "embedded"]), default="all", show_default=True)
@click.option("--repetitions", type=click.IntRange(min=1), help="[default: 7, with --algorithms, --fairness 3]")
@click.option("--rounds", type=click.IntRange(min=100), default=Plan.rounds, show_default=True, help="packets a host")
@click.option("--window", type=click.IntRange(1, 64), default=Plan.window, show_default=True, help="rounds under way")
@click.option("--collective", type=click.Choice(["allreduce"]), help="time a collective end to end instead")
@click.option("--sizes", callback=sizes, help="[default: 4K,64K,1M,4M, with --algorithms 4K,16K,64K,256K,1M]")
@click.option("--dtype", type=click.Choice(["float32", "float64", "int32"]), default="float32", show_default=True)
@click.option("--workers", type=click.IntRange(1, 8), help="[default: 4, with --algorithms 2, 4 and 8]")
@click.option("--iterations", type=click.IntRange(min=1), help="of each call [default: 5, with --algorithms 15]")
@click.option("--flood", is_flag=True, help="with --collective: once more, beside a job that floods the switch")
@click.option(
    "--algorithms", is_flag=True, help="time the host algorithms next to the switches, by allreduce of float32"
)
@click.option("--fairness", is_flag=True, help="time a job beside others: an equal one, and such as misbehave")
@click.option("--priorities", is_flag=True, help="time a job beside others of the same, a lower and a higher class")
@click.option(
    "--seconds", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="of each of these cases"
)
@click.option("--rate-mbps", type=click.IntRange(min=1), help="what a host may send, with --fairness and --priorities")
@click.option(
    "--table", type=click.Path(dir_okay=False, path_type=Path), help="with --algorithms: write which is fastest"
)
def bench(switch: str, collective: str | None, algorithms: bool, **given: Any) -> None:
    """Time a contribution next to plain forwarding on every switch there is, a collective end to end, the algorithms that do
    without a switch, or a job beside others.

    The last line is one JSON object. Needs root: the packets are raw frames in a network namespace of the bench's own
    (with the options that choose something else it runs rootless too, on the embedded switch over loopback).
    """
    neighbours = tuple(dict.fromkeys((*FAIRNESS * given["fairness"], *PRIORITIES * given["priorities"])))
    _check_usage(collective, given, algorithms=algorithms, neighbours=bool(neighbours))
    names = available_switches() if switch == "all" else [choose_switch(switch)]
    if os.geteuid() != 0:
        if not (collective or algorithms or neighbours):
            raise TestbedError(
                "the packets of this bench are raw frames: run it as root, or with one of its other options"
            )
        names = [name for name in names if name == "embedded"] or names
    end_on_signals()
    turns, workers = given["repetitions"], given["workers"]
    if neighbours:
        size, *_ = given["sizes"] or (Setting.size,)
        measured = (workers or Setting.workers, size, given["seconds"], turns or Setting.turns, given["rate_mbps"])
        bench_fairness(names, Setting(*measured), neighbours)
    elif algorithms:
        usual = Trial()
        trial = replace(
            usual,
            workers=(workers,) if workers else usual.workers,
            sizes=given["sizes"] or usual.sizes,
            iterations=given["iterations"] or usual.iterations,
            turns=turns or usual.turns,
        )
        _bench_algorithms(names, trial, given["table"])
    elif collective is None:
        _bench_switches(names, Plan(turns or Plan.repetitions, given["rounds"], given["window"]))
    else:
        calls = Calls(given["sizes"] or SIZES, given["dtype"], workers or HOSTS, given["iterations"] or ITERATIONS)
        _bench_collective(names, calls, flood=given["flood"])


def _check_usage(collective: str | None, given: Mapping[str, Any], *, algorithms: bool, neighbours: bool) -> None:
    """Raise when options do not go together."""
    if algorithms and collective is not None:
        raise click.UsageError("--algorithms times allreduce: without --collective")
    if neighbours and (algorithms or collective is not None):
        raise click.UsageError("--fairness and --priorities go without --algorithms and --collective")
    if given["table"] is not None and not algorithms:
        raise click.UsageError("--table is for --algorithms")
    if given["flood"] and collective is None:
        raise click.UsageError("--flood is for --collective allreduce")
    if given["rate_mbps"] is not None and not neighbours:
        raise click.UsageError("--rate-mbps is for --fairness and --priorities")


def _bench_switches(names: Sequence[str], plan: Plan) -> None:
    console = Console()
    figures: list[SwitchFigures] = []
    with console.status("starting") as status:
        for name in names:
            figures.append(_bench_switch(name, plan, status))
    console.print(switch_table(figures))
    for remark in remarks(figures):
        console.print(remark)
    click.echo(switch_json(figures, {name: switch_version(name) for name in names}))


def _bench_switch(name: str, plan: Plan, status: Status) -> SwitchFigures:
    with open_fabric(name, hosts=HOSTS) as fabric:
        hosts = list(fabric.topology.hosts)
        fabric.create_job(JobSpec(name="bench", members=tuple(hosts), window=64, chunks=16))
        return fabric.inside(
            lambda: measure(
                name,
                [fabric.interface(host) for host in hosts],
                lambda: fabric.controller.membership.join_all("bench"),
                fabric.switch_pid,
                plan=plan,
                progress=status.update,
            )
        )


def _bench_algorithms(names: Sequence[str], trial: Trial, file: Path | None) -> None:
    console = Console()
    with console.status("starting") as status:
        timed = time_all(trial, names, status.update)
    click.echo(table(timed))
    click.echo(f"\nfastest without a switch, by bytes of a batch:\n{choice_table(timed)}")
    found = {**figures(timed), "cores": os.cpu_count()}
    if file is not None:
        write_table(file, found)
    click.echo(json.dumps(found))


def _bench_collective(names: Sequence[str], calls: Calls, *, flood: bool) -> None:
    console = Console()
    measured: dict[str, list[Line]] = {}
    flooded: dict[str, dict[str, Any]] = {}
    for name in names:
        with console.status(f"{name}: starting") as status:
            measured[name] = _time_collective(name, calls, status)
        click.echo(f"allreduce of {calls.dtype}, {calls.workers} workers, {name} switch")
        click.echo(collective_table(measured[name]))
        if flood:
            with console.status(f"{name}: starting") as status:
                lines, rate = _time_flooded(name, calls, status)
            click.echo(f"the same beside a flood, of which the switch takes {rate:.0f} packets a second")
            click.echo(collective_table(lines))
            flooded[name] = {"flood_pps": round(rate), "lines": [line.to_dict() for line in lines]}
    figures = {name: [line.to_dict() for line in lines] for name, lines in measured.items()}
    about = {"workers": calls.workers, "dtype": calls.dtype, "python": platform.python_version()}
    click.echo(json.dumps({**figures, **about, **({"flooded": flooded} if flood else {})}))


def _time_collective(name: str, calls: Calls, status: Status) -> list[Line]:
    with open_fabric(name, hosts=calls.workers) as fabric:
        return _time_on(fabric, calls, status)


def _time_flooded(name: str, calls: Calls, status: Status) -> tuple[list[Line], float]:
    """The same beside a flood, and how many of its packets the switch takes a second."""
    with open_fabric(name, hosts=calls.workers + 1) as fabric, flooding(fabric) as packets:
        before, start = packets(), time.monotonic()
        lines = _time_on(fabric, calls, status)
        return lines, (packets() - before) / (time.monotonic() - start)


def _time_on(fabric: Fabric, calls: Calls, status: Status) -> list[Line]:
    lines: list[Line] = []
    status.update(f"{fabric.switch}: {calls.sizes[0]} bytes")
    for line, following in zip(time_allreduce(fabric, calls), [*calls.sizes[1:], 0], strict=True):
        lines.append(line)
        status.update(f"{fabric.switch}: {following} bytes")
    return lines
