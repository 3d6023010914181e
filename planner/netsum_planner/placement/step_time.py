# SPDX-License-Identifier: MIT
"""The time of a step on the hosts that a job has: the prediction of :mod:`netsum_planner.training`, with the calls of tensor and
pipeline parallelism added.

Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters (SC 2021): a pipeline of p stages and m
microbatches takes m + p - 1 turns, tensor parallelism four allreduces of a layer's activations, two of them on the way back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from netsum_planner.placement.jobs import Placement, Sizes, TrainingJob
from netsum_planner.ranks.contention import ALGORITHMS
from netsum_planner.simulator.aggregation import trees
from netsum_planner.simulator.collectives import IN_NETWORK
from netsum_planner.simulator.network import SimulatedNetwork, Wire
from netsum_planner.simulator.run import run_flows
from netsum_planner.simulator.scenario import JobPlan, Scenario
from netsum_planner.topologies.model import Pair, Topology
from netsum_planner.training.job import BACKWARD, Machine, Training
from netsum_planner.training.timeline import Seconds, predict

_TENSOR_CALLS: Final = 4
"""Allreduces of a layer's activations in a step (Megatron-LM)."""


class Groups(NamedTuple):
    """Groups of hosts that make the same call at the same time."""

    algorithm: str
    groups: tuple[tuple[str, ...], ...]


class _Round(NamedTuple):
    """Calls at the same time: how much of the array each flow carries in all, and the flows on each link."""

    share: float
    flows: Mapping[Pair, float]
    delay: float


class _Work(NamedTuple):
    """The work of a job, wherever its hosts are: its ``turns``; seconds of computing in one and for one ``sample``; the
    ``samples`` and most ``layers`` of a stage in one; and the trainings of the stages that differ."""

    turns: int
    compute: float
    sample: float
    samples: float
    layers: int
    parts: tuple[Training, ...]


def _work_of(job: TrainingJob, sizes: Sizes, gflops: float) -> _Work:
    training, stages = job.training, job.stages(sizes.pp)
    if training.compute_ms is not None:
        sample = training.compute_ms / 1e3 / training.batch
    else:
        sample = (1 + BACKWARD) * training.gflops / gflops
    samples = job.samples(sizes) / job.microbatches(sizes)
    different = {tuple((layer.parameters, layer.gflops) for layer in stage): stage for stage in stages}
    parts = []
    for stage in different.values():
        layers = tuple(layer.model_copy(update={"parameters": layer.parameters / sizes.tp}) for layer in stage)
        parts.append(training.model_copy(update={"layers": layers}))
    compute = sample * samples * max(job.share(stage) for stage in stages) / sizes.tp
    return _Work(job.microbatches(sizes), compute, sample, samples, max(map(len, stages)), tuple(parts))


class StepEstimate:
    """Calls as flows that begin each step together and share links equally: quick enough for a search."""

    def __init__(self, topology: Topology, machine: Machine) -> None:
        self.topology = topology
        self.machine = machine
        self.wire = Wire(host_s=machine.host_us / 1e6)
        self._network = SimulatedNetwork(topology)
        self._rates = {ends: float(rate) * 1e9 for ends, rate in topology.rates.items()}
        self._delays = {ends: float(delay) for ends, delay in zip(self._network.pairs, self._network.delay, strict=True)}
        self._works: dict[tuple[str, Sizes], _Work] = {}
        self._rounds = lru_cache(maxsize=4096)(self._find_rounds)
        self._tree_loads = lru_cache(maxsize=65536)(self._find_tree_loads)

    def work(self, job: TrainingJob, sizes: Sizes) -> _Work:
        """Jobs of the same name are taken to be the same."""
        key = (job.name, sizes)
        if key not in self._works:
            self._works[key] = _work_of(job, sizes, self.machine.gflops)
        return self._works[key]

    def at_once(self, flows: Sequence[Pair], nbytes: float) -> float:
        """Seconds until each of these pairs has sent ``nbytes`` bytes. Max-min fair: the busiest link decides."""
        loads, delay = self._loads(flows)
        return delay + nbytes * max((count / self._rates[ends] for ends, count in loads.items()), default=0.0)

    def allreduce(self, calls: Groups, beside: Sequence[Groups] = ()) -> Seconds:
        """The time of these calls, with those ``beside`` made meanwhile."""
        other: defaultdict[Pair, float] = defaultdict(float)
        for each in beside:
            rounds = self._rounds(each)
            total = sum(one.share for one in rounds)
            for one in rounds:
                for ends, count in one.flows.items():
                    other[ends] += count * one.share / total
        per_byte = delay = 0.0
        for one in self._rounds(calls):
            busiest = max(((count + other[ends]) / self._rates[ends] for ends, count in one.flows.items()), default=0.0)
            per_byte += one.share * busiest
            delay += one.delay
        blocks = self.machine.block_us / 1e6

        def seconds(nbytes: float) -> float:
            return delay + nbytes * per_byte + self.wire.blocks(nbytes) * blocks

        return seconds

    def _loads(self, flows: Sequence[Pair]) -> tuple[Mapping[Pair, float], float]:
        """The flows on each link, and the longest delay."""
        loads: defaultdict[Pair, float] = defaultdict(float)
        longest = 0.0
        for one, other in flows:
            path = [self._network.pairs[link] for link in self._network.path(one, other)]
            for ends in path:
                loads[ends] += 1
            longest = max(longest, sum(self._delays[ends] for ends in path))
        return loads, longest

    def _find_rounds(self, calls: Groups) -> tuple[_Round, ...]:
        if calls.algorithm == IN_NETWORK:
            return (self._in_network(calls),)
        found = []
        size = len(calls.groups[0])
        for step in ALGORITHMS[calls.algorithm](size) if size > 1 else ():
            loads, delay = self._loads([(group[one], group[other]) for group in calls.groups for one, other in step.flows])
            found.append(_Round(float(step.times * step.share), loads, step.times * (delay + self.wire.host_s)))
        return tuple(found)

    def _in_network(self, calls: Groups) -> _Round:
        """An opening block, then all others."""
        loads: defaultdict[Pair, float] = defaultdict(float)
        longest = 0.0
        for group in calls.groups:
            shares, delay = self._tree_loads(group)
            longest = max(longest, delay)
            for ends, share in shares:
                loads[ends] += share
        return _Round(1.0, loads, 2 * (2 * longest + 2 * self.wire.host_s))

    def _find_tree_loads(self, group: tuple[str, ...]) -> tuple[list[tuple[Pair, float]], float]:
        found = trees(self._network, group)
        edges = [edge for tree in found for edge in tree.parents.items()]
        ways = [pairwise(tree.way(host)) for tree in found for host in group]
        longest = max(sum(self._delays[ends] for ends in way) for way in ways)
        return [(ends, 1 / len(found)) for edge in edges for ends in (edge, edge[::-1])], longest


