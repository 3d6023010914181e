"""The ``netsum bench`` commands."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from netsum.counting import counted
from netsum_controller.config.job_spec import JobSpec
from netsum_switch.pipeline import ENGINE_VARIABLE
from rich.console import Console
from rich.status import Status

from netsum_testbed.bench.algorithms import WORKERS, Trial, choice_table, figures, time_all, write_table
from netsum_testbed.bench.algorithms import table as algorithms_table
from netsum_testbed.bench.collective import Calls, Line, collective_table, parse_size, time_allreduce
from netsum_testbed.bench.compression import Curve, curves_table, train_each
from netsum_testbed.bench.congestion import CongestionPlan
from netsum_testbed.bench.congestion_command import bench_congestion
from netsum_testbed.bench.fairness import FAIRNESS, PRIORITIES, Setting
from netsum_testbed.bench.fairness_command import bench_fairness
from netsum_testbed.bench.flood import flooding
from netsum_testbed.bench.floor import measure_floor
from netsum_testbed.bench.host import (
    MOST,
    TRANSPORTS,
    HostFigures,
    HostPlan,
    host_json,
    host_table,
    kernel_us,
    measure_hosts,
)
from netsum_testbed.bench.instructions import bench_instructions
from netsum_testbed.bench.report import remarks, switch_json, switch_table
from netsum_testbed.bench.start import bench_start
from netsum_testbed.bench.switch_command import Measures, bench_switch
from netsum_testbed.bench.switches import Plan, SwitchFigures, measure
from netsum_testbed.checking import comma, list_option, switch_option
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.interrupts import end_on_signals
from netsum_testbed.opening import open_fabric
from netsum_testbed.switches import choose_switch, runs_machine_code, switch_version, usable_switches

HOSTS = 4
PYTHON = "embedded_python"  # the embedded switch without machine code
ITERATIONS = 5


def _read_sizes(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    """``4K,64K,1M``: bytes, with K, M or G."""
    try:
        return tuple(parse_size(part) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _sizes_option(default: str, told: str = "of arrays") -> Callable[[Any], Any]:
    return click.option("--sizes", callback=_read_sizes, default=default, show_default=True, help=told)


def _count_option(name: str, default: int, told: str, most: int | None = None) -> Callable[[Any], Any]:
    return click.option(name, type=click.IntRange(1, most), default=default, show_default=True, help=told)


_switch_option = switch_option("every switch on this machine; without root the embedded one")


def _names(switch: str) -> list[str]:
    """The switches to measure, one after the other."""
    return usable_switches() if switch == "auto" else [choose_switch(switch)]


@click.group()
def bench() -> None:
    """Measure what netsum costs, on every switch on this machine. The last line of each command is one JSON object."""
    end_on_signals()


@bench.command()
@_switch_option
@_count_option("--repetitions", Plan.repetitions, "of each load")
@click.option("--rounds", type=click.IntRange(min=100), default=Plan.rounds, show_default=True, help="packets a host")
@_count_option("--window", Plan.window, "rounds under way", 64)
def switches(switch: str, repetitions: int, rounds: int, window: int) -> None:
    """Time a contribution and plain forwarding.

    Needs root: the packets are raw frames in a network namespace.
    """
    if os.geteuid() != 0:
        raise TestbedError("the packets of this bench are raw frames: run it as root, or one of the other benches")
    names, plan = _names(switch), Plan(repetitions, rounds, window)
    if "embedded" in names and runs_machine_code():
        names.append(PYTHON)
    console = Console()
    figures: list[SwitchFigures] = []
    with console.status("starting") as status:
        for name in names:
            figures.append(_bench_switch(name, plan, status))
        status.update("without a switch")
        floor_pps = measure_floor(plan)
    console.print(switch_table(figures))
    for remark in remarks(figures, floor_pps):
        console.print(remark)
    click.echo(switch_json(figures, {name: switch_version(name) for name in names}, floor_pps))


@bench.command()
@_count_option("--repetitions", Measures.repetitions, "of each load")
@click.option(
    "--run-seconds",
    type=click.FloatRange(0.05),
    default=Measures.run_seconds,
    show_default=True,
    help="of each, roughly",
)
@_count_option("--window", Measures.window, "rounds under way", 64)
@click.option(
    "--minutes",
    type=click.FloatRange(0),
    default=Measures.minutes,
    show_default=True,
    help="after which no turn begins",
)
def switch(**given: Any) -> None:
    """Compare the engines, a bare adder, and what the machine can do at most.

    Needs root: the packets are raw frames in network namespaces.
    """
    bench_switch(Measures(**given))


@bench.command()
@_count_option("--rounds", 200, "packets a host")
def instructions(rounds: int) -> None:
    """Count what simple_switch_grpc executes for a contribution, and for the bare adder.

    Needs root, and valgrind.
    """
    bench_instructions(rounds)


@bench.command()
@_count_option("--repetitions", 3, "of each")
def start(repetitions: int) -> None:
    """Time the start of a switch with netsum's program: cold, where it is compiled, and warm."""
    bench_start(repetitions)


