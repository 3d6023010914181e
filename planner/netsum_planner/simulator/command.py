# SPDX-License-Identifier: MIT
"""``netsum simulate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from netsum.text import counted, parse_size
from netsum_controller.cli.options import console, json_option, print_json, print_table

from netsum_planner.options import plot_option, topology_options
from netsum_planner.simulator.chakra import write_traces
from netsum_planner.simulator.collectives import ALGORITHMS, IN_NETWORK
from netsum_planner.simulator.flows import Progress
from netsum_planner.simulator.network import Wire
from netsum_planner.simulator.outcome import SimulationResult, plot_outcomes
from netsum_planner.simulator.packets import Faults
from netsum_planner.simulator.run import require_in_network, run_flows, run_packets
from netsum_planner.simulator.scenario import JobPlan, Scenario, read_scenario
from netsum_planner.topologies.model import Topology

PLAN = "plan:"


def read_size(_context: click.Context, _option: click.Parameter, text: str) -> int:
    """The value of an option like ``64M``."""
    try:
        size = parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not size:
        raise click.BadParameter("an array has 1 byte or more")
    return size


@dataclass(frozen=True)
class _Request:
    """The jobs and options of a simulation."""

    level: str
    seed: int
    wire: Wire
    faults: Faults

    def run(self, topology: Topology, scenario: Scenario, progress: Progress) -> SimulationResult:
        if self.level == "packet":
            return run_packets(topology, scenario, self.wire, self.faults, seed=self.seed, progress=progress)
        return run_flows(topology, scenario, self.wire, seed=self.seed, progress=progress)


def _options(command: Callable[..., None]) -> Any:
    found: Any = command
    positive, none = click.FloatRange(0, min_open=True), click.FloatRange(0)
    for option in (
        click.option(
            "--algorithm",
            "algorithms",
            multiple=True,
            metavar="NAME|plan:FILE",
            help=f"{', '.join(ALGORITHMS)}, or a plan of `netsum plan trees`; repeatable. [default: in_network, ring]",
        ),
        click.option("--size", default="64M", show_default=True, callback=read_size, help="Bytes of the array."),
        click.option("--calls", type=click.IntRange(1), default=1, show_default=True, help="One after the other."),
        click.option("--scenario", type=click.Path(path_type=Path), metavar="YAML", help="Jobs, stragglers, failures instead."),
        click.option("--level", type=click.Choice(["flow", "packet"]), default="flow", show_default=True),
        click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of losses and lateness."),
        click.option("--window", type=click.IntRange(1, 1 << 15), default=Wire.window, show_default=True, help="Blocks."),
        click.option("--host-us", type=none, default=0.0, help="Microseconds until a host reacts."),
        click.option("--loss", type=click.FloatRange(0, 1, max_open=True), default=0.0, help="Of packets, on each link."),
        click.option("--queue", type=positive, metavar="KB", help="In front of a link, above which packets are dropped."),
        click.option("--ecn", type=none, metavar="KB", help="In front of a link, above which packets are marked."),
        click.option("--switch-pps", type=positive, metavar="N", help="Packets a second that a switch can take."),
        plot_option,
        click.option("--trace", type=click.Path(path_type=Path), metavar="PREFIX", help="Write Chakra traces, and stop."),
        json_option,
    ):
        found = option(found)
    return found


@click.command()
@topology_options
@_options
def simulate(
    topology: Topology,
    algorithms: Sequence[str],
    size: int,
    calls: int,
    scenario: Path | None,
    plot: Path | None,
    trace: Path | None,
    as_json: bool,
    **more: Any,
) -> None:
    """Simulate allreduces on TOPOLOGY before anything runs on it: seconds, rates, and how busy the links are.

    Flows share links by max-min fair shares, for thousands of workers. Packets (--level packet) are for hundreds: every host has
    netsum's own window, and switches sum; loss, queues, ECN and slow switches are theirs.

    Each algorithm runs alone. In a scenario, its jobs run together.
    """
    request = _request(algorithms, scenario, **more)
    if scenario is not None:
        runs = [read_scenario(scenario, topology)]
    else:
        usual = (IN_NETWORK,) if request.level == "packet" else (IN_NETWORK, "ring")
        runs = [Scenario(jobs=(_job(name, size, calls),)) for name in algorithms or usual]
    if request.level == "packet":
        require_in_network(*runs)
    if trace is not None:
        if len(runs) != 1 or len(runs[0].jobs) != 1:
            raise click.UsageError("--trace takes one --algorithm, or a scenario of one job")
        files = write_traces(trace, topology, runs[0], request.wire, request.seed)
        click.echo(f"{files[0]} and so on: {counted(len(files), 'file')}")
        return
    outcomes = []
    for number, each in enumerate(runs, 1):
        with console().status(f"{topology.name}: starting") as status:

            def show(now: float, share: float, number: int = number) -> None:
                status.update(f"{topology.name}: {number} of {len(runs)}, {share:.0%}, {now * 1e3:.1f} ms simulated")

            outcomes.append(request.run(topology, each, show))
    if plot is not None:
        plot_outcomes(plot, outcomes)
    if as_json:
        print_json([each.to_json() for each in outcomes])
    else:
        _show(outcomes)


def _request(
    algorithms: Sequence[str],
    scenario: Path | None,
    *,
    level: str,
    seed: int,
    window: int,
    host_us: float,
    loss: float,
    queue: float | None,
    ecn: float | None,
    switch_pps: float | None,
) -> _Request:
    if level == "flow" and (loss or queue is not None or ecn is not None or switch_pps is not None):
        raise click.UsageError("--loss, --queue, --ecn and --switch-pps are of packets: add --level packet")
    if scenario is not None and algorithms:
        raise click.UsageError("a scenario has its jobs' algorithms: leave --algorithm out")
    limits = [float("inf") if each is None else each * 1000 for each in (queue, ecn)]
    faults = Faults(loss, limits[0], limits[1], switch_pps or 0.0)
    return _Request(level, seed, Wire(window=window, host_s=host_us / 1e6), faults)


def _job(name: str, size: int, calls: int) -> JobPlan:
    if name.startswith(PLAN):
        return JobPlan(plan=Path(name.removeprefix(PLAN)), size=size, calls=calls)
    if name not in ALGORITHMS:
        raise click.UsageError(f"--algorithm {name}: there are {', '.join(ALGORITHMS)}, and plan:FILE")
    return JobPlan(algorithm=name, size=size, calls=calls)


def _show(outcomes: Sequence[SimulationResult]) -> None:
    first = outcomes[0]
    click.echo(f"{first.topology}: {first.level}s, seed {first.seed}")
    rows = []
    for each in outcomes:
        busiest = f"{' -> '.join(each.links[0].ends)}: {each.links[0].share:.0%}" if each.links else "-"
        for job in each.jobs:
            figures = job.to_json()
            rows.append(
                (
                    job.name,
                    job.algorithm,
                    job.workers,
                    f"{job.mean * 1e3:.3f}",
                    f"{figures['algbw_GBps']:.3f}",
                    f"{figures['busbw_GBps']:.3f}",
                    busiest,
                )
            )
    print_table(("JOB", "ALGORITHM", "WORKERS", "A CALL\nms", "ALGBW\nGB/s", "BUSBW\nGB/s", "BUSIEST LINK"), rows)
    for each in outcomes:
        if (counts := each.counts) is not None:
            click.echo(
                f"{counted(counts.packets, 'packet')}, {counts.lost} lost, {counts.dropped} dropped, {counts.marked} marked, "
                f"{counted(counts.retransmissions, 'retransmission')}, longest queue {counts.longest_queue / 1000:.0f} kB"
            )