class StepSimulation(StepEstimate):
    """Calls as :mod:`netsum_planner.simulator` has them, all of those at the same time in one simulation."""

    def allreduce(self, calls: Groups, beside: Sequence[Groups] = ()) -> Seconds:
        named = [(each.algorithm, group) for each in (calls, *beside) for group in each.groups]

        @lru_cache(maxsize=64)
        def seconds(nbytes: float) -> float:
            size = max(1, round(nbytes))
            plans = (
                JobPlan(name=f"{n}", algorithm=algorithm, hosts=group, size=size) for n, (algorithm, group) in enumerate(named)
            )
            found = run_flows(self.topology, Scenario(jobs=tuple(plans)), self.wire)
            longest = max(each.mean for each in found.jobs[: len(calls.groups)])
            return longest + self.wire.blocks(nbytes) * self.machine.block_us / 1e6

        return seconds


@dataclass(frozen=True)
class Predicted:
    """Seconds of a step, and of its parts: ``compute``; the pipeline's ``bubble``; ``tensor`` calls; ``pipeline``: activations on
    their way from stage to stage; ``gradients`` and ``input`` that nothing hides. ``efficiency``: the share of what as many
    workers could do if they waited for no other."""

    step: float
    compute: float
    bubble: float
    tensor: float
    pipeline: float
    gradients: float
    input: float
    efficiency: float

    def to_json(self) -> dict[str, float]:
        times = asdict(self)
        efficiency = times.pop("efficiency")
        return {**{f"{name}_ms": seconds * 1e3 for name, seconds in times.items()}, "efficiency": efficiency}


def predicted(placement: Placement, calls: StepEstimate, others: Sequence[Placement] = ()) -> Predicted:
    """A step of a job, whose gradients meet those of the ``others``: the worst case."""
    (_, pp, dp), job = placement.sizes, placement.job
    work = calls.work(job, placement.sizes)
    tensor, passed = _between(placement, calls, work)
    turn = work.compute + tensor + passed
    before = (work.turns + pp - 2) * turn
    input_ms = job.training.input_ms
    left = max(0.0, input_ms - before * 1e3) if job.training.prefetch else input_ms
    gradients = calls.allreduce(_gradients(placement), [_gradients(each) for each in others if each.sizes.dp > 1])
    # Gradients are whole in the last turn, and their calls overlap with it alone.
    last_turn = {"compute_ms": turn * 1e3, "input_ms": left}
    lasts = [predict(part.model_copy(update=last_turn), calls.machine, gradients, workers=dp) for part in work.parts]
    last = max(lasts, key=lambda each: each.step)
    step = before + last.step
    return Predicted(
        step=step,
        compute=work.turns * work.compute,
        bubble=(pp - 1) * turn,
        tensor=work.turns * tensor,
        pipeline=work.turns * passed,
        gradients=last.exposed,
        input=last.step - turn - last.exposed,
        efficiency=work.sample * job.training.batch / step if step else 1.0,
    )


def _between(placement: Placement, calls: StepEstimate, work: _Work) -> tuple[float, float]:
    """Seconds that a microbatch's tensor calls take in one stage, and its activations on their way on and back. All groups do the
    same at the same time."""
    (tp, pp, _), job = placement.sizes, placement.job
    nbytes, tensor, passed = job.activation * work.samples, 0.0, 0.0
    if tp > 1:
        groups = Groups(job.wanted.algorithm, tuple(placement.tensor_groups))
        tensor = _TENSOR_CALLS * work.layers * calls.allreduce(groups)(nbytes)
    if pp > 1:
        back = [(other, one) for one, other in placement.passes]
        passed = sum(calls.at_once(way, nbytes / tp) for way in (placement.passes, back))
    return tensor, passed


def _gradients(placement: Placement) -> Groups:
    return Groups(placement.job.wanted.algorithm, tuple(placement.data_groups))
