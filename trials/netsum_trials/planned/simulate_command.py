"""The ``simulate-check`` trial."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Final

import click
from netsum_bench.cli_options import size_option
from netsum_controller.config.topologies import leaf_spine, star, tree
from netsum_controller.config.topology import Topology
from netsum_planner.simulator.collectives import IN_NETWORK
from netsum_planner.simulator.network import Wire
from netsum_planner.simulator.run import run_flows, run_packets
from netsum_planner.simulator.scenario import JobPlan, Scenario
from netsum_planner.topologies.files import installed
from netsum_planner.topologies.model import Topology as Planned
from netsum_testbed.checking import count_option
from netsum_testbed.fabric import Fabric

from netsum_trials.planned.errors import Row
from netsum_trials.planned.measured import compare, kind_option, only_networks_option, time_calls

SMALL: Final = 4096
"""Bytes of the call that tells how long a host takes to react."""
ALGORITHMS: Final = ("in_network", "ring", "halving_doubling", "double_binary_tree")


def networks() -> Iterator[tuple[Topology, int]]:
    """A topology and the rate of all its links, so slow that they, and not the processors, set the pace; more hosts have slower
    links, so that their processes keep up."""
    for hosts, rate in ((2, 50), (4, 20), (8, 10), (16, 5)):
        yield star(hosts, rate_mbps=rate), rate
    for leaves, hosts, rate in ((2, 2, 20), (2, 4, 10), (4, 4, 5)):
        yield tree(leaves, hosts, rate_mbps=rate), rate
    for spines, leaves, hosts, rate in ((2, 2, 1, 50), (2, 2, 2, 20), (2, 4, 2, 10), (2, 4, 4, 5)):
        yield leaf_spine(spines, leaves, hosts, rate_mbps=rate), rate


@click.command()
@kind_option
@size_option("512K")
@count_option("--iterations", default=3, told="of each call")
@only_networks_option
def simulate_check(switch: str, size: int, iterations: int, only: str | None) -> None:
    """Compare simulated allreduces with measured ones, in Mininet with slow links.

    The last line is one JSON object: every row with its error, the median and the worst. How long a host takes
    to react is found with calls of one block; nothing else is fitted. Run it on a quiet machine: each row says what the load was.
    """
    rows = partial(_rows, size=size, iterations=iterations)
    compare(switch, networks(), only, f"allreduce of {size} bytes of float32", rows)


def _rows(fabric: Fabric, topology: Topology, rate: int, *, size: int, iterations: int) -> Iterator[Row]:
    planned = installed(topology, rate)
    for algorithm in ALGORITHMS:
        small, measured = time_calls(fabric, algorithm, (SMALL, size), iterations)
        load, host_s = os.getloadavg()[0], reaction(planned, algorithm, small)
        scenario, wire = Scenario(jobs=(JobPlan(algorithm=algorithm, size=size),)), Wire(host_s=host_s)
        foreseen = {"flow": run_flows(planned, scenario, wire)}
        if algorithm == IN_NETWORK:
            foreseen["packet"] = run_packets(planned, scenario, wire)
        label = f"{topology.name}, {rate} Mbit/s"
        for how, each in foreseen.items():
            yield Row(label, len(topology.hosts), algorithm, how, each.jobs[0].mean, measured, load, host_s * 1e6)


def reaction(planned: Planned, algorithm: str, seconds: float) -> float:
    """Seconds that a host takes to react, if a call of one block takes so long."""
    scenario = Scenario(jobs=(JobPlan(algorithm=algorithm, size=SMALL),))
    without, once = (run_flows(planned, scenario, Wire(host_s=host_s)).jobs[0].mean for host_s in (0.0, 1.0))
    return max(0.0, (seconds - without) / (once - without))
