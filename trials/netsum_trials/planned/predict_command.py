"""The ``predict-check`` trial."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator

import click
from netsum_controller.config.topologies import leaf_spine, star, tree
from netsum_controller.config.topology import Topology
from netsum_planner.topologies.files import installed
from netsum_planner.training.job import BACKWARD, Layer, Training
from netsum_planner.training.machine import Machine, calibrate
from netsum_planner.training.timeline import predict, simulated
from netsum_testbed.checking import running, switch_option
from netsum_testbed.fabric import Fabric
from netsum_testbed.processes import said_by
from netsum_testbed.switches import choose_switch
from netsum_testbed.tables import wide_console

from netsum_trials.planned.errors import Errors, Row, errors_table
from netsum_trials.planned.measured import network, ranks_of, time_calls
from netsum_trials.planned.simulate_command import SMALL, SWITCH, reaction

NETWORKS = ((star, (2,), 50), (star, (4,), 20), (star, (8,), 20), (tree, (2, 2), 20), (leaf_spine, (2, 2, 2), 20))
ALGORITHMS = ("in_network", "ring")
_LAYER = (256 << 10) // 4


def trainings() -> Iterator[Training]:
    """A small one three ways: calls after computing, calls meanwhile, and so much computing that they are hidden."""
    layers = tuple(Layer(name=f"layer{n}", parameters=_LAYER) for n in range(3))
    for name, overlap, compute_ms in (("no overlap", False, 200.0), ("overlap", True, 200.0), ("hidden", True, 1500.0)):
        yield Training(name=name, layers=layers, bucket_mb=0.25, overlap=overlap, compute_ms=compute_ms)


@click.command()
@switch_option(f"{SWITCH}, the faster one")
@click.option("--steps", type=click.IntRange(1), default=3, show_default=True, help="of each training")
@click.option("--only", metavar="NAME", help="only networks whose name begins so, such as star or tree2x2")
def predict_check(switch: str, steps: int, only: str | None) -> None:
    """Compare predicted training steps with measured ones, in Mininet with slow links.

    The ranks' accelerators are emulated: computing takes the time that the training says. How long a host takes to react is found
    with calls of one block, and the library's arithmetic by `netsum predict calibrate`; nothing else is fitted. The last line is
    one JSON object: every row with its error, the median and the worst.
    """
    name = SWITCH if switch == "auto" else choose_switch(switch)
    totals, start, console = Errors(name), time.monotonic(), wide_console()
    machine = calibrate()
    chosen = [(shape(*sizes, rate_mbps=rate), rate) for shape, sizes, rate in NETWORKS]
    chosen = [(topology, rate) for topology, rate in chosen if topology.name.startswith(only or "")]
    with running(totals) as screen:
        screen.begin(len(chosen) * len(ALGORITHMS), "predicted and measured")
        for topology, rate in chosen:
            with network(topology, name) as fabric:
                for row in _rows(fabric, topology, rate, machine, steps):
                    totals.rows.append(row)
                    totals.seconds = time.monotonic() - start
                    screen.show(totals)
        console.print(errors_table(f"a training's step, {name} switches", totals.rows))


def _rows(fabric: Fabric, topology: Topology, rate: int, machine: Machine, steps: int) -> Iterator[Row]:
    planned, hosts = installed(topology, rate), len(topology.hosts)
    for algorithm in ALGORITHMS:
        (small,) = time_calls(fabric, algorithm, (SMALL,), 5)
        host_us = reaction(planned, algorithm, small) * 1e6
        seconds = simulated(planned, algorithm, Machine(block_us=machine.block_us, host_us=host_us))
        for training in trainings():
            foreseen = predict(training, machine, seconds, workers=hosts).step
            measured = time_steps(fabric, algorithm, training, steps)
            label, load = f"{topology.name}, {rate} Mbit/s", os.getloadavg()[0]
            yield Row(label, hosts, f"{algorithm}, {training.name}", "model", foreseen, measured, load, host_us)


def time_steps(fabric: Fabric, algorithm: str, training: Training, steps: int) -> float:
    """Seconds of a step, the slowest rank's."""
    forward = (training.compute_ms or 0.0) / 1e3 / (1 + BACKWARD)
    buckets = [(bucket.nbytes, bucket.work) for bucket in training.buckets()]
    told = {"forward": forward, "backward": BACKWARD * forward, "buckets": buckets, "overlap": training.overlap}
    command = [sys.executable, "-m", "netsum_trials.planned.trainer", json.dumps({**told, "steps": steps})]
    with ranks_of(fabric, algorithm, command) as ranks:
        said = said_by(ranks)
        for rank in ranks:
            rank.wait()
    return max(map(float, said))
