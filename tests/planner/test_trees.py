# SPDX-License-Identifier: MIT
"""Trees that reach the optimum, and their schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum_planner.errors import PlanError
from netsum_planner.optimum.optimum import Collective, common, optimum
from netsum_planner.topologies import shapes
from netsum_planner.topologies.model import Link, Topology
from netsum_planner.trees import packing as module
from netsum_planner.trees.allocations import different, plan_for, ring_rate
from netsum_planner.trees.packing import NEAR, Packing, cheapest, pack
from netsum_planner.trees.plan import Schedule, many_to_many, many_to_one, one_to_many

from tests.examples import one_in
from tests.planner.commands import ran, written


def check(packing: Packing, *, both_ways: bool = False) -> None:
    """Each tree reaches every host once, along links that are there; all fit together, and reach 95 % of the optimum."""
    topology = packing.topology
    taken: Counter[tuple[str, str]] = Counter()
    for tree in packing.trees:
        reached = [tree.root]
        for path in tree.paths:
            assert path[0] in reached
            assert set(path[1:-1]) <= set(topology.switches)
            reached.append(path[-1])
            for one, other in pairwise(path):
                taken[one, other] += tree.rate  # type: ignore[assignment]  # a rate
                if both_ways:
                    taken[other, one] += tree.rate  # type: ignore[assignment]
        assert sorted(reached) == sorted(topology.hosts)
    assert all(rate <= topology.rates[ends] for ends, rate in taken.items())
    assert NEAR * packing.optimum <= packing.rate <= packing.optimum


@pytest.mark.parametrize(
    ("topology", "most"),
    [
        (shapes.dgx1v(), 6),
        (shapes.dgx1p(), 4),
        (shapes.mi250(1), 6),
        (shapes.a100(1), 1),
        (shapes.a100(2), 8),
        (shapes.star(8, 10), 1),
        (shapes.torus((3, 3), 10), 4),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_few_trees_reach_the_optimum(topology: Topology, most: int) -> None:
    packing = pack(topology, topology.hosts[1])
    check(packing)
    assert len(packing.trees) <= most


@pytest.mark.parametrize(("box", "count", "most"), [(shapes.dgx1p(), 14, 4), (shapes.dgx1v(), 46, 6)])
def test_every_allocation_of_a_box(box: Topology, count: int, most: int) -> None:
    """Blink's 14 and 46 different allocations of 3 to 8 GPUs; no ring is better than the trees."""
    planned = [plan_for(part) for part in different(box, range(3, 9))]
    assert len(planned) == count
    for each in planned:
        check(each.packing)
        assert len(each.packing.trees) <= most
        assert each.rings <= each.packing.rate
    assert any(not each.rings for each in planned)


