"""How large a training can grow: steps by number of workers and rate of the links, in the network and by hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from netsum_planner.errors import PlanError
from netsum_planner.simulator.collectives import IN_NETWORK, Call, add_allreduce
from netsum_planner.simulator.flows import simulate
from netsum_planner.simulator.network import Floats, Network
from netsum_planner.simulator.schedules import Schedule
from netsum_planner.simulator.wire import Wire
from netsum_planner.topologies import shapes
from netsum_planner.topologies.model import Topology
from netsum_planner.training.job import Training
from netsum_planner.training.machine import Machine
from netsum_planner.training.timeline import Seconds, Step, predict

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
    step: Step

    def to_json(self) -> dict[str, Any]:
        told = {"workers": self.workers, "Gbps": self.gbps, "algorithm": self.algorithm}
        return {**told, **{name: value for name, value in self.step.to_json().items() if name != "calls"}}


def fat_tree_for(workers: int) -> Topology:
    """The smallest fat-tree that has so many hosts; its links have a rate of 1 GB/s. Its first hosts take part."""
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
        network = Network(topology)
        base: Floats = network.capacity
        for algorithm in ALGORITHMS:
            for gbps in rates:
                network.capacity = base * float(gbps * GBIT)
                seconds = _line(network, algorithm, topology.hosts[:number], machine)
                yield Point(number, gbps, algorithm, predict(training, machine, seconds, workers=number))


def _line(network: Network, algorithm: str, hosts: tuple[str, ...], machine: Machine) -> Seconds:
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
