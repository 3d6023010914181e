# SPDX-License-Identifier: MIT
"""A step in time: the forward pass, the backward pass, and the calls, one bucket after the other as they become ready."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from netsum_planner.errors import PlanError
from netsum_planner.simulator.collectives import IN_NETWORK, Call, add_allreduce
from netsum_planner.simulator.flows import simulate
from netsum_planner.simulator.network import Floats, SimulatedNetwork, Wire
from netsum_planner.simulator.run import run_flows
from netsum_planner.simulator.scenario import JobPlan, Scenario
from netsum_planner.simulator.schedules import Schedule
from netsum_planner.topologies import shapes
from netsum_planner.topologies.model import Topology
from netsum_planner.training.job import BACKWARD, Machine, Training

Seconds = Callable[[float], float]
"""Of an allreduce of a number of bytes."""


@dataclass(frozen=True)
class StepTimeline:
    """Seconds of one step. ``calls``: of each bucket, when its call begins and ends; ``exposed``: communication during which
    nothing is computed."""

    forward: float
    backward: float
    communication: float
    exposed: float
    input: float
    step: float
    calls: tuple[tuple[float, float], ...]

    @property
    def compute(self) -> float:
        return self.forward + self.backward

    @property
    def efficiency(self) -> float:
        """Of what the workers could do without talking to each other or waiting for input."""
        return self.compute / self.step

    @property
    def bound_by(self) -> str:
        """The largest part of the step: compute, communication or input."""
        parts = {
            "compute": self.compute,
            "communication": self.exposed,
            "input": self.step - self.compute - self.exposed,
        }
        return max(parts, key=parts.__getitem__)

    def to_json(self) -> dict[str, Any]:
        names = ("forward", "backward", "communication", "exposed", "input", "step")
        result: dict[str, Any] = {f"{name}_ms": getattr(self, name) * 1e3 for name in names}
        calls = [{"begins_ms": begin * 1e3, "ends_ms": end * 1e3} for begin, end in self.calls]
        return {**result, "efficiency": self.efficiency, "bound_by": self.bound_by, "calls": calls}


def simulated(topology: Topology, algorithm: str, machine: Machine) -> Seconds:
    """The time of a call as the simulator finds it, with what the library takes for its blocks."""
    wire = Wire(host_s=machine.host_us / 1e6)

    @lru_cache(maxsize=64)
    def seconds(nbytes: float) -> float:
        job = JobPlan(algorithm=algorithm, size=max(1, round(nbytes)))
        found = run_flows(topology, Scenario(jobs=(job,)), wire)
        return found.jobs[0].mean + wire.blocks(nbytes) * machine.block_us / 1e6

    return seconds


def predict(training: Training, machine: Machine, seconds: Seconds, *, workers: int) -> StepTimeline:
    """One step of each of ``workers`` workers."""
    if training.compute_ms is not None:
        forward = training.compute_ms / 1e3 / (1 + BACKWARD)
    else:
        forward = training.batch * training.gflops / machine.gflops
    backward = BACKWARD * forward
    now, free, calls = forward, 0.0, []
    buckets = training.buckets()
    for bucket in buckets:
        now += backward * bucket.work
        if workers > 1 and bucket.nbytes:
            ready = now if training.overlap else forward + backward
            free = max(free, ready) + seconds(bucket.nbytes)
            calls.append((free - seconds(bucket.nbytes), free))
    computed = forward + backward
    busy = max(computed, free)
    fetched = training.input_ms / 1e3
    step = max(busy, fetched) if training.prefetch else busy + fetched
    communication = sum(end - begin for begin, end in calls)
    return StepTimeline(forward, backward, communication, busy - computed, fetched, step, tuple(calls))


# How large a training can grow: steps by number of workers and rate of the links, in the network and by hosts.


DELAY_US = 1.0
ALGORITHMS = (IN_NETWORK, "ring")
GBIT = Fraction(1, 8)
_SMALL, _LARGE = 1 << 20, 1 << 28


@dataclass(frozen=True)
class Point:
    """A step of ``workers`` on a fat-tree whose links have ``gbps`` Gbit/s."""

    workers: int
    gbps: float
    algorithm: str
    step: StepTimeline

    def to_json(self) -> dict[str, Any]:
        result = {"workers": self.workers, "Gbps": self.gbps, "algorithm": self.algorithm}
        return {**result, **{name: value for name, value in self.step.to_json().items() if name != "calls"}}


def fat_tree_for(workers: int) -> Topology:
    """The smallest fat-tree that has ``workers`` hosts; its links have a rate of 1 GB/s. Its first hosts take part."""
    k = 2
    while k**3 // 4 < workers:
        k += 2
    return shapes.fat_tree(k, 1, delay_us=DELAY_US)


def scaling(training: Training, machine: Machine, workers: Sequence[int], rates: Sequence[float]) -> Iterator[Point]:
    """Steps for each number of workers, rate in Gbit/s and algorithm. A call's time is a line through two simulated sizes."""
    for number in workers:
        if number < 2:
            raise PlanError(f"a training is spread over 2 workers or more, not {number}")
        topology = fat_tree_for(number)
        network = SimulatedNetwork(topology)
        base: Floats = network.capacity
        for algorithm in ALGORITHMS:
            for gbps in rates:
                network.capacity = base * float(gbps * GBIT)
                seconds = _line(network, algorithm, topology.hosts[:number], machine)
                yield Point(number, gbps, algorithm, predict(training, machine, seconds, workers=number))


