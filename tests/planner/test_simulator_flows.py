# SPDX-License-Identifier: MIT
"""Flows: shares and times that are known by hand, and what netsum's own plans send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.frames import PREFIX_BYTES
from netsum.peers.wire import RECORD
from netsum.wire.schema import HEADER_BYTES
from netsum_planner.errors import PlanError
from netsum_planner.simulator import collectives
from netsum_planner.simulator.flows import Change, max_min, simulate
from netsum_planner.simulator.network import SimulatedNetwork, Wire
from netsum_planner.simulator.outcome import SimulationResult
from netsum_planner.simulator.run import run_flows
from netsum_planner.simulator.scenario import Failure, JobPlan, Scenario, Straggler
from netsum_planner.simulator.schedules import Schedule
from netsum_planner.topologies import shapes
from netsum_planner.topologies.model import Topology, wire

from tests.examples import one_in

RATE = Fraction(20, 8000)
"""20 Mbit/s, in GB/s."""
BYTES = 2.5e6
"""The same in bytes a second."""
HEADERS = PREFIX_BYTES + HEADER_BYTES
PACKET, OPENING = 4096 + HEADERS, 256 + HEADERS


def shares(capacity: Sequence[float], flows: Sequence[Sequence[int]], caps: Sequence[float] | None = None) -> list[float]:
    lengths = [len(links) for links in flows]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    links = np.concatenate([np.array(each, np.int64) for each in flows])
    found = max_min(np.array(capacity, float), starts, links, np.array(caps or [np.inf] * len(flows)))
    return [float(rate) for rate in found]


def test_shares_by_hand() -> None:
    assert shares([10, 4], [[0, 1], [0], [1]]) == [2, 8, 2]  # Bertsekas and Gallager: a long flow and two short ones
    assert shares([10, 4], [[0, 1], [0], [1]], [1, 5, np.inf]) == [1, 5, 3]
    assert shares([6], [[0, 0], [0]]) == [2, 2]  # twice over the same link counts twice
    assert shares([0, 5], [[0, 1], [1]]) == [0, 5]


@given(st.data())
def test_every_flow_has_a_link_that_binds_it(data: st.DataObject) -> None:
    """The definition of max-min: a full link on which no other flow has more."""
    links = data.draw(st.integers(1, 6))
    capacity = data.draw(st.lists(st.integers(1, 100), min_size=links, max_size=links))
    path = st.lists(st.integers(0, links - 1), min_size=1, max_size=links, unique=True)
    flows = data.draw(st.lists(path, min_size=1, max_size=12))
    found = shares(capacity, flows)
    used = [sum(rate for rate, way in zip(found, flows, strict=True) if link in way) for link in range(links)]
    assert all(load <= room * (1 + 1e-6) for load, room in zip(used, capacity, strict=True))
    for rate, way in zip(found, flows, strict=True):
        full = [link for link in way if used[link] >= capacity[link] * (1 - 1e-6)]
        assert any(
            rate >= max(other for other, theirs in zip(found, flows, strict=True) if link in theirs) * (1 - 1e-6) for link in full
        )


def two_hosts(spines: int = 2) -> Topology:
    return shapes.leaf_spine(spines, 2, 1, Fraction(1, 10**9))  # a byte a second


def test_messages_share_a_link_or_follow_each_other() -> None:
    for lanes, ends in (((0, 1), [2, 3]), ((0, 0), [1, 3])):
        schedule = Schedule(SimulatedNetwork(two_hosts()))
        sent = [schedule.send("h1", "h2", size, (), lane=lane) for size, lane in zip((1, 2), lanes, strict=True)]
        after = schedule.wait([sent[0]], 10.0)
        found = simulate(schedule).arrived
        assert found[sent].tolist() == pytest.approx(ends)
        assert found[after] == pytest.approx(ends[0] + 10)


def test_a_delay_passes_once_a_message_has_left() -> None:
    network = SimulatedNetwork(shapes.star(2, Fraction(1, 10**9), delay_us=500_000))
    schedule = Schedule(network)
    sent = schedule.send("h1", "h2", 3, ())
    assert simulate(schedule).arrived[sent] == pytest.approx(3 + 2 * 0.5)


def test_a_link_that_fails_is_avoided_once_that_is_known() -> None:
    network = SimulatedNetwork(two_hosts())
    first = network.pairs[network.path("h1", "h2")[1]]
    schedule = Schedule(network)
    sent = schedule.send("h1", "h2", 10, ())
    link = (network.number[first],)
    found = simulate(schedule, [Change(4.0, link, True), Change(6.0, link, True, reroute=True)])
    assert found.arrived[sent] == pytest.approx(12)  # 4 s of it are sent, 2 s nothing is, and 6 s the rest
    back = simulate(schedule, [Change(0.0, link, True), Change(5.0, link, False)])
    assert back.arrived[sent] == pytest.approx(10)  # the path no longer takes that link


def test_without_another_path_there_is_an_error() -> None:
    scenario = Scenario(jobs=(JobPlan(algorithm="ring"),), failures=(Failure(link=("leaf1", "spine1"), at_ms=0, found_ms=1),))
    with pytest.raises(PlanError, match="no path from h1 to h2"):
        run_flows(two_hosts(1), scenario)


def one(topology: Topology, algorithm: str, size: int, **more: object) -> SimulationResult:
    return run_flows(topology, Scenario(jobs=(JobPlan(algorithm=algorithm, size=size, **more),)))  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [2, 4, 16])
def test_through_a_switch_an_array_goes_once_each_way(workers: int) -> None:
    """The opening goes there and back; then all blocks leave a host, and the last one still has to come down."""
    found = one(shapes.star(workers, RATE), "in_network", 1 << 20)
    assert found.jobs[0].mean == pytest.approx((2 * OPENING + 256 * PACKET + PACKET) / BYTES, rel=1e-9)
    assert {link.nbytes for link in found.links} == {256 * PACKET}


def test_through_two_levels_a_packet_is_stored_and_forwarded_more_often() -> None:
    found = one(shapes.tree(2, 2, RATE), "in_network", 1 << 20)
    assert found.jobs[0].mean == pytest.approx((4 * OPENING + 256 * PACKET + 3 * PACKET) / BYTES, rel=1e-9)


def test_a_small_window_bounds_the_rate() -> None:
    """A window of one block: each waits for the result of the one before."""
    topology = shapes.star(2, RATE)
    found = run_flows(topology, Scenario(jobs=(JobPlan(size=64 * 4096),)), Wire(window=1))
    assert found.jobs[0].mean == pytest.approx((2 * OPENING + 64 * 2 * PACKET) / BYTES, rel=0.02)


def test_a_ring_takes_2_n_minus_1_steps() -> None:
    """64 blocks between 4 ranks: 6 steps of 16 blocks, after 6 of the opening."""
    size = (66 + 16 * (4096 + RECORD.itemsize)) * 9014 / 8948
    opening = (66 + 64 * (1 + RECORD.itemsize / 4096)) * 9014 / 8948
    found = one(shapes.star(4, RATE), "ring", 64 * 4096)
    assert found.jobs[0].mean == pytest.approx(6 * (size + opening) / BYTES, rel=1e-6)


@pytest.mark.parametrize(("algorithm", "most"), [("ring", 1.5), ("halving_doubling", 1.5), ("double_binary_tree", 2.5)])
def test_host_algorithms_on_a_star_take_what_their_traffic_takes(algorithm: str, most: float) -> None:
    """1.5 times the array leaves each of 4 hosts; in two trees, some wait for others besides."""
    seconds = one(shapes.star(4, RATE), algorithm, 1 << 20).jobs[0].mean
    assert 1.5 <= seconds / ((1 << 20) / BYTES) <= most * 1.05


@pytest.mark.parametrize(
    ("topology", "algorithm"),
    [
        (shapes.star(8, RATE), "ring"),
        (shapes.leaf_spine(2, 4, 2, RATE), "ring"),
        (shapes.star(8, RATE), "halving_doubling"),  # where paths collide, batches that overlap are faster than one
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_large_calls_are_simulated_like_small_ones(topology: Topology, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch, and a ring as one flow, against netsum's own plans batch by batch."""
    own = one(topology, algorithm, 8 << 20)
    monkeypatch.setattr(collectives, "MOST", 0)
    large = one(topology, algorithm, 8 << 20)
    assert large.events < own.events
    assert large.jobs[0].mean == pytest.approx(own.jobs[0].mean, rel=0.05)
    for mine, theirs in zip(sorted(large.links, key=str), sorted(own.links, key=str), strict=True):
        assert mine.nbytes == pytest.approx(theirs.nbytes, rel=0.01)


