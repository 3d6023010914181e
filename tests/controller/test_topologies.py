# SPDX-License-Identifier: MIT
"""Topologies of the usual shapes, and files with links."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from hypothesis import given
from netsum_controller.cli import cli
from netsum_controller.config.topologies import fat_tree, leaf_spine, star, to_lines, tree
from netsum_controller.config.topology import Neighbor, Topology, load_topology, parse_topology
from netsum_controller.entries import ForwardEntry, SourceGuardEntry
from netsum_controller.errors import InputError
from netsum_controller.planning.allocation import ip_to_int
from netsum_controller.planning.items import switch_items
from netsum_controller.planning.trees import distances, switch_graph

from tests.controller.graphs import topologies
from tests.controller.test_files import refusal

MININET = Path(__file__).parents[2] / "mininet" / "topologies"

LINKED = """\
name: pair
switches:
  s1: {device_id: 1, ip: 10.0.0.254, mac: "02:6e:73:00:00:fe"}
  s2: {device_id: 2, ip: 10.0.0.253, mac: "02:6e:73:00:00:fd"}
hosts:
  h1: {ip: 10.0.0.1, mac: "02:6e:73:00:00:01", switch: s1, port: 1}
  h2: {ip: 10.0.0.2, mac: "02:6e:73:00:00:02", switch: s2, port: 1}
links:
  l1: {switches: [s1, s2], ports: [2, 3], mtu: 9000, rate_mbps: 1000, frames: ["127.0.0.1:41", "127.0.0.1:42"]}
  l2: {switches: [s2, s1], ports: [4, 5]}
