"""The ``netsum bench`` commands."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from netsum.counting import counted
from netsum.peers.choice import PLACE_TABLE
from netsum.state_folder import state_folder
from netsum_controller.config.job_spec import JobSpec
from netsum_switch.pipeline import ENGINE_VARIABLE
from rich.console import Console
from rich.status import Status

from netsum_testbed.bench.algorithms import WORKERS, Trial, choice_table, figures, time_all, write_table
from netsum_testbed.bench.algorithms import table as algorithms_table
from netsum_testbed.bench.collective_command import add_collectives, count_option, every_switch, names_of, sizes_option
from netsum_testbed.bench.compare_command import compare
from netsum_testbed.bench.compression import Curve, curves_table, train_each
from netsum_testbed.bench.congestion import CongestionPlan
from netsum_testbed.bench.congestion_command import bench_congestion
from netsum_testbed.bench.contention import bench_contention
from netsum_testbed.bench.fairness import FAIRNESS, PRIORITIES, Setting
from netsum_testbed.bench.fairness_command import bench_fairness
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
from netsum_testbed.bench.memory_command import bench_memory
from netsum_testbed.bench.optimizer_command import optimizer
from netsum_testbed.bench.plan import bench_plan
from netsum_testbed.bench.report import remarks, switch_json, switch_table
from netsum_testbed.bench.start import bench_start
from netsum_testbed.bench.switch_command import Measures, bench_switch
from netsum_testbed.bench.switches import Plan, SwitchFigures, measure
from netsum_testbed.bench.torus import bench_torus
from netsum_testbed.bench.train_command import train
from netsum_testbed.checking import comma, list_option
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.interrupts import end_on_signals
from netsum_testbed.opening import open_fabric
from netsum_testbed.switches import runs_machine_code, switch_version

HOSTS = 4
PYTHON = "embedded_python"  # the embedded switch without machine code


@click.group()
def bench() -> None:
    """Measure what netsum costs, on every switch on this machine. The last line of each command is one JSON object."""
    end_on_signals()


bench.add_command(train)
bench.add_command(optimizer)


@bench.command()
@every_switch
@count_option("--repetitions", default=Plan.repetitions, told="of each load")
@click.option("--rounds", type=click.IntRange(min=100), default=Plan.rounds, show_default=True, help="packets a host")
@count_option("--window", default=Plan.window, told="rounds under way", most=64)
def switches(switch: str, repetitions: int, rounds: int, window: int) -> None:
    """Time a contribution and plain forwarding.

    Needs root: the packets are raw frames in a network namespace.
    """
    if os.geteuid() != 0:
        raise TestbedError("the packets of this bench are raw frames: run it as root, or one of the other benches")
    names, plan = names_of(switch), Plan(repetitions, rounds, window)
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
@count_option("--repetitions", default=Measures.repetitions, told="of each load")
@click.option(
    "--run-seconds",
    type=click.FloatRange(0.05),
    default=Measures.run_seconds,
    show_default=True,
    help="of each, roughly",
)
@count_option("--window", default=Measures.window, told="rounds under way", most=64)
@click.option(
    "--minutes",
    type=click.FloatRange(0),
    default=Measures.minutes,
    show_default=True,
    help="after which no turn begins",
)
@click.option(
    "--rootless", is_flag=True, help="frames in UDP datagrams, as of `--rootless` networks; without simple_switch_grpc"
)
def switch(**given: Any) -> None:
    """Compare the engines, a bare adder, and what the machine can do at most.

    Needs root: the packets are raw frames in network namespaces; with --rootless it does not.
    """
    bench_switch(Measures(**given))


@bench.command()
@count_option("--rounds", default=200, told="packets a host")
def instructions(rounds: int) -> None:
    """Count what simple_switch_grpc executes for a contribution, and for the bare adder.

    Needs root, and valgrind.
    """
    bench_instructions(rounds)


@bench.command()
@count_option("--repetitions", default=3, told="of each")
def start(repetitions: int) -> None:
    """Time the start of a switch with netsum's program: cold, where it is compiled, and warm."""
    bench_start(repetitions)


