# SPDX-License-Identifier: MIT
"""Packets: netsum's own window over simulated switches; against flows, and what loss, queues, marks and slow switches do."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.frames import PREFIX_BYTES
from netsum.wire.schema import HEADER_BYTES
from netsum_planner.errors import PlanError
from netsum_planner.simulator.network import SimulatedNetwork, Wire
from netsum_planner.simulator.outcome import Counts, SimulationResult
from netsum_planner.simulator.packet_nodes import PacketHost
from netsum_planner.simulator.packets import Faults, PacketSimulation
from netsum_planner.simulator.run import Lateness, _packet_job, run_flows, run_packets
from netsum_planner.simulator.scenario import Failure, JobPlan, Scenario, Straggler
from netsum_planner.topologies import shapes
from netsum_planner.topologies.model import Topology

from tests.examples import one_in

RATE = Fraction(20, 8000)
SIZE = 256 << 10
CROSSING = (JobPlan(name="a", hosts=("h1", "h3"), size=SIZE), JobPlan(name="b", hosts=("h2", "h4"), size=SIZE))
"""Two jobs, in ``shapes.tree(2, 2)`` with a host on either side each."""
BLOCKS = 64


def run(topology: Topology, faults: Faults | None = None, *, seed: int = 0, **more: Any) -> SimulationResult:
    scenario = Scenario(**{"jobs": (JobPlan(size=SIZE, calls=2),), **more})
    return run_packets(topology, scenario, Wire(window=64), faults, seed=seed)


def counts(outcome: SimulationResult) -> Counts:
    assert outcome.counts is not None
    return outcome.counts


@pytest.mark.parametrize(
    "topology",
    [shapes.star(4, RATE), shapes.tree(2, 2, RATE, delay_us=50), shapes.leaf_spine(2, 3, 2, RATE)],
    ids=lambda each: each.name,
)
def test_packets_and_flows_agree_where_nothing_is_lost(topology: Topology) -> None:
    packets = run(topology)
    flows = run_flows(topology, Scenario(jobs=(JobPlan(size=SIZE, calls=2),)), Wire(window=64))
    assert packets.jobs[0].seconds == pytest.approx(flows.jobs[0].seconds, rel=1e-3)
    assert counts(packets).retransmissions == 0
    headers = PREFIX_BYTES + HEADER_BYTES
    opening = 2 * (256 + headers)
    assert {link.ends: link.nbytes for link in packets.links if link.ends[0] == "h1"} == {
        ("h1", topology.neighbors["h1"][0]): 2 * BLOCKS * (4096 + headers) + opening
    }


def test_no_link_carries_more_than_its_rate_allows() -> None:
    """Retransmissions fill the queue of the narrow link, and some are still in it when the last call ends."""
    fabric = shapes.leaf_spine(2, 2, 2, RATE)
    narrow = [replace(each, rate=each.rate / 4) if each.target == "spine2" else each for each in fabric.links]
    outcome = run(replace(fabric, links=tuple(narrow)), Faults(loss=0.001), jobs=(JobPlan(size=1 << 20),))
    assert counts(outcome).retransmissions > 0
    assert max(link.share for link in outcome.links) <= 1


def test_hosts_have_netsums_own_window() -> None:
    assert PacketHost.__init__.__globals__["SwitchEndpoint"] is SwitchEndpoint


@pytest.mark.parametrize(
    "topology", [shapes.star(3, RATE), shapes.tree(2, 2, RATE), shapes.leaf_spine(2, 2, 2, RATE)], ids=lambda t: t.name
)
def test_what_is_lost_is_sent_again(topology: Topology) -> None:
    """On every link: of hosts, between switches, up and down."""
    found = run(topology, Faults(loss=0.05), seed=5)
    assert counts(found).lost > 20
    assert counts(found).retransmissions > 20
    assert found.jobs[0].mean > run(topology).jobs[0].mean
    assert found.jobs == run(topology, Faults(loss=0.05), seed=5).jobs
    assert found.jobs != run(topology, Faults(loss=0.05), seed=6).jobs


@one_in(10)
@given(st.floats(0, 0.2), st.integers(0, 1000), st.sampled_from([1, 3, 8, 64]))
def test_every_call_ends_whatever_is_lost(loss: float, seed: int, window: int) -> None:
    scenario = Scenario(jobs=(JobPlan(size=40_000, calls=3),))
    found = run_packets(shapes.tree(2, 2, RATE), scenario, Wire(window=window), Faults(loss=loss), seed=seed)
    assert len(found.jobs[0].seconds) == 3


def test_a_slow_switch_sets_the_pace() -> None:
    """4 hosts' packets of 64 blocks, a thousand a second."""
    found = run(shapes.star(4, 1), Faults(switch_pps=1000))
    assert found.jobs[0].seconds[0] == pytest.approx(4 * BLOCKS / 1000, rel=0.05)


