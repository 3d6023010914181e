# SPDX-License-Identifier: MIT
"""Contention of algorithms, and orders of ranks."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise, permutations
from pathlib import Path
from random import Random

import networkx as nx
import pytest
from netsum.peers.schedules import ALGORITHMS as PLANS
from netsum.peers.schedules import make_plan
from netsum.wire.schema import EVERYONE
from netsum_controller.config import topologies
from netsum_controller.config.job_spec import parse_job
from netsum_controller.config.topology import Topology as Installed
from netsum_controller.entries import ForwardEntry
from netsum_controller.planning.allocation import mac_to_int
from netsum_controller.planning.items import forwarding_items
from netsum_planner.errors import PlanError
from netsum_planner.ranks import mapping
from netsum_planner.ranks.contention import ALGORITHMS, contention, least
from netsum_planner.ranks.mapping import map_ranks
from netsum_planner.topologies import shapes
from netsum_planner.topologies.files import for_controller, installed, read_topology, to_yaml
from netsum_planner.topologies.model import Routing, Topology

from tests.planner.commands import netsum, ran, refused, written


def shuffled(topology: Topology) -> list[str]:
    order = list(topology.hosts)
    Random(5).shuffle(order)
    return order


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8, 13])
def test_flows_are_those_of_the_host_algorithms(algorithm: str, ranks: int) -> None:
    """Each rank sends each other one as many rows as the steps say."""
    rows = 16 * ranks
    everyone = (EVERYONE,) * rows
    sent: Counter[tuple[int, int]] = Counter()
    for rank in range(ranks):
        for one in make_plan(algorithm, rank, ranks, everyone, everyone, "ring").rounds:
            for send in one.sends:
                sent[rank, send.peer] += len(send.rows)
    told: dict[tuple[int, int], Fraction] = {}
    for step in ALGORITHMS[algorithm](ranks):
        for flow in step.flows:
            told[flow] = told.get(flow, Fraction(0)) + step.times * step.share * rows
    assert told == sent
    assert set(ALGORITHMS) == set(PLANS)


def walked(topology: Installed, source: str, target: str) -> list[str]:
    """The path that the controller's entries make."""
    mac, path = mac_to_int(topology.hosts[target].mac), [source, topology.hosts[source].switch]
    while path[-1] != topology.hosts[target].switch:
        items = forwarding_items(topology, path[-1])
        port = next(each.port for each in items if isinstance(each, ForwardEntry) and each.eth_dst == mac)
        path.append(topology.neighbors(path[-1])[port].switch)
    return [*path, target]


@pytest.mark.parametrize(
    "topology",
    [topologies.leaf_spine(3, 3, 2), topologies.fat_tree(4), topologies.tree(3, 2)],
    ids=lambda each: each.name,
)
def test_paths_are_those_that_the_controller_installs(topology: Installed) -> None:
    seen = installed(topology, rate_mbps=1000)
    routing = Routing(seen)
    for source, target in permutations(topology.hosts, 2):
        path = list(routing.path(source, target))
        assert path == walked(topology, source, target)
        assert len(path) == 1 + nx.shortest_path_length(seen.graph(), source, target)


def test_paths_stay_the_same_where_a_topology_is_built() -> None:
    for known in (shapes.bigraph(6, 10), shapes.fat_tree(4, 10)):
        made, routing = for_controller(known), Routing(known)
        assert made is not None
        for source, target in permutations(known.hosts, 2):
            assert list(routing.path(source, target)) == walked(made, source, target)


def test_a_file_names_paths_of_its_own(tmp_path: Path) -> None:
    known = shapes.leaf_spine(2, 2, 2, 10)
    told = to_yaml(known) + "routes:\n  - [h1, leaf1, spine1, leaf2, h3]\n  - [h1, leaf1, spine1, leaf2, h4]\n"
    (tmp_path / "net.yaml").write_text(told)
    topology = read_topology(tmp_path / "net.yaml")
    assert {Routing(topology).path("h1", host)[2] for host in ("h3", "h4")} == {"spine1"}
    assert {Routing(known).path("h1", host)[2] for host in ("h3", "h4")} == {"spine1", "spine2"}
    (tmp_path / "again.yaml").write_text(to_yaml(topology))
    assert read_topology(tmp_path / "again.yaml") == topology
    assert topology.without(["spine1"]).routes == {}
    assert topology.without([("leaf1", "spine1")]).routes == {}
    assert list(topology.subset(["h1", "h3"]).routes) == [("h1", "h3")]
    assert topology.reversed().routes["h3", "h1"] == ("h3", "leaf2", "spine1", "leaf1", "h1")
    wrong = to_yaml(known) + "routes:\n  - [h1, spine1, h3]\n  - [h1, leaf1, h2, leaf1]\n"
    (tmp_path / "wrong.yaml").write_text(wrong)
    said = refused("plan", "ranks", tmp_path / "wrong.yaml")
    for part in (
        ":18: routes.0: there is no link from h1 to spine1",
        ":19: routes.1: h2 does not forward",
        "leaf1 is none",
    ):
        assert part in said


