# SPDX-License-Identifier: MIT
"""Topologies: builders, subsets, and the files of others."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from netsum_controller.config import topologies as installed
from netsum_controller.config.topology import Topology as Installed
from netsum_controller.errors import InputError
from netsum_planner.errors import PlanError
from netsum_planner.topologies import files, shapes
from netsum_planner.topologies.files import read_topology
from netsum_planner.topologies.model import Link, Topology


@pytest.mark.parametrize(
    ("made", "same"),
    [
        (shapes.star(4, Fraction(1, 8)), installed.star(4, rate_mbps=1000)),
        (shapes.tree(2, 3, Fraction(1, 8)), installed.tree(2, 3, rate_mbps=1000)),
        (shapes.leaf_spine(2, 3, 4, Fraction(1, 8)), installed.leaf_spine(2, 3, 4, rate_mbps=1000)),
        (shapes.fat_tree(4, Fraction(1, 8)), installed.fat_tree(4, rate_mbps=1000)),
    ],
    ids=lambda topology: topology.name,
)
def test_shapes_are_those_that_the_controller_makes(made: Topology, same: Installed, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(installed.to_lines(same))
    read = read_topology(path)
    assert read.rates == made.rates
    assert (read.name, read.hosts, read.switches) == (made.name, made.hosts, made.switches)


@pytest.mark.parametrize(
    ("topology", "hosts", "links_of_a_host", "rate_of_a_host"),
    [
        (shapes.dgx1p(), 8, 4, 80),
        (shapes.dgx1v(), 8, 4, 150),
        (shapes.a100(2), 16, 2, 325),
        (shapes.torus((4, 4), 10), 16, 4, 40),
        (shapes.torus((2, 3, 4), 10), 24, 5, 50),
        (shapes.bigraph(4, 10), 8, 1, 10),
    ],
    ids=lambda value: value.name if isinstance(value, Topology) else "",
)
def test_every_host_has_its_links(topology: Topology, hosts: int, links_of_a_host: int, rate_of_a_host: int) -> None:
    assert len(topology.hosts) == hosts
    topology.require_connected()
    for host in topology.hosts:
        to = {source: rate for (source, target), rate in topology.rates.items() if target == host}
        assert (len(to), sum(to.values())) == (links_of_a_host, rate_of_a_host)
        assert to == {target: rate for (source, target), rate in topology.rates.items() if source == host}


def test_a_subset_leaves_the_other_hosts_out_and_says_what_is_cut_off() -> None:
    assert shapes.dgx1v().subset(["gpu3", "gpu0", "gpu7"]).rates == {
        ("gpu0", "gpu3"): 50,
        ("gpu3", "gpu0"): 50,
        ("gpu3", "gpu7"): 25,
        ("gpu7", "gpu3"): 25,
    }
    with pytest.raises(PlanError, match="no path from gpu0 to gpu7"):
        shapes.dgx1v().subset(["gpu0", "gpu7"]).require_connected()
    with pytest.raises(PlanError, match="has no host gpu8"):
        shapes.dgx1v().subset(["gpu0", "gpu8"])


def test_what_is_down_is_left_out() -> None:
    whole = shapes.leaf_spine(2, 2, 1, 10)
    left = whole.without(["spine1", ("leaf2", "spine2")])
    assert {*whole.rates} - {*left.rates} == {
        (one, other)
        for ends in (("leaf1", "spine1"), ("leaf2", "spine1"), ("leaf2", "spine2"))
        for one, other in (ends, ends[::-1])
    }
    with pytest.raises(PlanError, match="no path from h1 to h2"):
        left.require_connected()
    with pytest.raises(PlanError, match="no node or link h1 - spine1"):
        whole.without([("h1", "spine1")])


def test_networkx_gets_the_same_graph() -> None:
    topology = shapes.star(3, 10)
    graph = topology.graph()
    assert {(one, other): data["rate"] for one, other, data in graph.edges(data=True)} == topology.rates
    assert graph.nodes["s1"]["kind"] == "sums"


OWN = """\
name: uneven
hosts: [h1, h2]
switches:
  s1: {sums: true}