def test_a_short_queue_drops_and_a_long_one_marks() -> None:
    """Two jobs share the link between the switches."""
    topology = shapes.tree(2, 2, RATE)
    short = counts(run(topology, Faults(queue=20_000), jobs=CROSSING))
    assert short.dropped > 0
    assert short.retransmissions > 0
    assert short.longest_queue >= 20_000
    long = counts(run(topology, Faults(ecn=20_000), jobs=CROSSING))
    assert long.dropped == 0
    assert long.marked > 0


def test_jobs_share_the_link_that_they_have_in_common() -> None:
    topology = shapes.tree(2, 2, RATE)
    both, alone = run(topology, jobs=CROSSING), run(topology, jobs=CROSSING[:1])
    for job in both.jobs:
        assert job.mean == pytest.approx(2 * alone.jobs[0].mean, rel=0.1)


def test_a_job_gets_another_tree_when_a_link_fails() -> None:
    topology = shapes.leaf_spine(2, 2, 2, RATE)
    failures = (Failure(link=("leaf1", "spine1"), at_ms=30, found_ms=200),)
    found, plain = run(topology, failures=failures), run(topology)
    assert found.jobs[0].ends[-1] > plain.jobs[0].ends[-1] + 0.2
    ends = {link.ends: link.nbytes for link in found.links}
    assert ends["leaf1", "spine2"] > 1.4 * ends["leaf1", "spine1"]
    back = (Failure(link=("leaf1", "spine1"), at_ms=30, until_ms=90, found_ms=500),)
    assert run(topology, failures=back).jobs[0].ends[-1] > plain.jobs[0].ends[-1]


def test_a_job_that_cannot_go_on_is_named() -> None:
    class Deaf(PacketSimulation):
        def _at_host(self, name: str) -> Any:  # noqa: ARG002
            return lambda _frame: None

    job = JobPlan(name="stuck", size=4096)
    topology = shapes.star(2, RATE)
    packets = _packet_job(job, topology.hosts, Wire(), Lateness(Scenario(jobs=(job,)), 0))
    with pytest.raises(PlanError, match="job stuck waits for ever"):
        Deaf(SimulatedNetwork(topology), Faults(), [packets]).run()


def test_a_straggler_holds_up_both_alike() -> None:
    late = (Straggler(host="h2", late_ms=40),)
    topology = shapes.star(4, RATE)
    packets = run(topology, stragglers=late)
    flows = run_flows(topology, Scenario(jobs=(JobPlan(size=SIZE, calls=2),), stragglers=late), Wire(window=64))
    assert packets.jobs[0].ends == pytest.approx(flows.jobs[0].ends, rel=2e-3)


def test_host_algorithms_are_flows() -> None:
    with pytest.raises(PlanError, match="in_network alone"):
        run(shapes.star(2, RATE), jobs=(JobPlan(algorithm="ring"),))


def test_a_job_has_255_members_at_most() -> None:
    with pytest.raises(PlanError, match="255 members at most"):
        run(shapes.star(256, RATE))