def test_jobs_share_what_they_have_in_common() -> None:
    """Both jobs go up the leaf's only link; alone, each is as fast as its hosts' links."""
    topology = shapes.tree(2, 2, RATE)
    jobs = (JobPlan(name="a", hosts=("h1", "h3")), JobPlan(name="b", hosts=("h2", "h4")))
    both = run_flows(topology, Scenario(jobs=jobs))
    alone = run_flows(topology, Scenario(jobs=jobs[:1]))
    for job in both.jobs:
        assert job.mean == pytest.approx(2 * alone.jobs[0].mean, rel=0.02)


def test_every_rank_waits_for_the_straggler() -> None:
    jobs = (JobPlan(calls=3, compute_ms=50),)
    topology = shapes.star(4, RATE)
    plain = run_flows(topology, Scenario(jobs=jobs)).jobs[0]
    late = run_flows(topology, Scenario(jobs=jobs, stragglers=(Straggler(host="h2", late_ms=30),))).jobs[0]
    assert late.ends[-1] == pytest.approx(plain.ends[-1] + 3 * 0.03)
    assert late.seconds[0] == pytest.approx(plain.seconds[0] + 0.03)
    sometimes = Scenario(jobs=jobs, stragglers=(Straggler(host="h2", late_ms=30, probability=0.5),))
    ends = {run_flows(topology, sometimes, seed=seed).jobs[0].ends[-1] for seed in range(8)}
    assert min(ends) < max(ends) <= late.ends[-1] * (1 + 1e-9)
    again = [run_flows(topology, sometimes, seed=3).jobs for _ in range(2)]
    assert again[0] == again[1]


