"""The ``predict-check`` trial."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import partial

import click
from netsum_controller.config.topologies import leaf_spine, star, tree
from netsum_controller.config.topology import Topology
from netsum_planner.topologies.files import installed
from netsum_planner.training.job import BACKWARD, Layer, Machine, Training, calibrate
from netsum_planner.training.timeline import predict, simulated
from netsum_testbed.checking import count_option
from netsum_testbed.fabric import Fabric
from netsum_testbed.processes import said_by

from netsum_trials.planned.errors import Row
from netsum_trials.planned.measured import compare, kind_option, only_networks_option, ranks_of, time_calls
from netsum_trials.planned.simulate_command import SMALL, reaction

NETWORKS = ((star, (2,), 50), (star, (4,), 20), (star, (8,), 20), (tree, (2, 2), 20), (leaf_spine, (2, 2, 2), 20))
ALGORITHMS = ("in_network", "ring")
_LAYER = (256 << 10) // 4


def trainings() -> Iterator[Training]:
    """A small one three ways: calls after computing, calls meanwhile, and so much computing that they are hidden."""
    layers = tuple(Layer(name=f"layer{n}", parameters=_LAYER) for n in range(3))
    for name, overlap, compute_ms in (("no overlap", False, 200.0), ("overlap", True, 200.0), ("hidden", True, 1500.0)):
        yield Training(name=name, layers=layers, bucket_mb=0.25, overlap=overlap, compute_ms=compute_ms)


@click.command()
@kind_option
@count_option("--steps", default=3, told="of each training")
@only_networks_option
def predict_check(switch: str, steps: int, only: str | None) -> None:
    """Compare predicted training steps with measured ones, in Mininet with slow links.

    The ranks' accelerators are emulated: computing takes the time that the training says. How long a host takes to react is found
    with calls of one block, and the library's arithmetic by `netsum predict calibrate`; nothing else is fitted. The last line is
    one JSON object: every row with its error, the median and the worst.
    """
    machine = calibrate()
    networks = ((shape(*sizes, rate_mbps=rate), rate) for shape, sizes, rate in NETWORKS)
    compare(switch, networks, only, "a training's step", partial(_rows, machine=machine, steps=steps))


def _rows(fabric: Fabric, topology: Topology, rate: int, *, machine: Machine, steps: int) -> Iterator[Row]:
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
