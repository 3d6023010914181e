# SPDX-License-Identifier: MIT
"""Trees from several roots at once."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from netsum.peers.schedule_files import load_plan, parse_plan
from netsum_planner.errors import PlanError
from netsum_planner.optimum.optimum import Collective, optimum
from netsum_planner.topologies import shapes
from netsum_planner.topologies.files import read_topology
from netsum_planner.topologies.model import Topology
from netsum_planner.trees.many_roots import pack_all
from netsum_planner.trees.packing import NEAR, Packing
from netsum_planner.trees.plan import all_to_all, many_to_many, plan_allreduce
from netsum_planner.trees.stripes import stripes

from tests.planner.commands import netsum
from tests.planner.test_trees import check

ALLREDUCE, ALLGATHER = Collective.ALLREDUCE, Collective.ALLGATHER


def check_roots(topology: Topology, collective: Collective, packing: Packing) -> None:
    """The trees fit together, both ways for an allreduce; an allgather has as much from each host."""
    assert packing.topology == topology
    check(packing, both_ways=collective is ALLREDUCE)
    assert packing.optimum == optimum(topology, collective).host_only.rate
    roots: Counter[str] = Counter()
    for tree in packing.trees:
        roots[tree.root] += tree.rate  # type: ignore[assignment]  # a rate
    if collective is ALLGATHER:
        assert dict(roots) == dict.fromkeys(topology.hosts, packing.rate / len(topology.hosts))


@pytest.mark.parametrize(
    ("topology", "collective", "most"),
    [
        (shapes.dgx1v(), ALLREDUCE, 12),
        (shapes.star(8, 10), ALLREDUCE, 8),
        (shapes.leaf_spine(2, 2, 2, 10), ALLREDUCE, 3),
        (shapes.leaf_spine(2, 2, 2, 10), ALLGATHER, 4),
        (shapes.star(4, 10), ALLGATHER, 4),
        pytest.param(shapes.dgx1p(), ALLREDUCE, 12, marks=pytest.mark.full),
        pytest.param(shapes.dgx1v(), ALLGATHER, 24, marks=pytest.mark.full),
        pytest.param(shapes.a100(2), ALLREDUCE, 24, marks=pytest.mark.full),
        pytest.param(shapes.torus((3, 3), 10), ALLREDUCE, 14, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_few_trees_of_all_roots_reach_the_optimum(topology: Topology, collective: Collective, most: int) -> None:
    packing = pack_all(topology, collective)
    check_roots(topology, collective, packing)
    assert len(packing.trees) <= most


def test_an_allreduce_of_all_roots_is_faster_than_of_one() -> None:
    """75 GB/s of one root, 85.71 at best (docs/planning.md)."""
    schedule = many_to_many(pack_all(shapes.dgx1v(), ALLREDUCE), chunks=2)
    assert schedule.rate > 80
    assert sum(schedule.shares) == 1


def test_uneven_uplinks_are_shared_by_their_rates() -> None:
    known = shapes.leaf_spine(2, 2, 1, 10)
    rates = {"spine1": Fraction(10), "spine2": Fraction(5)}
    links = tuple(replace(link, rate=rates.get(link.source, rates.get(link.target, Fraction(15)))) for link in known.links)
    uneven = Topology("uneven", known.hosts, known.switches, links)
    packing = pack_all(uneven, ALLREDUCE)
    check_roots(uneven, ALLREDUCE, packing)
    assert packing.rate == 15
    assert sorted(tree.rate for tree in packing.trees) == [5, 10]


@pytest.mark.parametrize("backwards", [False, True])
def test_schedule_of_an_allgather_and_of_a_reduce_scatter(backwards: bool) -> None:
    topology = shapes.leaf_spine(2, 2, 2, 10)
    schedule = all_to_all(topology, Collective.REDUCE_SCATTER if backwards else ALLGATHER, chunks=1)
    assert schedule.rate == schedule.packing.optimum == Fraction(40, 3)
    held = {(n, host) for n, tree in enumerate(schedule.packing.trees) for host in topology.hosts if host == tree.root}
    if backwards:
        parts: dict[tuple[int, str], Counter[str]] = {
            (n, host): Counter([host]) for n in range(len(schedule.packing.trees)) for host in topology.hosts
        }
        for each in schedule.transfers:
            assert each.combine
            parts[each.tree, each.path[-1]] += parts[each.tree, each.path[0]]
        assert all(parts[place] == Counter(topology.hosts) for place in held)
        return
    for each in schedule.transfers:
        assert not each.combine
        assert (each.tree, each.path[0]) in held
        held.add((each.tree, each.path[-1]))
    assert len(held) == len(schedule.packing.trees) * len(topology.hosts)


def test_other_collectives_have_one_root() -> None:
    with pytest.raises(PlanError, match="not broadcast"):
        pack_all(shapes.star(3, 10), Collective.BROADCAST)


def test_plan_of_uneven_links_names_roots_and_their_shares(tmp_path: Path) -> None:
    """One uplink of a leaf at half rate: two thirds of the blocks to the other spine; the schedule is what hosts accept."""
    file = tmp_path / "net.yaml"
    links = [f"{{from: h{n}, to: leaf{1 + n // 3}, rate_GBps: 20}}" for n in range(1, 5)]
    links += [f"{{from: leaf{leaf}, to: spine{spine}, rate_GBps: 10}}" for leaf, spine in ((1, 1), (2, 1), (2, 2))]
    links.append("{from: leaf1, to: spine2, rate_GBps: 5}")
    switches = "".join(f"  {name}: {{sums: true}}\n" for name in ("leaf1", "leaf2", "spine1", "spine2"))
    file.write_text(
        f"name: uneven\nhosts: [h1, h2, h3, h4]\nswitches:\n{switches}links:\n" + "".join(f"  - {e}\n" for e in links)
    )
    made = netsum("plan", "schedule", file, "--chunk-bytes", 65536)
    told = json.loads(made.stdout)
    assert told["roots"] == {"spine1": 2, "spine2": 1}
    assert 14.5 < told["in_network_GBps"] <= 15
    plan = parse_plan(made.stdout)
    assert (plan.hosts, plan.chunk_bytes) == (("h1", "h2", "h3", "h4"), 65536)
    to_file = netsum("plan", "schedule", file, "-o", tmp_path / "plan.json")
    assert "roots: spine1 2, spine2 1" in to_file.stdout
    assert load_plan(str(tmp_path / "plan.json")).parts == plan.parts
    again = plan_allreduce(read_topology(file).only_forwarding())
    assert again.roots == {}
    assert again.schedule.rate >= NEAR * again.schedule.packing.optimum


def test_roots_are_those_of_the_controller() -> None:
    assert stripes(shapes.torus((2, 3), 10)) == ({}, Fraction(0))
    assert stripes(shapes.star(3, 10)) == ({"s1": 1}, Fraction(10))
    assert stripes(shapes.leaf_spine(3, 2, 2, 10)) == (dict.fromkeys(("spine1", "spine2", "spine3"), 1), Fraction(10))
    assert stripes(shapes.fat_tree(4, 10)) == (dict.fromkeys(("core1", "core2", "core3", "core4"), 1), Fraction(10))