add_collectives(bench)
bench.add_command(compare)
bench.add_command(bench_torus)


@bench.command()
@every_switch
@count_option("--workers", default=HOSTS, told="ranks, each on its own host", most=8)
@count_option("--steps", default=150, told="of each training")
def compression(switch: str, workers: int, steps: int) -> None:
    """Train the same classifier with each way to carry gradients in fewer bytes: accuracy over bytes and over time."""
    console = Console()
    found: dict[str, dict[str, Any]] = {}
    for name in names_of(switch):
        curves: list[Curve] = []
        with console.status(f"{name}: starting") as status, open_fabric(name, hosts=workers) as fabric:
            for curve in train_each(fabric, workers, steps):
                curves.append(curve)
                status.update(f"{name}: {counted(len(curves), 'training')} done")
        console.print(curves_table(name, workers, curves))
        found[name] = {curve.method: curve.to_dict() for curve in curves}
    click.echo(json.dumps({**found, "workers": workers, "steps": steps, "python": platform.python_version()}))


@bench.command()
@every_switch
@sizes_option("4K,16K,64K,256K,1M")
@list_option("--workers", int, 1, 8, comma(WORKERS), "ranks")
@count_option("--iterations", default=Trial.iterations, told="of each call")
@count_option("--repetitions", default=Trial.turns, told="of everything")
@click.option(
    "--table",
    type=click.Path(dir_okay=False, path_type=Path),
    help="where to write which is fastest [default: the user's state folder]",
)
def algorithms(switch: str, table: Path | None, repetitions: int, **given: Any) -> None:
    """Time an allreduce of float32 by the host algorithms and through the switches."""
    names, trial = names_of(switch), Trial(turns=repetitions, **given)
    console = Console()
    with console.status("starting") as status:
        timed = time_all(trial, names, status.update)
    click.echo(algorithms_table(timed))
    click.echo(f"\nfastest without a switch, by bytes of a batch:\n{choice_table(timed)}")
    found = {**figures(timed), "cores": os.cpu_count()}
    table = state_folder() / PLACE_TABLE if table is None else table
    write_table(table, found)
    click.echo(f"wrote {table}")
    click.echo(json.dumps(found))


@bench.command()
@every_switch
@list_option("--workers", int, 1, MOST, comma(HostPlan.workers), "ranks")
@sizes_option("4M", "of the array; the first counts")
@count_option("--calls", default=HostPlan.calls, told="of a turn")
@count_option("--turns", default=HostPlan.turns, told="of everything")
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
        for name in names_of(switch):
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
@every_switch
@click.option(
    "--rate-mbps", type=click.IntRange(4), default=CongestionPlan.rate_mbps, show_default=True, help="of links"
)
@click.option("--seconds", type=click.FloatRange(2), default=CongestionPlan.seconds, show_default=True, help="a case")
@count_option("--many", default=CongestionPlan.many, told="ranks of the job with short queues", most=32)
@click.option(
    "--over-time", type=click.Path(dir_okay=False, path_type=Path), help="write each second's rates: CSV or JSON"
)
def congestion(switch: str, over_time: Path | None, **given: Any) -> None:
    """Time jobs on congested links: beside each other, beside TCP, and many ranks with short queues.

    Needs root: the links are shaped in network namespaces.
    """
    bench_congestion(names_of(switch), CongestionPlan(**given), over_time)


def _setting_options(command: Callable[..., None]) -> Callable[..., None]:
    options = (
        every_switch,
        sizes_option("256K", "of the arrays; the first counts"),
        count_option("--workers", default=Setting.workers, told="ranks of each job", most=8),
        click.option(
            "--seconds", type=click.FloatRange(0.1), default=Setting.seconds, show_default=True, help="a case"
        ),
        count_option("--repetitions", default=Setting.turns, told="of each case"),
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
    bench_fairness(names_of(switch), Setting(size=sizes[0], turns=repetitions, **more), neighbours)


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


for _command in (bench_plan, bench_contention, bench_memory):
    bench.add_command(_command)
