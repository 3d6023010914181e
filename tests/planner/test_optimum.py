# SPDX-License-Identifier: MIT
"""The optimum: the figures of ForestColl's public code, all cuts of small networks, and linear programs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import chain, combinations
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum_planner.errors import PlanError
from netsum_planner.optimum import cuts
from netsum_planner.optimum.cuts import worst_cut
from netsum_planner.optimum.optimum import Collective, optimum
from netsum_planner.optimum.program import one_way
from netsum_planner.topologies import shapes
from netsum_planner.topologies.model import Link, Topology, wire

from tests.examples import one_in
from tests.planner.commands import netsum, ran, refused, written

# Allgather, GB/s: made by ForestColl's public code (github.com/liangyuRain/ForestColl), with its trees from each root.
FORESTCOLL = [
    (shapes.a100(1), 342.86, 1),
    (shapes.a100(2), 346.67, 13),
    (shapes.a100(4), 266.67, 1),
    (shapes.mi250(1), 342.86, 3),
    (shapes.mi250(2), 354.13, 83),
    (shapes.dgx1v(), 171.43, 6),
    (shapes.leaf_spine(2, 2, 2, 10), 13.33, 1),
    (shapes.leaf_spine(2, 4, 4, 10), 10.67, 1),
]


@pytest.mark.parametrize(("topology", "gbps", "trees"), FORESTCOLL, ids=lambda value: getattr(value, "name", ""))
def test_allgather_is_what_forestcoll_finds(topology: Topology, gbps: float, trees: int, tmp_path: Path) -> None:
    told = ran("plan", "optimum", written(tmp_path, topology), "--collective", "allgather")
    assert (round(told["optimum_GBps"], 2), told["trees"], told["exact"]) == (gbps, trees, True)
    assert told["in_network_GBps"] == told["optimum_GBps"]  # a host must get what it lacks, by whichever path
    into = told["bottleneck"]
    assert told["optimum_GBps"] == pytest.approx(into["GBps"] * len(topology.hosts) / len(into["from"]))
    assert sorted(into["from"] + into["to"]) == sorted(topology.hosts)


@pytest.mark.parametrize("collective", list(Collective))
def test_rates_of_a_star(collective: Collective) -> None:
    found = optimum(shapes.star(4, 10), collective)
    host_only = {"allgather": "40/3", "reduce_scatter": "40/3", "allreduce": "20/3", "broadcast": "10"}
    assert found.to_json()["optimum"] == host_only[collective]
    in_network = 10 if collective in ("allreduce", "broadcast") else Fraction(40, 3)
    assert found.in_network.rate == found.in_network.proved == in_network


def test_allreduce_of_a_ring_of_three_is_bounded_by_all_links_not_by_a_cut() -> None:
    """Every tree takes 2 of the 3 wires (Tutte, Nash-Williams 1961); each cut alone would let 2 pass."""
    links = tuple(link for ends in (("a", "b"), ("b", "c"), ("c", "a")) for link in wire(*ends, 1))
    found = optimum(Topology("ring", ("a", "b", "c"), {}, links), Collective.ALLREDUCE).host_only
    assert (found.rate, found.proved, found.cut) == (Fraction(3, 2), Fraction(3, 2), None)
    assert len(found.links) == 3


def test_allreduce_gives_slow_hosts_fewer_roots() -> None:
    """1 GB/s is what the slowest host can send and get; as much as a reduce_scatter and an allgather take is less."""
    links = tuple(link for name, rate in (("a", 10), ("b", 5), ("c", 1)) for link in wire(name, "s1", rate))
    topology = Topology("uneven", ("a", "b", "c"), {"s1": False}, links)
    assert optimum(topology, Collective.ALLREDUCE).host_only.rate == 1
    assert optimum(topology, Collective.ALLGATHER).host_only.rate == Fraction(3, 2)
    (only,) = optimum(topology, Collective.ALLREDUCE).host_only.links
    assert set(only) == {"c", "s1"}


def test_a_switch_that_only_forwards_cannot_send_more_than_it_gets() -> None:
    """A broadcast through a switch with 1 in and 2 out: copying, it serves both; forwarding, each host gets half."""
    links = (Link("a", "s", Fraction(1)), Link("s", "b", Fraction(1)), Link("s", "c", Fraction(1)))
    back = (Link("b", "a", Fraction(1)), Link("c", "a", Fraction(1)))
    topology = Topology("uneven", ("a", "b", "c"), {"s": True}, (*links, *back))
    found = optimum(topology, Collective.BROADCAST)
    assert (found.host_only.rate, found.host_only.proved) == (Fraction(1, 2), Fraction(1, 2))
    assert found.in_network.rate == found.in_network.proved == 1


def test_a_reduce_scatter_is_an_allgather_turned_round() -> None:
    links = (*wire("a", "b", 3), *wire("b", "c", 2), Link("c", "a", Fraction(1)))
    topology = Topology("three", ("a", "b", "c"), {}, links)
    forth, back = optimum(topology, Collective.REDUCE_SCATTER), optimum(topology.reversed(), Collective.ALLGATHER)
    assert forth.host_only.rate == back.host_only.rate
    assert forth.host_only.links == tuple(ends[::-1] for ends in back.host_only.links)


def test_hosts_that_cannot_reach_each_other_are_named() -> None:
    cut_off = shapes.leaf_spine(1, 2, 1, 10).without([("leaf2", "spine1")])
    with pytest.raises(PlanError, match="no path from h1 to h2"):
        optimum(cut_off, Collective.ALLREDUCE)


@st.composite
def networks(draw: st.DrawFn, switches: int = 1) -> Topology:
    """Three hosts and some switches; both directions have the same rate, so that every switch is balanced."""
    hosts, others = ("a", "b", "c"), tuple(f"s{n}" for n in range(switches))
    names = (*hosts, *others)
    rates = draw(st.lists(st.integers(0, 4), min_size=10, max_size=10))
    links = chain(*(wire(*ends, rate) for ends, rate in zip(combinations(names, 2), rates, strict=False) if rate))
    return Topology("any", hosts, dict.fromkeys(others, False), tuple(links))


def connected(topology: Topology) -> bool:
    graph = topology.graph()
    return all(nx.has_path(graph, topology.hosts[0], host) for host in topology.hosts)


def slowest(topology: Topology, shares: dict[str, Fraction]) -> Fraction:
    """Over all sets of nodes, as the definition says."""

    def bound(side: Sequence[str]) -> Fraction:
        out = sum((rate for (a, b), rate in topology.rates.items() if a in side and b not in side), Fraction(0))
        return out / sum((share for host, share in shares.items() if host in side), Fraction(0))

    sides = chain(*(combinations(topology.nodes, size) for size in range(1, len(topology.nodes))))
    return min(bound(side) for side in sides if not set(topology.hosts) <= set(side) and set(side) & shares.keys())


@one_in(3)
@given(networks(2), st.lists(st.integers(1, 3), min_size=3, max_size=3))
def test_the_worst_cut_is_the_worst_of_all_and_the_program_agrees(topology: Topology, weights: list[int]) -> None:
    if not connected(topology):
        return
    shares = {host: Fraction(weight, sum(weights)) for host, weight in zip(topology.hosts, weights, strict=True)}
    rate, cut = worst_cut(topology.rates, shares, topology.hosts)
    assert rate == slowest(topology, shares)
    assert rate == cut.rate / sum(share for host, share in shares.items() if host in cut.side)
    solved = one_way(topology, shares).solve()
    assert solved.lower == solved.upper == rate


@one_in(4)
@given(networks())
def test_allreduce_is_proved_and_between_its_bounds(topology: Topology) -> None:
    if not connected(topology):
        return
    gathered = optimum(topology, Collective.ALLGATHER).host_only.rate
    found = optimum(topology, Collective.ALLREDUCE).host_only
    pairs = min(nx.maximum_flow_value(topology.graph(), a, b, capacity="rate") for a, b in combinations(topology.hosts, 2))
    assert found.exact
    assert gathered / 2 <= found.rate <= pairs


def test_large_numbers_take_the_slow_way_to_the_same_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = shapes.a100(1)
    fast = cuts.min_cut(topology.rates, "gpu0", "gpu1")
    monkeypatch.setattr(cuts, "_INT32", 0)
    assert cuts.min_cut(topology.rates, "gpu0", "gpu1")[0] == fast[0] == 300


def test_commands(tmp_path: Path) -> None:
    made = netsum("plan", "make", "leaf-spine", 2, 2, 2, "--rate", 10, "--delay", 1.5)
    assert made.exit_code == 0
    path = tmp_path / "made.yaml"
    path.write_text(made.output)
    shown = netsum("plan", "optimum", path)
    assert shown.exit_code == 0
    assert [line.split()[:3] for line in shown.output.splitlines() if "forward" in line or "sum" in line] == [
        ["forward", "6.67", "20/3"],
        ["sum", "10.00", "10"],
    ]
    told = ran("plan", "optimum", path, "--down", "spine1", "--down", "leaf1,h1", "--hosts", "h2,h3,h4")
    assert told["in_network"] == "10"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("make", "star"), "star takes HOSTS"),
        (("make", "star", "4"), "star needs --rate"),
        (("make", "dgx1v", "--rate", "4"), "dgx1v has rates of its own"),
        (("optimum", "nowhere.yaml"), "No such file"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], told: str) -> None:
    assert told in refused("plan", *words)