"""


def test_links() -> None:
    topology = parse_topology(LINKED)
    assert topology.neighbors("s1") == {2: Neighbor("s2", 3, "l1"), 5: Neighbor("s2", 4, "l2")}
    assert topology.neighbors("s2") == {3: Neighbor("s1", 2, "l1"), 4: Neighbor("s1", 5, "l2")}
    assert (topology.links["l1"].mtu, topology.links["l2"].mtu, topology.links["l2"].frames) == (9000, 1500, None)
    filled = topology.filled(links={"l2": {"frames": ("127.0.0.1:43", "127.0.0.1:44")}})
    assert filled.links["l2"].frames == ("127.0.0.1:43", "127.0.0.1:44")
    assert filled.links["l1"] == topology.links["l1"]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("[2, 3]", "[1, 3]", "9: links.l1.ports.0: port 1 of s1 is already that of hosts.h1"),
        ("[4, 5]", "[3, 5]", "10: links.l2.ports.0: port 3 of s2 is already that of links.l1"),
        ("[4, 5]", "[4, 2]", "10: links.l2.ports.1: port 2 of s1 is already that of links.l1"),
        (
            "[s2, s1]",
            "[s2, s2]",
            "10: links.l2.switches: a link joins two different switches, and both of these are s2",
        ),
        ("[s2, s1]", "[s2, s9]", "10: links.l2.switches.1: there is no switch 's9' (there are: s1, s2)"),
        ("[s2, s1]", "[s2]", "10: links.l2.switches"),
        ("[4, 5]", "[4, 5, 6]", "10: links.l2.ports"),
        ("[4, 5]", '[4, "5"]', "10: links.l2.ports.1: must be a whole number (it is '5')"),
        ("[4, 5]", "[4, 510]", "10: links.l2.ports.1: must be 509 or less (it is 510)"),
        ("ports: [4, 5]", "port: 4", "10: links.l2"),
        ('"127.0.0.1:42"', "nowhere", "9: links.l1.frames.1: not an address"),
        ("  l2:", "  l1:", "10: links.l1: is given twice"),
        ("  l2:", "  2:", "10: links.2"),
    ],
)
def test_bad_links(old: str, new: str, error: str) -> None:
    assert old in LINKED
    assert refusal(parse_topology, LINKED.replace(old, new, 1)).startswith(f"file.yaml:{error}")


@given(topologies(connected=False))
def test_both_ways_of_writing_are_read_back(topology: Topology) -> None:
    assert parse_topology(topology.to_yaml()) == topology
    assert parse_topology(to_lines(topology)) == topology


@pytest.mark.parametrize(
    ("made", "switches", "hosts", "links", "diameter"),
    [
        (star(5), 1, 5, 0, 0),
        (tree(3, 2), 4, 6, 3, 2),
        (leaf_spine(2, 3, 4), 5, 12, 6, 2),
        (fat_tree(2), 5, 2, 4, 4),
        (fat_tree(4), 20, 16, 32, 4),
        (fat_tree(4, 1), 20, 8, 32, 4),
        (fat_tree(6), 45, 54, 108, 4),
    ],
)
def test_shapes(made: Topology, switches: int, hosts: int, links: int, diameter: int) -> None:
    assert (len(made.switches), len(made.hosts), len(made.links)) == (switches, hosts, links)
    graph = switch_graph(made)
    homes = {host.switch for host in made.hosts.values()}
    assert max(distances(graph, home)[other] for home in homes for other in homes) == diameter
    assert all(set(distances(graph, home)) == set(made.switches) for home in homes)
    assert {host.mtu for host in made.hosts.values()} == {9000}


def test_a_fat_trees_switches_have_k_ports() -> None:
    made = fat_tree(6)
    for name in made.switches:
        assert len(made.neighbors(name)) + len(made.hosts_of(name)) == 6
    for core in range(1, 10):
        assert len({other.switch.partition("-")[0] for other in made.neighbors(f"core{core}").values()}) == 6


def test_shapes_that_cannot_be() -> None:
    with pytest.raises(InputError, match="an even number from 2, not 3"):
        fat_tree(3)
    with pytest.raises(InputError, match="hosts of 1 or more, not 0"):
        tree(2, 0)
    with pytest.raises(InputError, match="300 hosts and 1 switch are 301 addresses"):
        star(300)


@pytest.mark.parametrize("file", ["tree2x2.yaml", "leafspine2x2x2.yaml", "fattree4.yaml"])
def test_the_files_are_what_the_command_writes(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (MININET / file).read_text()
    command = re.search(r"`netsum (topology make [^`]+)`", text)
    assert command is not None
    cli(command[1].split(), standalone_mode=False)
    assert text.endswith(f"`{command[0][1:-1]}`\n" + capsys.readouterr().out)
    assert load_topology(MININET / file).name == file.removesuffix(".yaml")


def test_servers_at_ports_in_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    cli(["topology", "make", "tree", "--hosts", "1", "--p4runtime", "127.0.0.1:9559"], standalone_mode=False)
    made = parse_topology(capsys.readouterr().out)
    assert [switch.p4runtime for switch in made.switches.values()] == [f"127.0.0.1:{9559 + n}" for n in range(3)]
    with pytest.raises(InputError, match="room for 3 ports from there"):
        cli(["topology", "make", "tree", "--p4runtime", "127.0.0.1:65534"], standalone_mode=False)


def test_sockets_at_ports_in_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    """Every end of every wire has an address of its own, and every switch a server."""
    cli(["topology", "make", "tree", "--hosts", "1", "--rootless"], standalone_mode=False)
    made = parse_topology(capsys.readouterr().out)
    assert [switch.p4runtime for switch in made.switches.values()] == [f"127.0.0.1:{9559 + n}" for n in range(3)]
    ends = [end for host in made.hosts.values() for end in (host.frames, host.switch_frames)]
    ends += [end for link in made.links.values() for end in link.frames or ()]
    assert ends == [f"127.0.0.1:{9001 + n}" for n in range(8)]
    with pytest.raises(InputError, match=r"--udp '\[::1\]:9000': an address of IPv6, and netsum is IPv4 only"):
        cli(["topology", "make", "star", "--rootless", "--udp", "[::1]:9000"], standalone_mode=False)
    with pytest.raises(InputError, match=r"--udp '127\.0\.0\.1:65530': not HOST:PORT with room for 8 ports"):
        cli(["topology", "make", "tree", "--hosts=1", "--rootless", "--udp=127.0.0.1:65530"], standalone_mode=False)
    with pytest.raises(click.UsageError, match="--udp is for the wires of --rootless"):
        cli(["topology", "make", "star", "--udp=127.0.0.1:9001"], standalone_mode=False)


def test_links_are_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(MININET / "leafspine2x2x2.yaml")
    monkeypatch.setenv("COLUMNS", "200")
    cli(["--topology", file, "topology", "show"], standalone_mode=False)
    (row,) = (line.split() for line in capsys.readouterr().out.splitlines() if "leaf2_spine1" in line)
    assert row == ["leaf2_spine1", "leaf2", "3", "spine1", "2", "9000", "1000", "Mbit/s"]
    cli(["--topology", file, "topology", "check"], standalone_mode=False)
    assert capsys.readouterr().out == "leafspine2x2x2: 4 switches, 4 hosts, 4 links, no errors\n"


SHARED = LINKED.replace('fe"}', 'fe", shared_ports: [1]}', 1).replace(
    "links:", '  h3: {ip: 10.0.0.3, mac: "02:6e:73:00:00:03", switch: s1, port: 1}\n  h4: {switch: s1, port: 1}\nlinks:'
)


def test_shared_ports() -> None:
    topology = parse_topology(SHARED)
    assert [topology.shares_port(host) for host in topology.hosts.values()] == [True, False, True, True]
    assert parse_topology(topology.to_yaml()) == topology
    assert topology.on_ports("s1") == {1: "3 hosts", 2: "s2:3", 5: "s2:4", 510: "controller"}
    items = switch_items(topology, "s1", set())
    addresses = {ip_to_int(f"10.0.0.{last}") for last in (1, 2, 3, 253, 254)}
    assert {item.address for item in items if isinstance(item, SourceGuardEntry)} == addresses, "h4 may be at any address"
    assert {item.eth_dst & 0xFF for item in items if isinstance(item, ForwardEntry)} == {1, 2, 3, 0xFD}


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("shared_ports: [1]", "shared_ports: [7]", "8: hosts.h3.port: port 1 of s1 is already that of hosts.h1"),
        ("shared_ports: [1]", "shared_ports: [1, 2]", "11: links.l1.ports.0: port 2 of s1 is already that of switches.s1"),
        ("shared_ports: [1]", "shared_ports: [510]", "3: switches.s1.shared_ports.0: must be 509 or less (it is 510)"),
        ("h4: {switch: s1", "h4: {switch: s2", "9: hosts.h4: ip is missing (only behind a shared port a host may be anywhere)"),
        ("h4: {switch: s1", "h4: {ip: 10.0.0.3, switch: s1", "9: hosts.h4.ip: 10.0.0.3 is already that of hosts.h3"),
    ],
)
def test_bad_shared_ports(old: str, new: str, error: str) -> None:
    assert old in SHARED
    assert refusal(parse_topology, SHARED.replace(old, new, 1)).startswith(f"file.yaml:{error}")


def test_a_star_with_hosts_behind_one_port() -> None:
    topology = star(5, shared=3)
    assert [host.port for host in topology.hosts.values()] == [1, 2, 3, 3, 3]
    assert topology.switches["s1"].shared_ports == (3,)
    with pytest.raises(InputError, match="2 hosts cannot have 3 behind a shared port"):
        star(2, shared=3)