links:
  - {from: h1, to: s1, rate_GBps: 0.1}
  - {from: h2, to: s1, rate_mbps: 8000, delay_us: 1.5, one_way: true}
  - {from: s1, to: h2, rate_GBps: 2, one_way: true}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_own_file(tmp_path: Path) -> None:
    assert read_topology(write(tmp_path, "own.yaml", OWN)) == Topology(
        "uneven",
        ("h1", "h2"),
        {"s1": True},
        (
            Link("h1", "s1", Fraction(1, 10)),
            Link("s1", "h1", Fraction(1, 10)),
            Link("h2", "s1", Fraction(1), 1.5),
            Link("s1", "h2", Fraction(2)),
        ),
    )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("from: h1", "from: h9", "own.yaml:6: links.0.from: there is no host or switch 'h9'"),
        ("rate_GBps: 0.1", "rate_GBps: 0", "own.yaml:6: links.0.rate_GBps: must be more than 0"),
        ("rate_GBps: 0.1", "delay_us: 1", "own.yaml:6: links.0: needs either rate_GBps or rate_mbps"),
        ("sums: true", "adds: true", "own.yaml:4: switches.s1.adds: there is no such setting"),
        ("[h1, h2]", "[h1, h2, s1]", "own.yaml:2: hosts.2: s1 is already the name of another node"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        read_topology(write(tmp_path, "own.yaml", OWN.replace(old, new)))
    assert told in str(caught.value)


def test_a_controllers_link_without_a_rate_takes_the_one_given(tmp_path: Path) -> None:
    path = write(tmp_path, "star.yaml", installed.to_lines(installed.star(2)))
    assert set(read_topology(path, rate_mbps=8000).rates.values()) == {1}
    with pytest.raises(InputError, match=r"hosts\.h1 has no rate_mbps"):
        read_topology(path)
    with pytest.raises(InputError, match=r"only TACCL's \.json describes a box"):
        read_topology(path, rate_mbps=8000, boxes=2)


ASTRA = """\
topology: [ Ring, FullyConnected, Switch ]
npus_count: [ 2, 3, 4 ]
bandwidth: [ 200.0, 100.0, 50.0 ]
latency: [ 50.0, 500.0, 2000.0 ]
"""


def test_astra_sim(tmp_path: Path) -> None:
    made = read_topology(write(tmp_path, "astra.yml", ASTRA))
    assert (len(made.hosts), len(made.switches)) == (24, 6)
    # npu0 is at (0, 0, 0), npu1 at (1, 0, 0), npu2 at (0, 1, 0), npu6 at (0, 0, 1).
    assert made.neighbors["npu0"] == ["npu1", "npu2", "npu4", "switch3-0"]
    assert [made.rates["npu0", to] for to in made.neighbors["npu0"]] == [200, 100, 100, 50]
    assert made.neighbors["switch3-0"] == ["npu0", "npu6", "npu12", "npu18"]
    assert {link.delay_us for link in made.links if link.target == "switch3-0"} == {2.0}
    with pytest.raises(InputError, match=r"astra.yml:2: npus_count: has 2 entries, and topology has 3"):
        read_topology(write(tmp_path, "astra.yml", ASTRA.replace("2, 3, 4", "2, 3")))
    with pytest.raises(InputError, match=r"astra.yml:1: topology.1: must be 'Ring', 'FullyConnected' or 'Switch'"):
        read_topology(write(tmp_path, "astra.yml", ASTRA.replace("FullyConnected", "Mesh")))


HTSIM = """\
# three tiers, two links to the same core
Nodes 8
Tiers 3
Podsize 4
Tier 0
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 200
Radix_Down 2
Radix_Up 4
Downlink_Latency_ns 1000
Bundle 1
Tier 2
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
Bundle 2
"""


def test_htsim(tmp_path: Path) -> None:
    made = read_topology(write(tmp_path, "three.topo", HTSIM))
    assert set(made.rates.values()) == {25}
    assert set(made.nodes) == set(shapes.fat_tree(4, 25).nodes) - {f"h{n}" for n in range(9, 17)} - {
        f"{kind}{pod}-{n}" for kind in ("edge", "agg") for pod in (3, 4) for n in (1, 2)
    }
    assert set(made.neighbors["agg1-2"]) == {"edge1-1", "edge1-2", "core2", "core4"}
    assert made.links[0].delay_us == 1.0


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("Tiers 3", "Tiers three", "three.topo:3: Tiers needs a whole number"),
        ("Radix_Down 4", "Radix_Down 6", "three.topo:18: radix_down is 6, and what is below takes 4"),
        ("Radix_Up 4\n", "", "three.topo: tier 1 lacks radix_up"),
        ("Podsize 4", "Podsize 3", "three.topo: Nodes and Podsize: 8 is not a multiple of 3"),
        ("Bundle 2", "Bunch 2", "three.topo:20: Bunch is no setting of tier 2"),
    ],
)
def test_htsim_errors(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        read_topology(write(tmp_path, "three.topo", HTSIM.replace(old, new)))
    assert str(caught.value) == str(tmp_path / told)


TACCL = {"name": "box", "gpus_per_node": 8, "alpha": 0.5, "remote_invbw": 100, "remote_alpha": 3, "nics_per_node": 4}


def taccl(folder: Path, boxes: int = 1, **more: Any) -> Topology:
    return read_topology(write(folder, "box.json", json.dumps({**TACCL, **more})), boxes=boxes)


def test_taccl(tmp_path: Path) -> None:
    ndv2 = taccl(tmp_path, node_invbws_list=[20, 40])
    assert {*ndv2.rates.values()} == {50, 25}
    for host in ndv2.hosts:  # as in a DGX-1 with V100, which it is
        assert sum(rate for (_, target), rate in ndv2.rates.items() if target == host) == 150
    around = taccl(tmp_path, boxes=2, node_invbws_list=[8])
    assert around.rates["box0-gpu0", "box0-switch"] == 125
    assert around.rates["box1-nic3", "remote"] == around.rates["box1-gpu7", "box1-nic3"] == 10
    around.require_connected()
    # A row is a receiver: only GPU 1 sends to GPU 0.
    given = taccl(tmp_path, gpus_per_node=2, links=[[0, 2], [1, 0]], invbws=[[0, 50], [50, 0]])
    assert given.rates == {("gpu1", "gpu0"): 40, ("gpu0", "gpu1"): 20}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "node_invbws_list is missing"),
        ({"node_invbws_list": [1, 2, 3]}, "node_invbws_list must have one number, or two"),
        ({"links": [[0, 1]], "invbws": [[1, 1]]}, "links must have 8 rows of 8 numbers"),
        ({"node_invbws_list": ["fast"]}, "node_invbws_list must be a number from 0"),
    ],
)
def test_taccl_errors(tmp_path: Path, more: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        taccl(tmp_path, **more)


def test_a_number_is_what_was_written() -> None:
    assert files.exact(0.1) == Fraction(1, 10)
