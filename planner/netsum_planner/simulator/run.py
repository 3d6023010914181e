# SPDX-License-Identifier: MIT
"""Simulates a scenario on a topology, as flows or as packets."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Sequence

import numpy as np

from netsum_planner.errors import PlanError
from netsum_planner.simulator.collectives import IN_NETWORK, Call, add_allreduce
from netsum_planner.simulator.flows import Change, Progress, simulate
from netsum_planner.simulator.network import Floats, SimulatedNetwork, Wire
from netsum_planner.simulator.outcome import Counts, JobOutcome, LinkLoad, SimulationResult
from netsum_planner.simulator.packets import Faults, PacketJob, PacketSimulation
from netsum_planner.simulator.scenario import JobPlan, Scenario
from netsum_planner.simulator.schedules import Schedule, add_planned, read_plan
from netsum_planner.topologies.model import Topology


class Lateness:
    """The lateness of each rank at each of its calls: the same for flows and packets, whatever happens in between."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._stragglers = scenario.stragglers
        self._seed = seed

    def of(self, job: JobPlan, host: str, call: int) -> float:
        """Seconds from a rank's readiness to the begin of its call."""
        late = sum(
            each.late_ms
            for number, each in enumerate(self._stragglers)
            if each.host == host and random.Random(f"{self._seed} {number} {job.name} {host} {call}").random() < each.probability
        )
        return (job.compute_ms + late + (job.start_ms if not call else 0.0)) / 1000


def hosts_of(job: JobPlan, topology: Topology) -> tuple[str, ...]:
    return job.hosts or topology.hosts


def build(
    network: SimulatedNetwork, scenario: Scenario, wire: Wire, seed: int = 0
) -> tuple[Schedule, list[list[tuple[list[int], list[int]]]]]:
    """The schedule of a scenario; and for each job and call, what has arrived when each rank begins and ends it."""
    schedule, late = Schedule(network), Lateness(scenario, seed)
    of_jobs = []
    for job in scenario.jobs:
        hosts = hosts_of(job, network.topology)
        plan = None if job.plan is None else read_plan(job.plan, network.topology)
        done: list[list[int]] = [[] for _ in hosts]
        calls = []
        for call in range(job.calls):
            begun = [schedule.wait(waits, late.of(job, host, call), host=host) for host, waits in zip(hosts, done, strict=True)]
            if plan is not None:
                ended = add_planned(schedule, plan, hosts, job.size, wire, begun, lane=job.name)
            else:
                ended = add_allreduce(schedule, Call(job.algorithm, hosts, job.size, wire, job.name), begun)
            done = [[each] for each in ended]
            calls.append((begun, ended))
        of_jobs.append(calls)
    return schedule, of_jobs


def _failures(network: SimulatedNetwork, scenario: Scenario) -> list[Change]:
    changes = []
    for each in scenario.failures:
        ends = (each.link, each.link[::-1])
        links = tuple(network.number[pair] for pair in ends if pair in network.number)
        found = each.found_ms / 1000
        for at, down in ((each.at_ms, True), (each.until_ms, False)):
            if at is not None:
                changes.append(Change(at / 1000, links, down))
                changes.append(Change(at / 1000 + found, links, down, reroute=True))
    return changes


def run_flows(
    topology: Topology,
    scenario: Scenario,
    wire: Wire | None = None,
    *,
    seed: int = 0,
    progress: Progress = lambda _now, _share: None,
) -> SimulationResult:
    """Simulate flows. :class:`PlanError` if a job cannot run there."""
    began = time.perf_counter()
    network = SimulatedNetwork(topology)
    schedule, of_jobs = build(network, scenario, wire or Wire(), seed)
    flows = simulate(schedule, _failures(network, scenario), progress)
    jobs = [
        _job(job, topology, [(flows.arrived[begun], flows.arrived[ended]) for begun, ended in calls])
        for job, calls in zip(scenario.jobs, of_jobs, strict=True)
    ]
    return _outcome(network, "flow", seed, jobs, flows.carried, flows.events, began)


def _job(job: JobPlan, topology: Topology, calls: Sequence[tuple[Floats, Floats]]) -> JobOutcome:
    name = job.algorithm if job.plan is None else f"plan:{job.plan}"
    seconds = tuple(float(ended.max() - begun.min()) for begun, ended in calls)
    ends = tuple(float(ended.max()) for _, ended in calls)
    return JobOutcome(job.name, name, len(hosts_of(job, topology)), job.size, seconds, ends)


def _outcome(
    network: SimulatedNetwork,
    level: str,
    seed: int,
    jobs: Sequence[JobOutcome],
    carried: Floats,
    events: int,
    began: float,
    counts: Counts | None = None,
) -> SimulationResult:
    until = max(job.ends[-1] for job in jobs)
    shares = carried / (network.capacity * until)
    busiest = np.argsort(-shares, kind="stable")
    links = tuple(LinkLoad(network.pairs[n], float(carried[n]), float(shares[n])) for n in busiest if carried[n])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    elapsed = time.perf_counter() - began
    return SimulationResult(network.topology.name, level, seed, tuple(jobs), links, events, elapsed, peak, counts)


def run_packets(
    topology: Topology,
    scenario: Scenario,
    wire: Wire | None = None,
    faults: Faults | None = None,
    *,
    seed: int = 0,
    progress: Progress = lambda _now, _share: None,
) -> SimulationResult:
    """Simulate packets. Only switches that sum: :class:`PlanError` for a job with another algorithm."""
    began = time.perf_counter()
    wire, faults = wire or Wire(), faults or Faults()
    late = Lateness(scenario, seed)
    network = SimulatedNetwork(topology)
    jobs = []
    require_in_network(scenario)
    for job in scenario.jobs:
        jobs.append(_packet_job(job, hosts_of(job, topology), wire, late))
    simulation = PacketSimulation(network, faults, jobs, seed)
    for change in _failures(network, scenario):
        simulation.change(change)
    simulation.run(progress)
    done = []
    for job, packets in zip(scenario.jobs, jobs, strict=True):
        times = [
            (np.array(list(begun.values())), np.array(list(ended.values())))
            for begun, ended in zip(packets.began, packets.ended, strict=True)
        ]
        done.append(_job(job, topology, times))
    carried = np.array([simulation.wires[ends].carried_bytes for ends in network.pairs])
    return _outcome(network, "packet", seed, done, carried, simulation.clock.count, began, simulation.counts())


def require_in_network(*scenarios: Scenario) -> None:
    """:class:`PlanError` for a job whose packets cannot be simulated."""
    for job in (job for scenario in scenarios for job in scenario.jobs):
        if job.algorithm != IN_NETWORK or job.plan is not None:
            raise PlanError(f"job {job.name}: packets are simulated of {IN_NETWORK} alone; flows, of everything")


def _packet_job(job: JobPlan, hosts: tuple[str, ...], wire: Wire, late: Lateness) -> PacketJob:
    def begins(rank: int, call: int, now: float) -> float:
        return now + late.of(job, hosts[rank], call)

    blocks = -(-job.size // wire.block_bytes)
    began: list[dict[int, float]] = [{} for _ in range(job.calls)]
    return PacketJob(job.name, hosts, blocks, job.calls, wire, begins, began, [{} for _ in range(job.calls)])