def test_switches_that_only_forward_are_named() -> None:
    with pytest.raises(PlanError, match="no switch that sums"):
        one(shapes.star(4, RATE).only_forwarding(), "in_network", 4096)
    mixed = Topology(
        "mixed",
        ("a", "b", "c"),
        {"s1": False, "s2": True},
        (*wire("a", "s1", 1), *wire("b", "s1", 1), *wire("s1", "s2", 1), *wire("c", "s2", 1)),
    )
    with pytest.raises(PlanError, match="s1 joins 2 branches but does not sum"):
        one(mixed, "in_network", 4096)


def test_paths_are_shortest_and_those_to_neighbors_differ() -> None:
    network = SimulatedNetwork(shapes.fat_tree(4, 1))
    taken = set()
    for target in range(13, 17):
        path = network.path("h1", f"h{target}")
        assert len(path) == 6
        nodes = [network.pairs[link] for link in path]
        assert all(one[1] == other[0] for one, other in pairwise(nodes))
        taken.add(nodes[2][1])
    assert len(taken) == 4  # all cores
    network.set_down([network.number[nodes[2]]], down=True)
    assert network.pairs[network.path("h1", "h16")[2]] != nodes[2]
    network.set_down([network.number[nodes[2]]], down=False)
    assert network.pairs[network.path("h1", "h16")[2]] == nodes[2]


def test_paths_that_a_file_names_are_taken() -> None:
    topology = shapes.leaf_spine(2, 2, 1, RATE)
    usual = SimulatedNetwork(topology)
    middle = usual.pairs[usual.path("h1", "h2")[1]][1]
    other = next(name for name in ("spine1", "spine2") if name != middle)
    told = replace(topology, routes={("h1", "h2"): ("h1", "leaf1", other, "leaf2", "h2")})
    network = SimulatedNetwork(told)
    assert network.pairs[network.path("h1", "h2")[1]] == ("leaf1", other)
    network.set_down([network.number["leaf1", other]], down=True)
    assert network.pairs[network.path("h1", "h2")[1]] == ("leaf1", middle)


@one_in(5)
@given(st.sampled_from(["in_network", "ring", "halving_doubling", "parameter_server"]), st.integers(0, 100))
def test_no_link_carries_more_than_it_can(algorithm: str, seed: int) -> None:
    topology = shapes.leaf_spine(2, 2, 2, RATE)
    found = run_flows(topology, Scenario(jobs=(JobPlan(algorithm=algorithm, size=1 << 18),)), seed=seed)
    assert found.links
    assert all(0 < link.share <= 1 + 1e-9 for link in found.links)


@pytest.mark.full
def test_4096_workers_on_a_fat_tree() -> None:
    topology = shapes.fat_tree(32, Fraction(25, 2), delay_us=1.0)
    hosts = topology.hosts[:4096]
    found = {name: one(topology, name, 256 << 20, hosts=hosts) for name in ("in_network", "ring")}
    line = (256 << 20) / 12.5e9
    assert found["in_network"].jobs[0].mean == pytest.approx(line * PACKET / 4096, rel=0.01)
    assert found["ring"].jobs[0].mean > 2 * line
    assert max(each.peak_mb for each in found.values()) < 4096
