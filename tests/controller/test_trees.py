# SPDX-License-Identifier: MIT
"""Aggregation trees: in any topology, every member's block reaches one root, and every switch knows its sources."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.wire.schema import Role
from netsum_controller.config.topologies import fat_tree, leaf_spine, star, tree
from netsum_controller.config.topology import Topology
from netsum_controller.errors import RejectedError
from netsum_controller.planning.trees import (
    MAX_STRIPES,
    Trees,
    block_exp_us,
    distances,
    plan_trees,
    share,
    source_ids,
    switch_graph,
    trees_of,
)
from netsum_controller.state.model import Shape

from tests.controller.graphs import make, topologies


def check(topology: Topology, members: list[str], trees: Trees) -> None:
    """Check what holds for every plan."""
    assert trees.stripes in (1, 2, 4, 8, 16, 32, 64)
    for name, node in trees.nodes.items():
        assert node.switch == name
        assert node.role is (Role.ROOT if name in trees.roots else Role.LEAF)
        lowest = [child.ranks[0] for child in node.children]
        assert lowest == sorted(lowest)
        assert [child.src_id for child in node.children] == list(range(len(lowest)))
        assert len(node.ranks) == len(set(node.ranks)), "a rank comes twice"
        assert (node.role is Role.ROOT) == (not node.parents)
        for child in node.children:
            assert (child.host is None) != (child.switch is None)
            if child.host is not None:
                host = topology.hosts[child.host]
                assert (host.switch, host.port, child.ranks) == (name, child.port, tuple(lowest[child.src_id :][:1]))
                assert members[child.ranks[0]] == child.host
            else:
                assert child.switch is not None
                below = trees.nodes[child.switch]
                assert below.ranks == child.ranks
                assert below.height < node.height
                assert topology.neighbors(name)[child.port].switch == child.switch
                (own,) = {up for up in below.uplinks if up.switch == name}
                assert own.src_id == child.src_id
                neighbor = topology.neighbors(name)[child.port]
                assert (neighbor.switch, neighbor.port) == (child.switch, own.port)
    for stripe, root in enumerate(trees.roots):
        assert follow(trees, stripe, root) == set(range(len(members)))
    order = list(trees.nodes)
    assert all(order.index(parent) < order.index(child) for child, parent in trees.edges)
    assert set(trees.links(topology)) <= set(topology.links)


def follow(trees: Trees, stripe: int, root: str) -> set[int]:
    """The ranks whose blocks of a stripe reach the root; every switch on the way hears all its sources."""
    reached = set()
    at: dict[str, set[int]] = {}
    for node in trees.nodes.values():
        for child in node.children:
            if child.host is not None:
                at.setdefault(node.switch, set()).add(child.ranks[0])
    hosts_of = {name: set(ranks) for name, ranks in at.items()}
    for name, ranks in hosts_of.items():
        switch = name
        for _ in trees.nodes:
            if switch == root:
                reached |= ranks
                break
            up = trees.nodes[switch].parents[stripe]
            assert up is not None, f"{switch} has no way up in stripe {stripe}"
            assert set(ranks) <= set(next(c.ranks for c in trees.nodes[up.switch].children if c.switch == switch))
            switch = up.switch
    # No member that a switch of this stripe waits for sends its blocks of this stripe elsewhere.
    for node in trees.nodes.values():
        if node.switch == root or (node.parents and node.parents[stripe] is not None):
            for child in node.children:
                if child.switch is not None:
                    up = trees.nodes[child.switch].parents[stripe]
                    assert up is not None
                    assert up.switch == node.switch
    return reached


@given(topologies(), st.data())
def test_random_topologies(topology: Topology, data: st.DataObject) -> None:
    members = data.draw(st.lists(st.sampled_from(list(topology.hosts)), min_size=1, max_size=12))
    trees = plan_trees(topology, members)
    check(topology, members, trees)
    graph = switch_graph(topology)
    homes = {topology.hosts[name].switch for name in members}

    def reach(name: str) -> int:
        return max(distances(graph, name)[home] for home in homes)

    best = min(reach(name) for name in topology.switches)
    for root in set(trees.roots):
        assert reach(root) == best
    assert plan_trees(topology, dict(enumerate(members))) == trees


@given(topologies(connected=False), st.data())
def test_switches_that_are_down_are_not_used(topology: Topology, data: st.DataObject) -> None:
    members = data.draw(st.lists(st.sampled_from(list(topology.hosts)), min_size=1, max_size=6))
    down = data.draw(st.sets(st.sampled_from(list(topology.switches))))
    homes = {topology.hosts[name].switch for name in members}
    graph = switch_graph(topology, down)
    joined = not homes & down and all(homes <= set(distances(graph, home)) for home in homes)
    if not joined:
        with pytest.raises(RejectedError) as caught:
            plan_trees(topology, members, down=down)
        assert any(home in str(caught.value) for home in homes)
        return
    trees = plan_trees(topology, members, down=down)
    check(topology, members, trees)
    assert not down & set(trees.nodes)


@given(topologies(), st.data())
def test_roots_that_are_asked_for(topology: Topology, data: st.DataObject) -> None:
    members = data.draw(st.lists(st.sampled_from(list(topology.hosts)), min_size=1, max_size=6))
    weights = data.draw(st.dictionaries(st.sampled_from(list(topology.switches)), st.integers(1, 9), min_size=1, max_size=3))
    try:
        trees = plan_trees(topology, members, weights=weights)
    except RejectedError:
        assert len(weights) > 1, "one root always can"
    else:
        check(topology, members, trees)
        assert set(trees.roots) == set(weights)


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 1000), min_size=1, max_size=MAX_STRIPES))
def test_shares_follow_the_weights(weights: dict[str, int]) -> None:
    roots = share(weights)
    count, total = len(roots), sum(weights.values())
    assert set(roots) == set(weights)
    assert count == 1 if len(weights) == 1 else count in (16, 32, 64)
    seats = Counter(roots)
    if count < MAX_STRIPES or min(weights.values()) * MAX_STRIPES >= total:
        assert all(abs(seats[name] - weights[name] * count / total) < 1 for name in weights)
    for name, wanted in seats.items():  # evenly: in any first part, no host is much ahead of its share
        for length in range(count + 1):
            assert abs(roots[:length].count(name) - wanted * length / count) < len(weights)


@pytest.mark.parametrize(
    ("weights", "seats"),
    [
        ({"a": 1, "b": 1}, {"a": 8, "b": 8}),
        ({"a": 2, "b": 1}, {"a": 11, "b": 5}),
        ({"a": 3, "b": 1}, {"a": 12, "b": 4}),
        ({"a": 100, "b": 1}, {"a": 63, "b": 1}),
        ({"a": 1000, "b": 1}, {"a": 63, "b": 1}),
        ({"a": 7}, {"a": 1}),
    ],
)
def test_shares(weights: dict[str, int], seats: dict[str, int]) -> None:
    assert Counter(share(weights)) == seats


def test_equal_shares_alternate() -> None:
    assert share({"a": 1, "b": 1}) == ("a", "b") * 8


def test_a_star() -> None:
    trees = plan_trees(star(3), ["h1", "h3", "h1"])
    (node,) = trees.nodes.values()
    assert (node.switch, node.role, node.height, trees.stripes) == ("s1", Role.ROOT, 0, 1)
    assert [(child.src_id, child.host, child.port) for child in node.children] == [
        (0, "h1", 1),
        (1, "h3", 3),
        (2, "h1", 1),
    ]


def test_ids_stay_when_the_host_of_an_evicted_rank_is_gone() -> None:
    topology = tree(2, 2)
    shape = Shape(("root",), {"root": {"leaf1": "root", "leaf2": "root"}}, ("leaf2", "leaf1", "leaf1", "leaf2"))
    assert source_ids(shape) == {"leaf1": {1: 0, 2: 1}, "leaf2": {0: 0, 3: 1}, "root": {"leaf2": 0, "leaf1": 1}}
    left = trees_of(topology, shape, {2: "h2", 3: "h4"})
    assert [(child.src_id, child.ranks) for child in left.nodes["leaf1"].children] == [(1, (2,))]
    assert [(child.src_id, child.ranks) for child in left.nodes["root"].children] == [(0, (3,)), (1, (2,))]


def test_a_job_of_more_ranks_than_a_switch_has_source_ids() -> None:
    """510 ranks on two leaves are two sources of the root, and 255 of each leaf. A leaf has no room for one more."""
    homes = [home for home in ("leaf1", "leaf2") for _ in range(255)]
    parents = {"root": {"leaf1": "root", "leaf2": "root"}}
    ids = source_ids(Shape(("root",), parents, tuple(homes)))
    assert ids["root"] == {"leaf1": 0, "leaf2": 1}
    assert ids["leaf2"][509] == 254
    with pytest.raises(RejectedError, match="switch leaf2 would have 256 sources; a switch has 255 at most"):
        source_ids(Shape(("root",), parents, (*homes, "leaf2")))


def test_two_levels() -> None:
    topology = tree(2, 2)
    trees = plan_trees(topology, ["h3", "h1", "h2", "h4"])
    assert list(trees.nodes) == ["root", "leaf1", "leaf2"]
    assert trees.roots == ("root",)
    assert [(child.switch, child.src_id, child.ranks) for child in trees.nodes["root"].children] == [
        ("leaf2", 0, (0, 3)),
        ("leaf1", 1, (1, 2)),
    ]
    assert [node.height for node in trees.nodes.values()] == [1, 0, 0]
    assert trees.edges == (("leaf1", "root"), ("leaf2", "root"))
    inside = plan_trees(topology, ["h1", "h2"])  # a job of one leaf does not leave it
    assert list(inside.nodes) == ["leaf1"]


def test_spines_share_the_blocks() -> None:
    topology = leaf_spine(2, 2, 2)
    trees = plan_trees(topology, ["h1", "h2", "h3", "h4"])
    assert trees.stripes == 16
    assert Counter(trees.roots) == {"spine1": 8, "spine2": 8}
    assert [up.switch for up in trees.nodes["leaf1"].parents if up] == list(trees.roots)
    weighted = plan_trees(topology, ["h1", "h2", "h3", "h4"], weights={"spine1": 3, "spine2": 1})
    assert Counter(weighted.roots) == {"spine1": 12, "spine2": 4}
    one = plan_trees(topology, ["h1", "h2", "h3", "h4"], down={"spine1"}, weights={"spine1": 3, "spine2": 1})
    assert one.roots == ("spine2",)
    none = plan_trees(topology, ["h1", "h3"], down={"spine1"}, weights={"spine1": 1})
    assert none.roots == ("spine2",)
    through_a_leaf = plan_trees(topology, ["h1", "h3"], weights={"leaf1": 1})
    assert list(through_a_leaf.nodes) == ["leaf1", "spine1", "leaf2"]
    with pytest.raises(RejectedError, match="the roots leaf1, spine1 cannot share"):
        plan_trees(topology, ["h1", "h3"], weights={"leaf1": 1, "spine1": 1})


def test_cores_of_a_fat_tree_share_the_blocks() -> None:
    topology = fat_tree(4)
    members = [f"h{n}" for n in range(1, 17)]
    trees = plan_trees(topology, members)
    check(topology, members, trees)
    assert Counter(trees.roots) == {"core1": 4, "core2": 4, "core3": 4, "core4": 4}
    assert len(trees.nodes) == 20
    edge, agg = trees.nodes["edge1-1"], trees.nodes["agg1-1"]
    assert [up.switch for up in edge.parents if up] == [{"1": "agg1-1", "2": "agg1-1"}.get(r[-1], "agg1-2") for r in trees.roots]
    assert [up and up.switch for up in agg.parents] == [root if root in ("core1", "core2") else None for root in trees.roots]
    pod = plan_trees(topology, ["h1", "h2", "h3", "h4"])  # one pod: its aggregation switches are the roots
    assert set(pod.roots) == {"agg1-1", "agg1-2"}


def test_members_on_a_candidate_root_make_it_the_only_one() -> None:
    ring = make(["s1", "s2", "s3"], {"h1": "s1", "h2": "s2", "h3": "s3"}, [("s1", "s2"), ("s2", "s3"), ("s3", "s1")])
    trees = plan_trees(ring, ["h1", "h2", "h3"])
    assert trees.roots == ("s1",)
    check(ring, ["h1", "h2", "h3"], trees)


@pytest.mark.parametrize(
    ("members", "down", "weights", "message"),
    [
        ([], set(), None, "there are no members"),
        (["h1", "h9"], set(), None, "the topology has no host h9"),
        (["h1", "h3"], {"leaf2"}, None, "switch leaf2 is down, and h3 cannot be reached without it"),
        (["h1", "h3"], {"spine1", "spine2"}, None, r"no path joins leaf1 \(with h1\) and leaf2 \(with h3\)"),
        (["h1"], {"spine1", "spine2"}, {"leaf2": 1}, "root leaf2 cannot be reached from leaf1"),
        (["h1"], set(), {"spine3": 1}, "the topology has no switch 'spine3' to be a root"),
        (["h1"], set(), {"spine1": 0}, "root spine1: a weight is a whole number from 1, not 0"),
    ],
)
def test_what_cannot_be(members: list[str], down: set[str], weights: dict[str, int] | None, message: str) -> None:
    with pytest.raises(RejectedError, match=message):
        plan_trees(leaf_spine(2, 2, 2), members, down=down, weights=weights)


def test_a_parent_waits_more_than_twice_as_long() -> None:
    assert [block_exp_us(50_000, height) for height in range(3)] == [50_000, 105_000, 215_000]
    assert block_exp_us(0, 2) == 0
