# SPDX-License-Identifier: MIT
"""The switches that make the results of a job, and how they share the blocks: the weights that the controller's trees need to use
uneven links evenly."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from netsum_controller.errors import InputError, RejectedError
from netsum_controller.planning.replan import Replanned
from netsum_controller.planning.trees import MAX_STRIPES, plan_trees, share
from scipy.optimize import linprog

from netsum_planner.errors import PlanError
from netsum_planner.topologies.files import for_controller, from_network
from netsum_planner.topologies.model import Pair, Topology

_NEAR = 1 / 128
"""Half of the least share that a root can have."""


def stripes(topology: Topology) -> tuple[dict[str, int], Fraction]:
    """The weights of the roots that the controller would choose, those of more than one, and the GB/s of the whole array that
    they reach together. None of either if the hosts' switches cannot sum, or hosts are not on one switch each."""
    known = for_controller(topology)
    if known is None:
        return {}, Fraction(0)
    try:
        trees = plan_trees(known, topology.hosts)
    except RejectedError:
        return {}, Fraction(0)
    if not all(topology.switches[name] for name in trees.nodes):
        return {}, Fraction(0)
    return _shared(topology, {root: _links(topology, parents) for root, parents in trees.parents.items()})


def _links(topology: Topology, parents: Mapping[str, str]) -> set[Pair]:
    """The load of a tree on the links: each once, up and down."""
    edges = [*((host, topology.neighbors[host][0]) for host in topology.hosts), *parents.items()]
    return {*edges, *((two, one) for one, two in edges)}


def _shared(topology: Topology, taken: Mapping[str, set[Pair]]) -> tuple[dict[str, int], Fraction]:
    links = [ends for ends in topology.rates if any(ends in each for each in taken.values())]
    matrix = np.array([[ends in each for each in taken.values()] for ends in links], float)
    limits = [float(topology.rates[ends]) for ends in links]
    # Of shares that are as good, the most even: the busiest root of those gets as little as it can.
    best = linprog(-np.ones(len(taken)), A_ub=matrix, b_ub=limits, method="highs-ds")
    even = linprog(
        [*np.zeros(len(taken)), 1.0],
        A_ub=np.block([[matrix, np.zeros((len(links), 1))], [np.eye(len(taken)), -np.ones((len(taken), 1))]]),
        b_ub=[*limits, *np.zeros(len(taken))],
        A_eq=[[*np.ones(len(taken)), 0.0]],
        b_eq=[-best.fun * (1 - 1e-9)],
        method="highs-ds",
    )
    weights = _weights(dict(zip(taken, even.x, strict=False)))
    roots = share(weights)
    loads = {ends: sum(ends in taken[root] for root in roots) for ends in links}
    return weights, min(topology.rates[ends] * len(roots) / load for ends, load in loads.items() if load)


def _weights(rates: Mapping[str, Any]) -> dict[str, int]:
    """The smallest whole numbers in these proportions, as far as there can be stripes for them."""
    shares = {root: rate / sum(rates.values()) for root, rate in rates.items()}
    for whole in range(1, MAX_STRIPES + 1):
        counts = {root: round(each * whole) for root, each in shares.items()}
        if sum(counts.values()) == whole and all(abs(counts[root] / whole - shares[root]) < _NEAR for root in shares):
            break
    else:
        counts = {root: round(each * MAX_STRIPES) for root, each in shares.items()}
    return {root: count for root, count in counts.items() if count}


# Other roots for a job when a part of its network has died: what the controller asks (entry point ``netsum.planners``).


@lru_cache(maxsize=64)  # every switch of a job asks
def replan(network: str, hosts: frozenset[str], down: frozenset[str | Pair]) -> Replanned:
    """Weights for the roots that ``hosts`` have without what is ``down``; none if no switches can share the sums there, or the
    network does not know the hosts. What it does not know otherwise is no loss."""
    try:
        whole = from_network(network)
        known = {*whole.nodes, *whole.rates}
        left = whole.without([each for each in down if each in known]).subset(hosts)
        roots, rate = stripes(left)
        return Replanned(roots, float(rate), float(stripes(whole.subset(hosts))[1]))
    except (PlanError, InputError):
        return Replanned({}, 0.0, 0.0)