@bench.command()
@_switch_option
@_sizes_option("4K,64K,1M,4M")
@click.option("--dtype", type=click.Choice(["float32", "float64", "int32"]), default="float32", show_default=True)
@_count_option("--workers", HOSTS, "ranks, each on its own host", 8)
@_count_option("--iterations", ITERATIONS, "of each call")
@click.option(
    "--scale",
    type=click.Choice(["agreed", "predicted", "exact"]),
    default="agreed",
    show_default=True,
    help="of the sums",
)
@click.option("--flood", is_flag=True, help="also time them beside a job that floods the switch")
def allreduce(switch: str, flood: bool, **given: Any) -> None:
    """Time whole calls, end to end."""
    names, calls = _names(switch), Calls(**given)
    console = Console()
    measured: dict[str, list[Line]] = {}
    flooded: dict[str, dict[str, Any]] = {}
    for name in names:
        with console.status(f"{name}: starting") as status:
            measured[name] = _time_collective(name, calls, status)
        click.echo(f"allreduce of {calls.dtype}, {counted(calls.workers, 'worker')}, {name} switch")
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


@bench.command()
@_switch_option
@_count_option("--workers", HOSTS, "ranks, each on its own host", 8)
@_count_option("--steps", 150, "of each training")
def compression(switch: str, workers: int, steps: int) -> None:
    """Train the same classifier with each way to carry gradients in fewer bytes: accuracy over bytes and over time."""
    console = Console()
    found: dict[str, dict[str, Any]] = {}
    for name in _names(switch):
        curves: list[Curve] = []
        with console.status(f"{name}: starting") as status, open_fabric(name, hosts=workers) as fabric:
            for curve in train_each(fabric, workers, steps):
                curves.append(curve)
                status.update(f"{name}: {counted(len(curves), 'training')} done")
        console.print(curves_table(name, workers, curves))
        found[name] = {curve.method: curve.to_dict() for curve in curves}
    click.echo(json.dumps({**found, "workers": workers, "steps": steps, "python": platform.python_version()}))


@bench.command()
@_switch_option
@_sizes_option("4K,16K,64K,256K,1M")
@list_option("--workers", int, 1, 8, comma(WORKERS), "ranks")
@_count_option("--iterations", Trial.iterations, "of each call")
@_count_option("--repetitions", Trial.turns, "of everything")
@click.option("--table", type=click.Path(dir_okay=False, path_type=Path), help="write which is fastest")
def algorithms(switch: str, table: Path | None, repetitions: int, **given: Any) -> None:
    """Time an allreduce of float32 by the host algorithms and through the switches."""
    names, trial = _names(switch), Trial(turns=repetitions, **given)
    console = Console()
    with console.status("starting") as status:
        timed = time_all(trial, names, status.update)
    click.echo(algorithms_table(timed))
    click.echo(f"\nfastest without a switch, by bytes of a batch:\n{choice_table(timed)}")
    found = {**figures(timed), "cores": os.cpu_count()}
    if table is not None:
        write_table(table, found)
    click.echo(json.dumps(found))


