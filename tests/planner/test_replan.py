# SPDX-License-Identifier: MIT
"""Plans for what is left of a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from netsum.peers.schedule_files import load_plan, parse_plan
from netsum_controller.config.topologies import leaf_spine
from netsum_controller.config.topologies import tree as two_levels
from netsum_controller.config.topology import Topology as Configured
from netsum_controller.planning.replan import Replanned
from netsum_planner.topologies import shapes
from netsum_planner.topologies.files import from_network, installed, to_network
from netsum_planner.topologies.model import Topology
from netsum_planner.trees.plan import plan_allreduce
from netsum_planner.trees.stripes import replan

from tests.planner.commands import netsum

HOSTS = frozenset({"h1", "h2", "h3", "h4"})


def configured() -> Configured:
    """Three spines, two leaves; leaf2's link to spine2 has half the rate of the others."""
    made = leaf_spine(3, 2, 2)
    rates = {name: {"rate_mbps": 400 if name == "leaf2_spine2" else 800} for name in made.links}
    return made.filled(hosts={name: {"rate_mbps": 4000} for name in made.hosts}, links=rates)


def uneven() -> Topology:
    return installed(configured())


@pytest.mark.parametrize("topology", [uneven(), shapes.a100()], ids=str)
def test_a_plan_carries_its_network(topology: Topology) -> None:
    plan = parse_plan(json.dumps(plan_allreduce(topology).to_json()))
    back = from_network(plan.network)
    whole = (topology.hosts, topology.switches, topology.rates, topology.routes)
    assert (back.hosts, back.switches, back.rates, back.routes) == whole


@pytest.mark.parametrize(
    ("down", "roots", "rate"),
    [
        ({("leaf2", "spine1")}, {"spine2": 1, "spine3": 2}, 16 / 11),
        ({("spine1", "leaf2"), ("no", "such")}, {"spine2": 1, "spine3": 2}, 16 / 11),
        ({"spine2"}, {"spine1": 1, "spine3": 1}, 2),
        ({"spine1", "spine2"}, {"spine3": 1}, 1),
        ({"spine1", "spine2", ("leaf1", "spine3")}, {}, 0),
    ],
)
def test_roots_for_what_is_left(down: set[str | tuple[str, str]], roots: dict[str, int], rate: float) -> None:
    found = replan(json.dumps(to_network(uneven())), HOSTS, frozenset(down))
    assert found.roots == roots
    # In units of 100 MB/s. Of the 16 stripes, spine1 has 7 before, and 11 of those of two roots.
    assert found.rate == pytest.approx(rate / 10)
    assert found.before == pytest.approx(1.6 / 7)


def test_a_planner_refuses_a_network_that_is_none() -> None:
    network = json.dumps(to_network(uneven()))
    nothing = Replanned({}, 0.0, 0.0)
    assert replan(network, frozenset({"h1", "h9"}), frozenset({"spine1"})) == nothing
    assert replan("{}", HOSTS, frozenset({"spine1"})) == nothing


def test_what_it_costs_is_told(tmp_path: Path) -> None:
    file = tmp_path / "net.yaml"
    file.write_text(configured().to_yaml())
    out = tmp_path / "left.json"
    words = ("plan", "schedule", file, "--down", "leaf2,spine1")
    done = netsum(*words, "-o", out)
    assert "roots: spine2 1, spine3 2" in done.stdout
    assert "6875.00 instead of 4375.00 ms in the network" in done.stdout
    told = json.loads(netsum(*words).stdout)
    assert told == json.loads(out.read_text())
    assert told["whole"]["in_network_GBps"] == pytest.approx(1 / 4.375)
    assert load_plan(str(out)).roots == {"spine2": 1, "spine3": 2}
    assert "spine1" in from_network(load_plan(str(out)).network).switches
    assert "whole" not in json.loads(netsum(*words[:3]).stdout)


def test_a_tree_has_nothing_to_fall_back_on() -> None:
    made = two_levels(2, 2)
    rates = {"rate_mbps": 800}
    known = installed(made.filled(hosts=dict.fromkeys(made.hosts, rates), links=dict.fromkeys(made.links, rates)))
    gone = next(link.switches for link in made.links.values())
    assert replan(json.dumps(to_network(known)), frozenset(made.hosts), frozenset({gone})).roots == {}