def _line(network: SimulatedNetwork, algorithm: str, hosts: tuple[str, ...], machine: Machine) -> Seconds:
    wire = Wire(host_s=machine.host_us / 1e6)

    def one(nbytes: int) -> float:
        schedule = Schedule(network)
        ready = [schedule.wait(()) for _ in hosts]
        done = add_allreduce(schedule, Call(algorithm, hosts, nbytes, wire), ready)
        return float(simulate(schedule).arrived[done].max())

    small, large = one(_SMALL), one(_LARGE)
    slope = (large - small) / (_LARGE - _SMALL)

    def seconds(nbytes: float) -> float:
        return max(0.0, small - slope * _SMALL) + slope * nbytes + wire.blocks(nbytes) * machine.block_us / 1e6

    return seconds


# What would change a step: the same prediction with one thing different.


WORTH = 0.02
"""Changes that gain less are not told."""
OTHERS = ("in_network", "ring")


@dataclass(frozen=True)
class Change:
    """The change, the step that it makes, and how many more samples a second that is (0.25: a quarter)."""

    what: str
    step: StepTimeline
    gain: float


def faster_links(topology: Topology, factor: int) -> Topology:
    links = tuple(replace(link, rate=link.rate * factor) for link in topology.links)
    return replace(topology, links=links)


def changes(training: Training, topology: Topology, machine: Machine, algorithm: str, now: StepTimeline) -> Iterator[Change]:
    """The changes that are worthwhile, the best first."""
    workers = len(topology.hosts)
    calls = simulated(topology, algorithm, machine)
    found: list[tuple[str, Callable[[], StepTimeline], int]] = []
    for other in OTHERS:
        if other != algorithm and (other != "in_network" or any(topology.switches.values())):
            found.append((f"--algorithm {other}", _with(training, machine, topology, other), 1))
    fast = faster_links(topology, 2)
    found.append(("links of twice the rate", _with(training, machine, fast, algorithm), 1))
    computers = replace(machine, gflops=2 * machine.gflops)
    if training.compute_ms is None:
        found.append(("computers of twice the speed", lambda: predict(training, computers, calls, workers=workers), 1))
    for what, update, factor in (
        ("gradients of 2 bytes", {"gradient_bytes": 2}, 1),
        ("overlap", {"overlap": True}, 1),
        ("buckets of half the size", {"bucket_mb": training.bucket_mb / 2}, 1),
        ("buckets of twice the size", {"bucket_mb": training.bucket_mb * 2}, 1),
        ("input while the step runs", {"prefetch": True}, 1),
        ("input twice as fast", {"input_ms": training.input_ms / 2}, 1),
        ("twice the batch", _twice(training), 2),
    ):
        changed = training.model_copy(update=update)
        if changed != training and (update.get("gradient_bytes") is None or training.gradient_bytes > 2):
            found.append((what, _with(changed, machine, topology, algorithm), factor))
    made = [Change(what, step := make(), factor * now.step / step.step - 1) for what, make, factor in found]
    yield from sorted((each for each in made if each.gain > WORTH), key=lambda each: -each.gain)


def _twice(training: Training) -> dict[str, object]:
    """Twice the samples, with what they take."""
    compute = None if training.compute_ms is None else 2 * training.compute_ms
    return {"batch": 2 * training.batch, "compute_ms": compute, "input_ms": 2 * training.input_ms}


def _with(training: Training, machine: Machine, topology: Topology, algorithm: str) -> Callable[[], StepTimeline]:
    return lambda: predict(training, machine, simulated(topology, algorithm, machine), workers=len(topology.hosts))
