# SPDX-License-Identifier: MIT
"""The contention factor of an algorithm (EFLOPS, HPCA 2020): how many flows of one step share a link, at most.

A flow counts by the time that it takes: on a link that is twice as fast as the hosts' slowest, it counts half. So the factor
says how many times longer a step takes than a flow alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Any, Final, NamedTuple

from netsum.peers.schedules import two_trees

from netsum_planner.topologies.model import Pair, Routing, Topology

# Who sends to whom at the same time in an allreduce, by each of netsum's host algorithms
# (:mod:`netsum.peers.schedules`).


Flow = tuple[int, int]
"""From a rank to a rank."""


class FlowStep(NamedTuple):
    """Flows at the same time, each of ``share`` of the array; the same flows ``times`` in a row."""

    flows: tuple[Flow, ...]
    share: Fraction
    times: int = 1


def ring(ranks: int) -> list[FlowStep]:
    return [FlowStep(tuple((rank, (rank + 1) % ranks) for rank in range(ranks)), Fraction(1, ranks), 2 * (ranks - 1))]


def halving_doubling(ranks: int) -> list[FlowStep]:
    """Halving and doubling have the same flows. Unless ``ranks`` is a power of two, the first pair up before and after."""
    power = 1 << (ranks.bit_length() - 1)
    pairs = [(even, even + 1) for even in range(0, 2 * (ranks - power), 2)]
    left = [*(even for even, _ in pairs), *range(2 * len(pairs), ranks)]
    half = Fraction(1, 2)
    steps = []
    if pairs:
        odd_to_even = tuple((odd, even) for even, odd in pairs)
        steps += [FlowStep((*pairs, *odd_to_even), half), FlowStep(odd_to_even, half)]
    for bit in reversed(range(power.bit_length() - 1)):
        flows = tuple((left[number], left[number ^ 1 << bit]) for number in range(power))
        steps.append(FlowStep(flows, Fraction(1 << bit, power), 2))
    if pairs:
        steps.append(FlowStep(tuple(pairs), Fraction(1)))
    return steps


def double_binary_tree(ranks: int) -> list[FlowStep]:
    """Once the pipeline is full, all children of both trees send up at once, and all parents down."""
    up = tuple((child, parent) for tree in two_trees(ranks) for child in range(ranks) for parent in tree.parents[child])
    return [FlowStep(up, Fraction(1, 2)), FlowStep(tuple((parent, child) for child, parent in up), Fraction(1, 2))]


def parameter_server(ranks: int) -> list[FlowStep]:
    flows = tuple((one, other) for one in range(ranks) for other in range(ranks) if one != other)
    return [FlowStep(flows, Fraction(1, ranks), 2)]


ALGORITHMS: Final[Mapping[str, Callable[[int], list[FlowStep]]]] = {
    "ring": ring,
    "halving_doubling": halving_doubling,
    "double_binary_tree": double_binary_tree,
    "parameter_server": parameter_server,
}


@dataclass(frozen=True)
class Contention:
    """Of one ``order``, which has the host of each rank. ``flows`` share ``link`` in one step, and make the ``factor``. Over all
    steps, the link ``loaded`` carries most, ``load`` arrays. An allreduce has ``rate`` GB/s of the array."""

    order: tuple[str, ...]
    factor: Fraction
    flows: int
    link: Pair
    load: Fraction
    loaded: Pair
    rate: Fraction

    def to_json(self) -> dict[str, Any]:
        return {
            "order": list(self.order),
            "contention": float(self.factor),
            "flows": self.flows,
            "link": f"{self.link[0]} -> {self.link[1]}",
            "largest_load": float(self.load),
            "most_loaded": f"{self.loaded[0]} -> {self.loaded[1]}",
            "GBps": float(self.rate),
        }


@dataclass(frozen=True)
class Least:
    """No order has less contention than ``factor``; ``why`` names what bounds it."""

    factor: Fraction
    why: str


def unit_rate(topology: Topology) -> Fraction:
    """GB/s of the slowest link that a host has: the rate of a flow alone."""
    hosts = set(topology.hosts)
    return min(link.rate for link in topology.links if link.source in hosts or link.target in hosts)


def contention(routing: Routing, algorithm: str, order: Sequence[str]) -> Contention:
    """Cost: flows x the length of their paths."""
    topology = routing.topology
    unit = unit_rate(topology)
    total: dict[Pair, Fraction] = {}
    seconds = Fraction(0)
    found: list[tuple[Fraction, int, Pair]] = []
    for step in ALGORITHMS[algorithm](len(order)):
        flows = flows_by_link(routing, step, order)
        worst = max(flows, key=lambda ends: flows[ends] / topology.rates[ends])
        found.append((flows[worst] * unit / topology.rates[worst], flows[worst], worst))
        seconds += step.times * step.share * flows[worst] / topology.rates[worst]
        for ends, count in flows.items():
            total[ends] = total.get(ends, Fraction(0)) + step.times * step.share * count
    factor, count, link = max(found, key=lambda each: each[0])
    loaded = max(total, key=lambda ends: total[ends])
    return Contention(tuple(order), factor, count, link, total[loaded], loaded, 1 / seconds)


def flows_by_link(routing: Routing, step: FlowStep, order: Sequence[str]) -> Counter[Pair]:
    flows: Counter[Pair] = Counter()
    for one, other in step.flows:
        flows.update(pairwise(routing.path(order[one], order[other])))
    return flows


def least(topology: Topology, algorithm: str) -> Least:
    """A bound on every order: what the busiest rank sends or receives at once, and what must leave the hosts of one switch."""
    ranks = len(topology.hosts)
    unit = unit_rate(topology)
    most = 0
    for step in ALGORITHMS[algorithm](ranks):
        for way in (0, 1):
            most = max(most, *Counter(flow[way] for flow in step.flows).values())
    widest = max(
        sum(topology.rates[ends] for ends in topology.rates if ends[way] == host) for host in topology.hosts for way in (0, 1)
    )
    # A flow takes a single path, so a host's flows cannot share its links more evenly than this.
    found = [Least(max(most * unit / widest, _alone(topology, unit)), "the busiest rank")]
    for switch in topology.switches:
        inside = {switch, *(host for host in topology.hosts if topology.neighbors[host] == [switch])}
        leaving = sum((rate for (one, other), rate in topology.rates.items() if one in inside and other not in inside))
        hosts = len(inside) - 1
        if hosts and leaving:
            crossing = _crossing(algorithm, ranks, hosts)
            found.append(Least(crossing * unit / Fraction(leaving), f"the links that leave {switch}"))
    return max(found, key=lambda each: each.factor)


def _alone(topology: Topology, unit: Fraction) -> Fraction:
    """One flow on the fastest link."""
    return unit / max(topology.rates.values())


def _crossing(algorithm: str, ranks: int, inside: int) -> int:
    """Flows that leave a set of ``inside`` ranks in some step, whichever ranks they are."""
    if inside >= ranks:
        return 0
    if algorithm == "parameter_server":
        return inside * (ranks - inside)
    if algorithm == "halving_doubling" and ranks & (ranks - 1) == 0:
        # Corners of a cube, one dimension a step. Between m of them edges in all dimensions take more than that many corners;
        # and there are at most as many edges as between the first m (Harper 1964), which not all steps can have for themselves.
        dimensions = ranks.bit_length() - 1
        if inside <= dimensions:
            return inside
        within = sum(number.bit_count() for number in range(inside))
        return ceil(Fraction(inside * dimensions - 2 * within, dimensions))
    return 1
