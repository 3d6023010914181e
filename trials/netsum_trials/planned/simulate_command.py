"""The ``simulate-check`` trial."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

import click
from netsum.counting import parse_size
from netsum_controller.config.topology import Topology
from netsum_planner.simulator.collectives import IN_NETWORK
from netsum_planner.simulator.run import run_flows, run_packets
from netsum_planner.simulator.scenario import JobPlan, Scenario
from netsum_planner.simulator.wire import Wire
from netsum_planner.topologies.files import installed
from netsum_planner.topologies.model import Topology as Planned
from netsum_testbed.checking import running, switch_option
from netsum_testbed.fabric import Fabric
from netsum_testbed.switches import choose_switch
from netsum_testbed.tables import wide_console

from netsum_trials.planned.cases import ALGORITHMS, networks
from netsum_trials.planned.errors import Errors, Row, errors_table
from netsum_trials.planned.measured import network, time_calls

SWITCH = "embedded"
"""The faster of the two: links, and not switches, shall set the pace."""
SMALL = 4096
"""Bytes of the call that tells how long a host takes to react."""


@click.command()
@switch_option(f"{SWITCH}, the faster one")
@click.option("--size", default="512K", show_default=True, help="of the array")
@click.option("--iterations", type=click.IntRange(1), default=3, show_default=True, help="of each call")
@click.option("--only", metavar="NAME", help="only networks whose name begins so, such as star or tree2x2")
def simulate_check(switch: str, size: str, iterations: int, only: str | None) -> None:
    """Compare simulated allreduces with measured ones, in Mininet with slow links.

    The last line is one JSON object: every row with its error, the median and the worst. How long a host takes
    to react is found with calls of one block; nothing else is fitted. Run it on a quiet machine: each row says what the load was.
    """
    try:
        nbytes = parse_size(size)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--size") from None
    name = SWITCH if switch == "auto" else choose_switch(switch)
    totals, start, console = Errors(name), time.monotonic(), wide_console()
    chosen = [(topology, rate) for topology, rate in networks() if topology.name.startswith(only or "")]
    with running(totals) as screen:
        screen.begin(len(chosen) * len(ALGORITHMS), "simulated and measured")
        for topology, rate in chosen:
            with network(topology, name) as fabric:
                for rows in _rows(fabric, topology, rate, nbytes, iterations):
                    totals.rows += rows
                    totals.seconds = time.monotonic() - start
                    screen.show(totals)
        console.print(errors_table(f"allreduce of {size} of float32, {name} switches", totals.rows))


def _rows(fabric: Fabric, topology: Topology, rate: int, size: int, iterations: int) -> Iterator[Sequence[Row]]:
    planned = installed(topology, rate)
    for algorithm in ALGORITHMS:
        small, measured = time_calls(fabric, algorithm, (SMALL, size), iterations)
        load, host_s = os.getloadavg()[0], reaction(planned, algorithm, small)
        scenario, wire = Scenario(jobs=(JobPlan(algorithm=algorithm, size=size),)), Wire(host_s=host_s)
        foreseen = {"flow": run_flows(planned, scenario, wire)}
        if algorithm == IN_NETWORK:
            foreseen["packet"] = run_packets(planned, scenario, wire)
        label = f"{topology.name}, {rate} Mbit/s"
        yield [
            Row(label, len(topology.hosts), algorithm, how, each.jobs[0].mean, measured, load, host_s * 1e6)
            for how, each in foreseen.items()
        ]


def reaction(planned: Planned, algorithm: str, seconds: float) -> float:
    """Seconds that a host takes to react, if a call of one block takes so long."""
    scenario = Scenario(jobs=(JobPlan(algorithm=algorithm, size=SMALL),))
    without, once = (run_flows(planned, scenario, Wire(host_s=host_s)).jobs[0].mean for host_s in (0.0, 1.0))
    return max(0.0, (seconds - without) / (once - without))
