# SPDX-License-Identifier: MIT
"""``simulate-check`` and ``predict-check``: what the planner predicts beside what is measured."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import Final

import click
from netsum_bench.cli_options import size_option
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import leaf_spine, star, tree
from netsum_controller.config.topology import Topology
from netsum_planner.simulator.collectives import IN_NETWORK
from netsum_planner.simulator.network import Wire
from netsum_planner.simulator.run import run_flows, run_packets
from netsum_planner.simulator.scenario import JobPlan, Scenario
from netsum_planner.topologies.files import installed
from netsum_planner.topologies.model import Topology as Planned
from netsum_planner.training.job import BACKWARD, Layer, Machine, Training, calibrate
from netsum_planner.training.timeline import predict, simulated
from netsum_testbed.checking import count_option
from netsum_testbed.fabric import Fabric
from netsum_testbed.processes import said_by

from tests.system.predictions.measured import PredictionRow, algorithm_of, compare, kind_option, only_networks_option, time_calls

# The command ``simulate-check``.


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
@count_option("--iterations", default=3, text="of each call")
@only_networks_option
def simulate_check(switch: str, size: int, iterations: int, only: str | None) -> None:
    """Compare simulated allreduces with measured ones, in Mininet with slow links.

    The last line is one JSON object: every row with its error, the median and the worst. How long a host takes
    to react is found with calls of one block; nothing else is fitted. Run it on a quiet machine: each row says what the load was.
    """
    rows = partial(_rows, size=size, iterations=iterations)
    compare(switch, networks(), only, f"allreduce of {size} bytes of float32", rows)


def _rows(fabric: Fabric, topology: Topology, rate: int, *, size: int, iterations: int) -> Iterator[PredictionRow]:
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
            yield PredictionRow(label, len(topology.hosts), algorithm, how, each.jobs[0].mean, measured, load, host_s * 1e6)


def reaction(planned: Planned, algorithm: str, seconds: float) -> float:
    """Seconds that a host takes to react, if a call of one block takes so long."""
    scenario = Scenario(jobs=(JobPlan(algorithm=algorithm, size=SMALL),))
    without, once = (run_flows(planned, scenario, Wire(host_s=host_s)).jobs[0].mean for host_s in (0.0, 1.0))
    return max(0.0, (seconds - without) / (once - without))


# The command ``predict-check``.


NETWORKS = ((star, (2,), 50), (star, (4,), 20), (star, (8,), 20), (tree, (2, 2), 20), (leaf_spine, (2, 2, 2), 20))
PREDICTED_ALGORITHMS = ("in_network", "ring")
_LAYER = (256 << 10) // 4


def trainings() -> Iterator[Training]:
    """A small one three ways: calls after computing, calls meanwhile, and so much computing that they are hidden."""
    layers = tuple(Layer(name=f"layer{n}", parameters=_LAYER) for n in range(3))
    for name, overlap, compute_ms in (("no overlap", False, 200.0), ("overlap", True, 200.0), ("hidden", True, 1500.0)):
        yield Training(name=name, layers=layers, bucket_mb=0.25, overlap=overlap, compute_ms=compute_ms)


@click.command()
@kind_option
@count_option("--steps", default=3, text="of each training")
@only_networks_option
def predict_check(switch: str, steps: int, only: str | None) -> None:
    """Compare predicted training steps with measured ones, in Mininet with slow links.

    The ranks' accelerators are emulated: computing takes the time that the training says. How long a host takes to react is found
    with calls of one block, and the library's arithmetic by `netsum predict calibrate`; nothing else is fitted. The last line is
    one JSON object: every row with its error, the median and the worst.
    """
    machine = calibrate()
    networks = ((shape(*sizes, rate_mbps=rate), rate) for shape, sizes, rate in NETWORKS)
    compare(switch, networks, only, "a training's step", partial(_predicted_rows, machine=machine, steps=steps))


def _predicted_rows(fabric: Fabric, topology: Topology, rate: int, *, machine: Machine, steps: int) -> Iterator[PredictionRow]:
    planned, hosts = installed(topology, rate), len(topology.hosts)
    for algorithm in PREDICTED_ALGORITHMS:
        (small,) = time_calls(fabric, algorithm, (SMALL,), 5)
        host_us = reaction(planned, algorithm, small) * 1e6
        seconds = simulated(planned, algorithm, Machine(block_us=machine.block_us, host_us=host_us))
        for training in trainings():
            foreseen = predict(training, machine, seconds, workers=hosts).step
            measured = time_steps(fabric, algorithm, training, steps)
            label, load = f"{topology.name}, {rate} Mbit/s", os.getloadavg()[0]
            yield PredictionRow(label, hosts, f"{algorithm}, {training.name}", "model", foreseen, measured, load, host_us)


def time_steps(fabric: Fabric, algorithm: str, training: Training, steps: int) -> float:
    """Seconds of a step, the slowest rank's."""
    forward = (training.compute_ms or 0.0) / 1e3 / (1 + BACKWARD)
    buckets = [(bucket.nbytes, bucket.work) for bucket in training.buckets()]
    reported = {"forward": forward, "backward": BACKWARD * forward, "buckets": buckets, "overlap": training.overlap}
    command = [sys.executable, "-m", "tests.system.predictions.trainer", json.dumps({**reported, "steps": steps})]
    job = fabric.create_job(JobSpec(name="steps", members=tuple(fabric.topology.hosts), algorithm=algorithm_of(algorithm)))
    ranks = fabric.spawn_ranks(job, command)
    said = said_by(ranks)
    for rank in ranks:
        rank.wait()
    fabric.delete_job(job.name)
    return max(map(float, said))