def test_trees_one_by_one_are_as_many_as_the_optimum_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no candidates that suffice."""
    monkeypatch.setattr(module.ForwardingNetwork, "chosen", lambda *_: [])
    packing = pack(shapes.dgx1v(), "gpu5")
    check(packing)
    assert packing.rate == packing.optimum == 150


def test_rings_are_those_that_fit() -> None:
    assert ring_rate(shapes.dgx1v(), Fraction(25)) == 150  # 6 one-way rings, as NCCL finds
    assert ring_rate(shapes.dgx1p().subset(["gpu0", "gpu1", "gpu2", "gpu4"]), Fraction(20)) == 0
    with pytest.raises(PlanError, match="direct links"):
        ring_rate(shapes.star(3, 1), Fraction(1))


def test_without_trees_there_is_an_error() -> None:
    with pytest.raises(PlanError, match="no path from gpu0 to gpu6"):
        pack(shapes.dgx1v().subset(["gpu0", "gpu1", "gpu6"]), "gpu0")


@one_in(2)
@given(st.integers(2, 6), st.lists(st.integers(0, 9), min_size=30, max_size=30))
def test_the_cheapest_arborescence_is_networkx_s(nodes: int, numbers: Sequence[int]) -> None:
    pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b]
    costs = {pair: float(cost) for pair, cost in zip(pairs, numbers, strict=False) if cost}
    graph = nx.DiGraph()
    graph.add_nodes_from(range(nodes))
    graph.add_weighted_edges_from((a, b, cost) for (a, b), cost in costs.items() if b)
    if set(nx.descendants(graph, 0)) != set(range(1, nodes)):
        return
    found = cheapest(nodes, 0, costs)
    assert nx.is_arborescence(nx.DiGraph(found))
    best = nx.minimum_spanning_arborescence(graph)
    assert sum(costs[arc] for arc in found) == best.size(weight="weight")


def run(schedule: Schedule) -> dict[str, Counter[tuple[int, int, str]]]:
    """Each host's part of each tree and chunk in the end: how often each host's own part is in it."""
    topology = schedule.packing.topology
    parts = [(tree, chunk) for tree in range(len(schedule.packing.trees)) for chunk in range(schedule.chunks)]
    has = {host: Counter({(*part, host): 1 for part in parts}) for host in topology.hosts}
    for step in range(schedule.steps):
        before = {host: Counter(held) for host, held in has.items()}
        for each in schedule.transfers:
            if each.step != step:
                continue
            source, target = each.path[0], each.path[-1]
            sent = {key: count for key, count in before[source].items() if key[:2] == (each.tree, each.chunk)}
            if not each.combine:
                for key in [key for key in has[target] if key[:2] == (each.tree, each.chunk)]:
                    del has[target][key]
            has[target].update(sent)
    return has


@pytest.mark.parametrize("chunks", [1, 3])
def test_schedules_do_what_they_say(chunks: int) -> None:
    packing = pack(shapes.dgx1v().subset(["gpu0", "gpu1", "gpu2", "gpu3", "gpu5"]), "gpu1")
    parts = [(tree, chunk) for tree in range(len(packing.trees)) for chunk in range(chunks)]
    everyone = Counter({(*part, host): 1 for part in parts for host in packing.topology.hosts})
    alone = Counter({(*part, "gpu1"): 1 for part in parts})
    assert set(map(str, run(one_to_many(packing, chunks)).values())) == {str(alone)}
    assert run(many_to_one(packing, chunks))["gpu1"] == everyone
    assert all(held == everyone for held in run(many_to_many(packing, chunks)).values())
    assert sum(one_to_many(packing, chunks).shares) == 1
    assert one_to_many(packing, chunks).rate == many_to_one(packing, chunks).rate == packing.rate


def test_up_and_down_share_links() -> None:
    packing = pack(shapes.dgx1v(), "gpu0")
    best = optimum(packing.topology, Collective.ALLREDUCE).host_only.rate
    assert packing.rate / 2 <= many_to_many(packing, 2).rate <= best < packing.rate


def test_chunks_follow_each_other_at_a_step_s_distance() -> None:
    packing = pack(shapes.star(4, 10), "h1")
    (tree,) = packing.trees  # a chain
    assert one_to_many(packing, 5).steps == 3 + 4
    assert many_to_many(packing, 5).steps == 2 * 3 + 4
    assert all(path[1] == "s1" for path in tree.paths)


def test_trees_without_a_way_back_cannot_be_reversed() -> None:
    ring = Topology("ring", ("a", "b", "c"), {}, tuple(Link(one, other, Fraction(1)) for one, other in ("ab", "bc", "ca")))
    packing = pack(ring, "a")
    assert one_to_many(packing, 1).steps == 2
    with pytest.raises(PlanError, match="trees cannot be reversed"):
        many_to_one(packing, 1)


def test_commands(tmp_path: Path) -> None:
    path = written(tmp_path, shapes.dgx1p())
    told = ran("plan", "trees", path, "--collective", "allreduce", "--chunks", 2)
    assert (told["GBps"], len(told["trees"]), told["schedule"]["collective"]) == (80, 4, "allreduce")
    rows = ran("plan", "allocations", path, "--smallest", 7)
    assert {len(row["hosts"]) for row in rows} == {7, 8}
    assert min(row["of_optimum"] for row in rows) >= 0.95
    assert common([Fraction(row["GBps"]) for row in rows]) >= 20
