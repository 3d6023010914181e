# SPDX-License-Identifier: MIT
"""The trees in which switches sum, by the rules of the controller (netsum_controller.planning.trees): shortest paths to the
switches that are nearest to all members, which share the blocks if they can.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netsum_planner.errors import PlanError
from netsum_planner.simulator.network import Numbers, SimulatedNetwork

MOST_ROOTS = 64


@dataclass(frozen=True)
class Tree:
    """``parents``: of each host and switch in the tree, the next node towards the ``root``."""

    root: str
    parents: dict[str, str]

    def links(self, network: SimulatedNetwork) -> Numbers:
        """All links, those up and those down: what every block takes."""
        up = [network.number[child, parent] for child, parent in self.parents.items()]
        down = [network.number[parent, child] for child, parent in self.parents.items()]
        return np.array(up + down, np.int64)

    def children(self, node: str) -> list[str]:
        return [child for child, parent in self.parents.items() if parent == node]

    def way(self, host: str) -> list[str]:
        """The nodes from a host to the root."""
        found = [host]
        while found[-1] != self.root:
            found.append(self.parents[found[-1]])
        return found


def trees(network: SimulatedNetwork, hosts: Sequence[str]) -> list[Tree]:
    """A tree for each root; blocks are shared equally among them. :class:`PlanError` if there is none."""
    topology = network.topology
    homes = {host: _home(network, host) for host in hosts}
    switches = dict.fromkeys(homes.values())
    reach = [network.distances(home) for home in switches]
    able = [name for name, sums in topology.switches.items() if sums and all(name in one for one in reach)]
    if not able:
        raise PlanError(f"{topology.name}: no switch that sums reaches all {len(hosts)} hosts: take a host algorithm")
    farthest = {name: max(one[name] for one in reach) for name in able}
    nearest = min(farthest.values())
    roots = [name for name in able if farthest[name] == nearest][:MOST_ROOTS]
    found = [_tree(network, homes, switches, root) for root in roots]
    return found if _agree(found) else found[:1]


def _home(network: SimulatedNetwork, host: str) -> str:
    """The switch that a host is on."""
    for other in network.topology.neighbors[host]:
        if other in network.topology.switches and network.number[host, other] not in network.down:
            return other
    raise PlanError(f"{network.topology.name}: {host} is on no switch, so no switch can sum for it: take a host algorithm")


def _tree(network: SimulatedNetwork, homes: Mapping[str, str], switches: Collection[str], root: str) -> Tree:
    """Each switch's parent on a shortest path to the root: a home, if one is among the next hops, or else the first."""
    distance = network.distances(root)
    parents = dict(homes)
    for home in switches:
        node = home
        while node != root and node not in parents:
            hops = [
                other
                for other in network.topology.neighbors[node]
                if distance.get(other, -1) == distance[node] - 1 and network.number[node, other] not in network.down
            ]
            parents[node] = next((hop for hop in hops if hop in switches), hops[0])
            node = parents[node]
    tree = Tree(root, parents)
    _require_sums(network, tree)
    return tree


def _require_sums(network: SimulatedNetwork, tree: Tree) -> None:
    """A switch where branches meet must sum."""
    below: dict[str, int] = {}
    for parent in tree.parents.values():
        below[parent] = below.get(parent, 0) + 1
    for name, count in below.items():
        if count > 1 and not network.topology.switches[name]:
            raise PlanError(f"{network.topology.name}: {name} joins {count} branches but does not sum: take a host algorithm")


def _agree(found: Sequence[Tree]) -> bool:
    """True if each switch has the same sources in all trees, and no root is a leaf of another tree: a switch keeps one set of
    sources for each job."""
    roots = {tree.root for tree in found}
    below: dict[str, set[str]] = {}
    for tree in found:
        own: dict[str, set[str]] = {tree.root: set()}
        for child, parent in tree.parents.items():
            own.setdefault(parent, set()).add(child)
        if any(below.setdefault(name, children) != children for name, children in own.items()):
            return False
        if any(root in tree.parents for root in roots):
            return False
    return True
