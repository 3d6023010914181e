"""What would change a step: the same prediction with one thing different."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from netsum_planner.topologies.model import Topology
from netsum_planner.training.job import Training
from netsum_planner.training.machine import Machine
from netsum_planner.training.timeline import Step, predict, simulated

WORTH = 0.02
"""Changes that gain less are not told."""
OTHERS = ("in_network", "ring")


@dataclass(frozen=True)
class Change:
    """What is different, the step that it makes, and how many more samples a second that is (0.25: a quarter)."""

    what: str
    step: Step
    gain: float


def faster_links(topology: Topology, factor: int) -> Topology:
    links = tuple(replace(link, rate=link.rate * factor) for link in topology.links)
    return replace(topology, links=links)


def changes(training: Training, topology: Topology, machine: Machine, algorithm: str, now: Step) -> Iterator[Change]:
    """What is worth its while, the best first."""
    workers = len(topology.hosts)
    calls = simulated(topology, algorithm, machine)
    found: list[tuple[str, Callable[[], Step], int]] = []
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


def _with(training: Training, machine: Machine, topology: Topology, algorithm: str) -> Callable[[], Step]:
    return lambda: predict(training, machine, simulated(topology, algorithm, machine), workers=len(topology.hosts))
