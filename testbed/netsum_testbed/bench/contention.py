"""``netsum bench contention``: what links carry while ranks are in the order of a file, and in the planned one: as computed
(`netsum plan ranks`), as simulated (`netsum simulate`), and by the counters of ports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from netsum.agent.tables import table_console
from netsum.text import counted
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.errors import InputError
from netsum_planner.ranks.contention import ALGORITHMS, Contention
from netsum_planner.ranks.mapping import map_ranks
from netsum_planner.simulator.run import run_flows
from netsum_planner.simulator.scenario import JobPlan, Scenario
from netsum_planner.topologies.files import for_controller, read_topology
from netsum_planner.topologies.model import Pair, Topology
from rich.console import Console

from netsum_testbed.bench.calls import Calls
from netsum_testbed.bench.collective import time_ranks
from netsum_testbed.bench.frame import print_figures, size_option
from netsum_testbed.bench.links import read_links
from netsum_testbed.checking import count_option, switch_option
from netsum_testbed.commands import open_topology, without_mininet
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.tables import make_table


@dataclass(frozen=True)
class Load:
    """The link that carries most in a call, and how many arrays that is."""

    link: Pair
    arrays: float

    @classmethod
    def largest(cls, nbytes: Mapping[Pair, float], size: int) -> Load:
        link = max(nbytes, key=lambda ends: nbytes[ends])
        return cls(link, nbytes[link] / size)

    def to_json(self) -> dict[str, Any]:
        return {"link": f"{self.link[0]} -> {self.link[1]}", "arrays": self.arrays}


@dataclass(frozen=True)
class Loads:
    """The loads under one order of ranks. Rates are GB/s of the array."""

    contention: Contention
    simulated: Load
    measured: Load
    simulated_rate: float
    measured_rate: float

    @property
    def ways(self) -> dict[str, tuple[Load, float]]:
        computed = Load(self.contention.loaded, float(self.contention.load))
        return {
            "computed": (computed, float(self.contention.rate)),
            "simulated": (self.simulated, self.simulated_rate),
            "measured": (self.measured, self.measured_rate),
        }

    def to_json(self) -> dict[str, Any]:
        told = {name: {**load.to_json(), "GBps": rate} for name, (load, rate) in self.ways.items()}
        return {"order": list(self.contention.order), "contention": float(self.contention.factor), **told}


def measure(fabric: Fabric, name: str, order: Sequence[str], algorithm: str, calls: Calls) -> tuple[Load, float]:
    """The largest load of a link in a call, and the rate of the median one."""
    (size,) = calls.sizes
    job = fabric.create_job(JobSpec(name=name, members=tuple(order), algorithm=algorithm))
    before = read_links(fabric)
    ((line,),) = time_ranks(fabric.spawn_ranks(job, calls.command(), name=f"{name}."), calls)
    after = read_links(fabric)
    fabric.controller.delete_job(name)
    made = calls.warmup + calls.iterations
    return Load.largest({ends: (after[ends].nbytes - before[ends].nbytes) / made for ends in after}, size), line.algbw(
        0
    )


def simulate(topology: Topology, order: Sequence[str], algorithm: str, size: int) -> tuple[Load, float]:
    found = run_flows(topology, Scenario(jobs=(JobPlan(hosts=tuple(order), algorithm=algorithm, size=size),)))
    return Load.largest({link.ends: link.nbytes for link in found.links}, size), found.jobs[0].algbw


@click.command("contention")
@click.argument("file", metavar="TOPOLOGY", type=click.Path(path_type=Path))
@click.option("--algorithm", type=click.Choice(list(ALGORITHMS)), default="halving_doubling", show_default=True)
@switch_option()
@size_option("1M")
@count_option("--iterations", default=5, told="calls in each order")
def bench_contention(file: Path, algorithm: str, switch: str, size: int, iterations: int) -> None:
    """Compare what links carry with ranks in the file's order and in that of `netsum plan ranks`: computed, simulated, measured.

    In Mininet. TOPOLOGY is any file that `netsum plan` reads, whose hosts are on a switch each.
    """
    topology = read_topology(file)
    made = for_controller(topology)
    if made is None:
        raise InputError(f"{file}: the testbed has only hosts that are on one switch each")
    if (reason := without_mininet()) is not None:
        raise TestbedError(f"{reason}, and this bench needs Mininet: its hosts connect to each other over the switches")
    calls = Calls((size,), "float32", len(topology.hosts), iterations, places=1)
    console, found = Console(stderr=True), map_ranks(topology, algorithm)
    loads: dict[str, Loads] = {}
    with console.status("starting") as status, open_topology(made, switch, None, console) as fabric:
        for name, each in (("before", found.before), ("after", found.after)):
            status.update(f"{algorithm}, order {name}: {counted(iterations, 'call')}")
            simulated, simulated_rate = simulate(topology, each.order, algorithm, size)
            measured, measured_rate = measure(fabric, name, each.order, algorithm, calls)
            loads[name] = Loads(each, simulated, measured, simulated_rate, measured_rate)
    _print(topology, algorithm, size, loads)


def _print(topology: Topology, algorithm: str, size: int, loads: Mapping[str, Loads]) -> None:
    rows = [
        (
            order,
            f"{float(each.contention.factor):g}",
            name,
            " -> ".join(load.link),
            f"{load.arrays:.3f}",
            f"{8000 * rate:.2f}",
        )
        for order, each in loads.items()
        for name, (load, rate) in each.ways.items()
    ]
    heads = ("order", ">contention", "", "largest load on", ">arrays", ">Mbit/s")
    table_console().print(make_table(f"{algorithm} of {len(topology.hosts)} ranks on {topology.name}", heads, rows))
    told = {order: each.to_json() for order, each in loads.items()}
    print_figures({"topology": topology.name, "algorithm": algorithm, "size": size, **told})
