"""A step in time: the forward pass, the backward pass, and the calls, one bucket after the other as they become ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from netsum_planner.simulator.run import run_flows
from netsum_planner.simulator.scenario import JobPlan, Scenario
from netsum_planner.simulator.wire import Wire
from netsum_planner.topologies.model import Topology
from netsum_planner.training.job import BACKWARD, Training
from netsum_planner.training.machine import Machine

Seconds = Callable[[float], float]
"""Of an allreduce of so many bytes."""


@dataclass(frozen=True)
class Step:
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
        """What most of the step is: compute, communication or input."""
        parts = {
            "compute": self.compute,
            "communication": self.exposed,
            "input": self.step - self.compute - self.exposed,
        }
        return max(parts, key=parts.__getitem__)

    def to_json(self) -> dict[str, Any]:
        names = ("forward", "backward", "communication", "exposed", "input", "step")
        told: dict[str, Any] = {f"{name}_ms": getattr(self, name) * 1e3 for name in names}
        calls = [{"begins_ms": begin * 1e3, "ends_ms": end * 1e3} for begin, end in self.calls]
        return {**told, "efficiency": self.efficiency, "bound_by": self.bound_by, "calls": calls}


def simulated(topology: Topology, algorithm: str, machine: Machine) -> Seconds:
    """The time of a call as the simulator finds it, with what the library takes for its blocks."""
    wire = Wire(host_s=machine.host_us / 1e6)

    @lru_cache(maxsize=64)
    def seconds(nbytes: float) -> float:
        job = JobPlan(algorithm=algorithm, size=max(1, round(nbytes)))
        found = run_flows(topology, Scenario(jobs=(job,)), wire)
        return found.jobs[0].mean + wire.blocks(nbytes) * machine.block_us / 1e6

    return seconds


def predict(training: Training, machine: Machine, seconds: Seconds, *, workers: int) -> Step:
    """One step of each of so many workers."""
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
    return Step(forward, backward, communication, busy - computed, fetched, step, tuple(calls))