@bench.command()
@_switch_option
@list_option("--workers", int, 1, MOST, comma(HostPlan.workers), "ranks")
@_sizes_option("4M", "of the array; the first counts")
@_count_option("--calls", HostPlan.calls, "of a turn")
@_count_option("--turns", HostPlan.turns, "of everything")
def host(switch: str, sizes: Sequence[int], **given: Any) -> None:
    """Time what the library costs a host: processor time of a block and of a small call.

    Needs root: over raw frames, and over the kernel's UDP.
    """
    if os.geteuid() != 0:
        raise TestbedError("this bench makes network namespaces: run it as root, or one of the other benches")
    plan = HostPlan(size=sizes[0], **given)
    console = Console()
    found: list[HostFigures] = []
    with console.status("without a switch") as status:
        kernel = {transport: kernel_us(transport) for transport in TRANSPORTS}
        for name in _names(switch):
            found += measure_hosts(name, plan, status.update)
    console.print(host_table(found, kernel))
    about = {
        "size": plan.size,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    click.echo(json.dumps({**host_json(found, kernel), **about}))


@bench.command()
@_switch_option
@click.option(
    "--rate-mbps", type=click.IntRange(4), default=CongestionPlan.rate_mbps, show_default=True, help="of links"
)
@click.option("--seconds", type=click.FloatRange(2), default=CongestionPlan.seconds, show_default=True, help="a case")
@_count_option("--many", CongestionPlan.many, "ranks of the job with short queues", 32)
@click.option(
    "--over-time", type=click.Path(dir_okay=False, path_type=Path), help="write each second's rates: CSV or JSON"
)
def congestion(switch: str, over_time: Path | None, **given: Any) -> None:
    """Time jobs on congested links: beside each other, beside TCP, and many ranks with short queues.

    Needs root: the links are shaped in network namespaces.
    """
    bench_congestion(_names(switch), CongestionPlan(**given), over_time)


def _setting_options(command: Callable[..., None]) -> Callable[..., None]:
    options = (
        _switch_option,
        _sizes_option("256K", "of the arrays; the first counts"),
        _count_option("--workers", Setting.workers, "ranks of each job", 8),
        click.option(
            "--seconds", type=click.FloatRange(0.1), default=Setting.seconds, show_default=True, help="a case"
        ),
        _count_option("--repetitions", Setting.turns, "of each case"),
        click.option("--rate-mbps", type=click.IntRange(min=1), help="what a host may send"),
    )
    for option in reversed(options):
        command = option(command)
    return command


@bench.command()
@_setting_options
def fairness(**given: Any) -> None:
    """Time a job beside others: an equal one, and some that misbehave."""
    _bench_neighbours(FAIRNESS, **given)


@bench.command()
@_setting_options
def priorities(**given: Any) -> None:
    """Time a job beside others of the same, a lower and a higher priority."""
    _bench_neighbours(PRIORITIES, **given)


def _bench_neighbours(
    neighbours: Sequence[str], switch: str, sizes: Sequence[int], repetitions: int, **more: Any
) -> None:
    bench_fairness(_names(switch), Setting(size=sizes[0], turns=repetitions, **more), neighbours)


@contextmanager
def _fabric_of(name: str) -> Iterator[Fabric]:
    """A switch, or the embedded one on its Python engine."""
    if name != PYTHON:
        with open_fabric(name, hosts=HOSTS) as fabric:
            yield fabric
        return
    asked = os.environ.get(ENGINE_VARIABLE, "")
    os.environ[ENGINE_VARIABLE] = "python"
    try:
        with open_fabric("embedded", hosts=HOSTS) as fabric:
            yield fabric
    finally:
        os.environ[ENGINE_VARIABLE] = asked


def _bench_switch(name: str, plan: Plan, status: Status) -> SwitchFigures:
    with _fabric_of(name) as fabric:
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


def _time_collective(name: str, calls: Calls, status: Status) -> list[Line]:
    with open_fabric(name, hosts=calls.workers) as fabric:
        return _time_on(fabric, calls, status)


def _time_flooded(name: str, calls: Calls, status: Status) -> tuple[list[Line], float]:
    """Time the calls beside a flood; also return how many of its packets the switch takes a second."""
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