@pytest.mark.parametrize("k", [2, 4, 8, 16])
def test_bigraph_has_no_contention_with_halving_doubling(k: int) -> None:
    """EFLOPS: every link carries one flow a step at most, from whatever order one begins."""
    topology = shapes.bigraph(k, 10)
    found = map_ranks(topology, "halving_doubling", shuffled(topology))
    assert found.after.factor == found.least.factor == 1
    assert found.before.factor > 1 or k == 2
    routing = Routing(topology)
    for step in ALGORITHMS["halving_doubling"](len(topology.hosts)):
        loads = Counter(
            ends for one, other in step.flows for ends in pairwise(routing.path(found.after.order[one], found.after.order[other]))
        )
        assert set(loads.values()) == {1}


@pytest.mark.parametrize(
    ("topology", "factors"),
    [
        (shapes.fat_tree(4, 10), {"ring": 1, "halving_doubling": 1, "double_binary_tree": 2}),
        (shapes.leaf_spine(2, 4, 4, 10), {"ring": 1, "halving_doubling": 2, "double_binary_tree": 2}),
        (shapes.torus((4, 4), 10), {"ring": 1, "halving_doubling": 1}),
        (shapes.torus((2, 4, 4), 10), {"ring": 1, "halving_doubling": 1}),
        (shapes.torus((3, 5), 10), {"ring": 1}),
        (shapes.tree(4, 4, 10), {"ring": 1, "halving_doubling": 4}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_contention_is_removed_where_it_can_be(topology: Topology, factors: dict[str, int]) -> None:
    for algorithm, factor in factors.items():
        found = map_ranks(topology, algorithm, shuffled(topology))
        assert found.after.factor == factor
        assert found.best
        assert found.before.factor >= found.after.factor
        assert found.after == contention(Routing(topology), algorithm, found.after.order)


def test_no_order_is_below_the_bound() -> None:
    """All orders of few hosts, on networks where links differ."""
    for topology in (shapes.tree(2, 2, 10), shapes.torus((2, 3), 10), shapes.leaf_spine(1, 2, 2, 10)):
        routing = Routing(topology)
        for algorithm in ALGORITHMS:
            best = min(contention(routing, algorithm, order).factor for order in permutations(topology.hosts))
            found = map_ranks(topology, algorithm, shuffled(topology))
            assert least(topology, algorithm).factor <= best
            assert found.after.factor == best


def test_search_removes_contention_that_no_known_order_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A BiGraph whose layers have 3 switches each; the same seed finds the same order."""
    monkeypatch.setattr(mapping, "TRIES", 1000)
    topology = shapes.bigraph(6, 10)
    found = map_ranks(topology, "halving_doubling", shuffled(topology), seed=3)
    assert found.after.factor < found.before.factor
    assert found == map_ranks(topology, "halving_doubling", shuffled(topology), seed=3)


def test_a_slow_link_counts_for_more_flows(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(
        "name: slow\nhosts: [h1, h2, h3, h4]\nswitches: {s1: {}, s2: {}}\nlinks:\n"
        + "".join(f"  - {{from: h{n}, to: s{1 + n // 3}, rate_GBps: 10}}\n" for n in range(1, 5))
        + "  - {from: s1, to: s2, rate_GBps: 2.5}\n"
    )
    topology = read_topology(tmp_path / "net.yaml")
    found = contention(Routing(topology), "ring", topology.hosts)
    assert found.factor == 4
    assert (found.flows, found.rate) == (1, Fraction(5, 3))
    assert contention(Routing(topology), "ring", ("h1", "h3", "h2", "h4")).factor == 8


def test_command_says_before_and_after_and_writes_what_others_take(tmp_path: Path) -> None:
    words = ("plan", "ranks", written(tmp_path, shapes.bigraph(4, 10)), "--algorithm", "halving_doubling")
    told = ran(*words)
    order = told["after"]["order"]
    assert (told["before"]["contention"], told["after"]["contention"], told["least"]) == (2, 1, 1)
    assert told["proved_best"]
    assert f"order: {','.join(order)}" in netsum(*words).stdout
    assert parse_job(netsum(*words, "--as", "job").stdout).members == tuple(order)
    assert netsum(*words, "--as", "hostfile").stdout.split() == order
    assert netsum(*words, "--as", "rankfile").stdout.splitlines()[1] == f"rank 1={order[1]} slot=0"
    lines = netsum(*words, "--as", "torchrun").stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == order
    assert f"--master-addr {order[0]}" in lines[7]
    assert "--node-rank 7 " in lines[7]
    again = ran(*words, "--order", ",".join(order))
    assert again["before"] == again["after"] == told["after"]


def test_orders_that_are_wrong_are_refused() -> None:
    topology = shapes.star(3, 10)
    with pytest.raises(PlanError, match="differs in h3"):
        map_ranks(topology, "ring", ["h1", "h2"])
    with pytest.raises(PlanError, match="differs in h1"):
        map_ranks(topology, "ring", ["h1", "h1", "h2", "h3"])
    with pytest.raises(PlanError, match="must be one of ring"):
        map_ranks(topology, "rung")
