# SPDX-License-Identifier: MIT
"""Forwarding over many switches: every host is reached on a shortest path, and a flood comes to every host once."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from netsum.wire.schema import FLOOD_GROUP
from netsum_controller.config.topologies import fat_tree, leaf_spine
from netsum_controller.config.topology import Topology
from netsum_controller.entries import ForwardEntry, MulticastGroup, SourceGuardEntry, TransitEntry
from netsum_controller.planning.allocation import ip_to_int, mac_to_int
from netsum_controller.planning.items import switch_items
from netsum_controller.planning.trees import distances, switch_graph

from tests.controller.graphs import make, topologies


class Network:
    """Forwarding by the installed entries; switches that are down do nothing."""

    def __init__(self, topology: Topology, down: set[str]) -> None:
        self.topology, self.down = topology, down
        self.forward: dict[str, dict[int, int]] = {}
        self.flood: dict[str, frozenset[int]] = {}
        for name in topology.switches:
            items = switch_items(topology, name, down)
            self.forward[name] = {item.eth_dst: item.port for item in items if isinstance(item, ForwardEntry)}
            groups = [item for item in items if isinstance(item, MulticastGroup) and item.group_id == FLOOD_GROUP]
            self.flood[name] = frozenset(port for group in groups for port, _ in group.replicas)

    def walk(self, switch: str, mac: str) -> list[str]:
        """The switches that a frame from a switch's host passes, and the host or switch where it arrives."""
        path = [switch]
        while len(path) <= len(self.topology.switches) + 1:
            if self.topology.switches[path[-1]].mac == mac:
                return [*path, path[-1]]
            port = self.forward[path[-1]][mac_to_int(mac)]
            at = self.topology.on_ports(path[-1])[port].partition(":")[0]
            path.append(at)
            if at in self.topology.hosts:
                return path
        raise AssertionError(f"a loop: {path}")

    def broadcast(self, host: str) -> Counter[str]:
        """The copies of a host's broadcast that each host gets."""
        start = self.topology.hosts[host]
        got: Counter[str] = Counter()
        arriving = [(start.switch, start.port)]
        for _ in range(1000):
            if not arriving:
                return got
            switch, came_from = arriving.pop()
            if switch in self.down:
                continue
            neighbors = self.topology.neighbors(switch)
            for port in self.flood[switch] - {came_from}:
                if port in neighbors:
                    arriving.append((neighbors[port].switch, neighbors[port].port))
                else:
                    got[self.topology.on_ports(switch)[port]] += 1
        raise AssertionError("a storm")


@given(topologies(connected=False), st.data())
def test_every_host_is_reached_on_a_shortest_path(topology: Topology, data: st.DataObject) -> None:
    down = data.draw(st.sets(st.sampled_from(list(topology.switches))))
    network = Network(topology, down)
    graph = switch_graph(topology, down)
    for start in graph:
        reached = distances(graph, start)
        for name, host in topology.hosts.items():
            if host.switch in reached:
                path = network.walk(start, host.mac)
                assert (path[-1], len(path)) == (name, reached[host.switch] + 2)
                assert not down & set(path)
            else:
                assert mac_to_int(host.mac) not in network.forward[start]
        for name, switch in topology.switches.items():
            if name in reached and name != start:
                assert network.walk(start, switch.mac)[-1] == name
            else:
                assert mac_to_int(switch.mac) not in network.forward[start]


@given(topologies(connected=False), st.data())
def test_a_flood_comes_to_every_host_in_reach_once(topology: Topology, data: st.DataObject) -> None:
    down = data.draw(st.sets(st.sampled_from(list(topology.switches))))
    network = Network(topology, down)
    graph = switch_graph(topology, down)
    for name, host in topology.hosts.items():
        if host.switch not in down:
            reached = distances(graph, host.switch)
            others = [other for other, each in topology.hosts.items() if each.switch in reached and other != name]
            assert network.broadcast(name) == Counter(others)


@given(topologies(connected=False))
def test_addresses_belong_to_ports(topology: Topology) -> None:
    """A host's address is let in at its own port, one behind another switch at every link, and a switch's own nowhere."""
    for name, switch in topology.switches.items():
        entries = [item for item in switch_items(topology, name) if isinstance(item, SourceGuardEntry)]
        found = {entry.address: {port for port in range(512) if entry.ports >> port & 1} for entry in entries}
        links = set(topology.neighbors(name))
        assert found.pop(ip_to_int(switch.ip)) == set()
        for host in topology.hosts.values():
            assert found.pop(ip_to_int(host.ip)) == ({host.port} if host.switch == name else links)
        assert list(found.values()) == [links] * (len(topology.switches) - 1)


def test_equal_paths_are_all_used() -> None:
    """Two spines carry half of the hosts each; in a fat-tree so does every core."""
    topology = leaf_spine(2, 2, 4)
    network = Network(topology, set())
    assert Counter(network.walk("leaf1", topology.hosts[f"h{n}"].mac)[1] for n in range(5, 9)) == {
        "spine1": 2,
        "spine2": 2,
    }
    topology = fat_tree(4)
    network = Network(topology, set())
    far = [topology.hosts[f"h{n}"].mac for n in range(5, 17)]
    assert Counter(network.walk("edge1-1", mac)[2] for mac in far) == dict.fromkeys(("core1", "core2", "core3", "core4"), 3)


def test_a_switch_that_is_down_is_gone_around() -> None:
    topology = leaf_spine(2, 2, 2)
    around = Network(topology, {"spine1"})
    assert {around.walk("leaf1", topology.hosts[name].mac)[1] for name in ("h3", "h4")} == {"spine2"}
    assert around.forward["spine1"] == Network(topology, set()).forward["spine1"]  # ready for when it is back


def test_a_star_is_as_it_was() -> None:
    topology = make(["s1", "s2"], {"h1": "s1", "h2": "s1", "h3": "s2"}, [])
    items = switch_items(topology, "s1")
    assert {item.port for item in items if isinstance(item, ForwardEntry)} == {1, 2}
    assert MulticastGroup(FLOOD_GROUP, frozenset({(1, 0), (2, 0)})) in items
    assert TransitEntry(ip_to_int(topology.switches["s2"].ip)) in items
    assert TransitEntry(ip_to_int(topology.switches["s1"].ip)) not in items
