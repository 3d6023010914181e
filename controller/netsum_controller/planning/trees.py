# SPDX-License-Identifier: MIT
"""Aggregation trees: which switches sum a job's blocks, and who sends to whom. Pure.

A job has one tree for each *stripe* (a block's stripe is its id modulo their number). Its hosts' switches are the leaves, a root
makes the results, and several roots share the stripes by weight. As in ATP and SHARP, the trees consist of shortest paths, so a
block travels once up and once down each link.

The P4 program keeps one set of sources for each job, so a switch has the same sources and the same role in all its stripes. If
several roots cannot share the blocks that way (because one has members of its own, or paths cross), one root makes all results.

Where hosts reach several switches themselves (``stripes`` in the topology), each of these is a root with all members as sources,
and there is no tree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
from netsum.wire.schema import SWITCH_SOURCE, Role

from netsum_controller.config.topology import Topology
from netsum_controller.errors import NoSwitchError, RejectedError
from netsum_controller.state.model import Shape

# The switches as a graph of links, without those that are ``down``. Pure; the algorithms are networkx's. Nodes and
# neighbors are in the order of the topology's file, so the same file gives the same paths in every process.


Graph = Any
"""A :class:`networkx.Graph`, which has no type stubs: nodes are names of switches; an edge's ``ports`` is a dict from each of
its two switches to the port that it has there, ``link`` the link's name."""


def switch_graph(topology: Topology, down: Collection[str] = frozenset()) -> Graph:
    """The switches that are up. Of several links between two switches, the first in the file counts."""
    graph = nx.Graph()
    graph.add_nodes_from(name for name in topology.switches if name not in down)
    for name, link in topology.links.items():
        one, other = link.switches
        if one in graph and other in graph and not graph.has_edge(one, other):
            graph.add_edge(one, other, ports=dict(zip(link.switches, link.ports, strict=True)), link=name)
    return graph


def distances(graph: Graph, to: str) -> dict[str, int]:
    """The distance in links of each switch from ``to``. Breadth first: O(switches + links)."""
    return dict(nx.single_source_shortest_path_length(graph, to))


def next_hops(graph: Graph, distance: dict[str, int], switch: str) -> list[str]:
    """A switch's neighbors that are one link nearer to the target of ``distance`` (from :func:`distances`), in order."""
    here = distance[switch]
    order = list(graph)
    nearer = (other for other in graph[switch] if distance[other] == here - 1)
    return sorted(nearer, key=order.index)


def flood_ports(graph: Graph, switch: str) -> Iterator[int]:
    """Ports that floods take from a switch: those of one spanning tree, breadth first from the first switch of its part of
    the graph, so that every flooded frame reaches every switch once."""
    part = nx.node_connected_component(graph, switch)
    top = next(name for name in graph if name in part)
    tree = nx.Graph(nx.bfs_edges(graph, top))
    if switch in tree:  # the only switch of its part has no edges
        for other in tree[switch]:
            yield graph.edges[switch, other]["ports"][switch]


STRIPES = 16
"""Stripes when several roots share the blocks: two roots of any weights get their share within 1/32."""

MAX_STRIPES = 64

ROUND_TRIP_US = 5000
"""Between a switch and its parent, with room for a scheduler's time slice."""


@dataclass(frozen=True)
class Child:
    """A source of a switch: either a ``host`` (for one rank, or several that share its memory) or a child ``switch``; the other
    is None. ``ranks`` are those below it, ascending, and ``src_id`` is its number at the switch; ``port`` is the switch's own
    port towards the child."""

    src_id: int
    port: int
    ranks: tuple[int, ...]
    host: str | None = None
    switch: str | None = None


@dataclass(frozen=True)
class Uplink:
    """A switch's way to its parent ``switch`` for one stripe: out of its own ``port``, as ``src_id``."""

    switch: str
    port: int
    src_id: int


@dataclass(frozen=True)
class Node:
    """A switch in a job's trees. ``children`` are in order of src_id. A leaf has one of ``parents`` for each stripe, None if it
    has no part in the stripe; a root has none. ``height`` is the number of links to the farthest switch below."""

    switch: str
    role: Role
    children: tuple[Child, ...]
    parents: tuple[Uplink | None, ...] = ()
    height: int = 0

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks below, ascending."""
        return tuple(sorted(rank for child in self.children for rank in child.ranks))

    @property
    def uplinks(self) -> tuple[Uplink, ...]:
        """Its distinct parents, in order of stripes."""
        return tuple(dict.fromkeys(parent for parent in self.parents if parent is not None))


@dataclass(frozen=True)
class Trees:
    """A job's trees. ``nodes`` by switch, every parent before its children; ``roots`` the root of each stripe."""

    nodes: dict[str, Node]
    roots: tuple[str, ...]

    @property
    def stripes(self) -> int:
        """Number of stripes: a power of two, 1..64; 1 if there is one root."""
        return len(self.roots)

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """(child switch, parent switch) of every edge, each once, those near the roots first."""
        return tuple((name, up.switch) for name, node in self.nodes.items() for up in node.uplinks)

    @property
    def parents(self) -> dict[str, dict[str, str]]:
        """Each root's tree: child switch -> parent."""
        found: dict[str, dict[str, str]] = {root: {} for root in self.roots}
        for name, node in self.nodes.items():
            for root, up in zip(self.roots, node.parents, strict=False):
                if up is not None:
                    found[root][name] = up.switch
        return found

    def links(self, topology: Topology) -> tuple[str, ...]:
        """Names of the links between switches that the trees use, each once."""
        found = (topology.neighbors(name)[up.port].link for name, node in self.nodes.items() for up in node.uplinks)
        return tuple(dict.fromkeys(found))


def plan_trees(
    topology: Topology,
    members: Sequence[str] | Mapping[int, str],
    *,
    down: Collection[str] = frozenset(),
    weights: Mapping[str, int] | None = None,
    leaders: tuple[int, ...] = (),
) -> Trees:
    """The trees of a job. ``members`` are host names in rank order, or by rank; ``down`` are switches that must not be used.
    ``leaders`` are as in :class:`~netsum_controller.state.model.Shape`.

    ``weights`` names the roots and how they share the blocks; roots that are down are left out (if all are, the weights are
    ignored). Without weights, the roots are the switches whose greatest distance to a member's switch is smallest (the spines of
    a leaf-spine, the cores of a fat-tree), with equal weights; if they cannot share, only the first.

    Raises :class:`RejectedError`, which says what is missing, or its subclass :class:`NoSwitchError` if that is a path.
    O(roots * (switches + links)).
    """
    hosts = dict(members) if isinstance(members, Mapping) else dict(enumerate(members))
    graph = switch_graph(topology, down)
    homes = _homes(topology, hosts, graph)
    requested = _requested(topology, weights, graph)
    if len(homes) == 1 and (several := _several(topology, homes[0], graph, requested)):
        on = tuple(homes[0] if rank in hosts else "" for rank in range(max(hosts) + 1))
        return _trees(topology, graph, hosts, Shape(share(several, MAX_STRIPES), {root: {} for root in several}, on, leaders))
    if requested is not None:
        trees = _build(topology, graph, hosts, homes, requested, leaders)
        if trees is None:
            raise RejectedError(
                f"the roots {', '.join(requested)} cannot share the blocks of a job with members on {', '.join(homes)}: a switch "
                f"would need other sources, or another role, in some blocks than in others; ask for one root"
            )
        return trees
    roots = _centers(graph, homes)[:MAX_STRIPES]
    trees = _build(topology, graph, hosts, homes, dict.fromkeys(roots, 1), leaders)
    trees = trees or _build(topology, graph, hosts, homes, {roots[0]: 1}, leaders)
    assert trees is not None, "one root always works"
    return trees


def trees_of(topology: Topology, shape: Shape, members: Mapping[int, str]) -> Trees:
    """Trees of a known shape in the current topology. ``members`` are host names by rank; those on no switch of the trees are
    left out. :class:`RejectedError` if a switch or a link that the trees need is gone."""
    graph = switch_graph(topology)
    for child, parent in shape.edges:
        if not graph.has_edge(child, parent):
            raise RejectedError(f"the topology no longer has a link between {child} and {parent}")
    unknown = [name for name in shape.switches if name not in graph]
    if unknown:
        raise RejectedError(f"the topology no longer has switch {', '.join(sorted(unknown))}")
    return _trees(topology, graph, members, shape)


def source_ids(shape: Shape) -> dict[str, dict[int | str, int]]:
    """The source id of each child (a leader, or a switch) of each switch: its place in the order of the lowest ranks below them.
    Evicted ranks have one too, so that no id changes during an epoch. Raises :class:`RejectedError` if a switch has more
    children than there are ids."""
    below = _below(shape)
    lowest: dict[str, dict[int | str, int]] = {name: {} for name in below}
    reached = {home: shape.reached(home) for home in {*shape.homes} & below.keys()}
    for rank, home in enumerate(shape.homes):
        for name in reached.get(home, ()):
            lowest[name].setdefault(shape.leader(rank), rank)
    ids = {}
    for name in _lowest_first(below):
        children = lowest[name]
        children |= {child: min(lowest[child].values(), default=len(shape.homes)) for child in below[name]}
        if len(children) > SWITCH_SOURCE:
            raise RejectedError(f"switch {name} would have {len(children)} sources; a switch has {SWITCH_SOURCE} at most")
        ids[name] = {child: number for number, child in enumerate(sorted(children, key=children.__getitem__))}
    return ids


def block_exp_us(lowest_us: int, height: int) -> int:
    """Age in microseconds at which a switch of that height closes a block if the lowest leaves do so at ``lowest_us``: twice its
    children's age plus a round trip. 0, which means that blocks do not age, stays 0."""
    age = lowest_us
    for _ in range(height if lowest_us else 0):
        age = 2 * age + ROUND_TRIP_US
    return age


def share(weights: Mapping[str, int], least: int = STRIPES) -> tuple[str, ...]:
    """The root of each stripe: one stripe for one root, otherwise the fewest (a power of two from ``least`` to 64) that give each
    root at least one; shares by largest remainder, spread evenly over the stripes."""
    if len(weights) == 1:
        return tuple(weights)
    total = sum(weights.values())
    count = least
    while count < MAX_STRIPES and (count < len(weights) or min(_apportion(weights, total, count).values()) == 0):
        count *= 2
    seats = _apportion(weights, total, count)
    while min(seats.values()) == 0:  # every root asked for gets at least one
        poor, rich = min(seats, key=lambda name: seats[name]), max(seats, key=lambda name: seats[name])
        seats[poor], seats[rich] = 1, seats[rich] - 1
    # The root furthest behind its share comes next (smooth weighted round robin).
    roots: list[str] = []
    given = dict.fromkeys(seats, 0)
    for stripe in range(1, count + 1):
        root = max(seats, key=lambda name: seats[name] * stripe - given[name] * count)
        given[root] += 1
        roots.append(root)
    return tuple(roots)


def _apportion(weights: Mapping[str, int], total: int, count: int) -> dict[str, int]:
    """``count`` seats by largest remainder (Hamilton's method)."""
    seats = {name: weight * count // total for name, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda name: -(weights[name] * count % total))
    for name in by_remainder[: count - sum(seats.values())]:
        seats[name] += 1
    return seats


def _homes(topology: Topology, hosts: Mapping[int, str], graph: Graph) -> list[str]:
    """The switches that members are on, in the topology's order; :class:`RejectedError` if some cannot reach the others."""
    unknown = [name for name in dict.fromkeys(hosts.values()) if name not in topology.hosts]
    if unknown:
        raise RejectedError(f"the topology has no host {', '.join(unknown)} (it has: {', '.join(topology.hosts)})")
    if not hosts:
        raise RejectedError("there are no members")
    on: dict[str, list[str]] = {}
    for name in dict.fromkeys(hosts.values()):
        on.setdefault(topology.hosts[name].switch, []).append(name)
    for switch, names in on.items():
        if switch not in graph:
            raise NoSwitchError(f"switch {switch} is down, and {', '.join(names)} cannot be reached without it")
    homes = [name for name in topology.switches if name in on]
    reached = distances(graph, homes[0])
    for switch in homes:
        if switch not in reached:
            raise NoSwitchError(
                f"no path joins {homes[0]} (with {', '.join(on[homes[0]])}) and {switch} (with {', '.join(on[switch])}) over "
                f"switches and links that are up"
            )
    return homes


def _requested(topology: Topology, weights: Mapping[str, int] | None, graph: Graph) -> dict[str, int] | None:
    """Those of the roots asked for that are up; None if there are none."""
    if weights is None:
        return None
    for name, weight in weights.items():
        if name not in topology.switches:
            known = ", ".join(topology.switches)
            raise RejectedError(f"the topology has no switch {name!r} to be a root (it has: {known})")
        if weight < 1:
            raise RejectedError(f"root {name}: a weight is a whole number from 1, not {weight}")
    up = {name: weight for name, weight in weights.items() if name in graph}
    if len(up) > MAX_STRIPES:
        raise RejectedError(f"{len(up)} roots are too many: blocks are shared among {MAX_STRIPES} at most")
    return up or None


def _several(topology: Topology, home: str, graph: Graph, requested: Mapping[str, int] | None) -> Mapping[str, int] | None:
    """The weights of the roots that the hosts of a switch reach themselves; None if they reach only one, or one was requested."""
    up = dict.fromkeys((name for name in (home, *topology.switches[home].stripes) if name in graph), 1)
    weights = up if requested is None else requested
    return weights if len(weights) > 1 and home in weights and weights.keys() <= up.keys() else None


def _centers(graph: Graph, homes: Sequence[str]) -> list[str]:
    """The switches whose greatest distance to a home is smallest."""
    reach = [distances(graph, home) for home in homes]
    farthest = {name: max(one[name] for one in reach) for name in graph if all(name in one for one in reach)}
    least = min(farthest.values())
    return [name for name, distance in farthest.items() if distance == least]


def _build(
    topology: Topology,
    graph: Graph,
    hosts: Mapping[int, str],
    homes: Sequence[str],
    weights: Mapping[str, int],
    leaders: tuple[int, ...],
) -> Trees | None:
    """The trees under these roots; None when the roots cannot share the blocks. :class:`RejectedError` for a root out of
    reach."""
    parents = {root: _tree(graph, homes, root) for root in weights}
    below: dict[str, set[str]] = {}
    for root, tree in parents.items():
        own: dict[str, set[str]] = {name: set() for name in (root, *tree)}
        for child, parent in tree.items():
            own[parent].add(child)
        if any(below.setdefault(name, children) != children for name, children in own.items()):
            return None
        if any(other in tree for other in weights):  # a root here is no leaf there
            return None
    homes_by_rank = tuple(topology.hosts[hosts[rank]].switch if rank in hosts else "" for rank in range(max(hosts) + 1))
    return _trees(topology, graph, hosts, Shape(share(weights), parents, homes_by_rank, leaders))


def _tree(graph: Graph, homes: Sequence[str], root: str) -> dict[str, str]:
    """Each switch's parent on a shortest path from the homes to the root. Among several next hops it prefers a home, which
    takes part in the job anyway, or else the first; this choice does not depend on the root."""
    distance = distances(graph, root)
    parents: dict[str, str] = {}
    for home in homes:
        if home not in distance:
            raise NoSwitchError(f"root {root} cannot be reached from {home} over switches and links that are up")
        switch = home
        while switch != root and switch not in parents:
            hops = next_hops(graph, distance, switch)
            parents[switch] = next((hop for hop in hops if hop in homes), hops[0])
            switch = parents[switch]
    return parents


def _trees(topology: Topology, graph: Graph, hosts: Mapping[int, str], shape: Shape) -> Trees:
    nodes: dict[str, Node] = {}
    below, ids = _below(shape), source_ids(shape)
    reached = {home: shape.reached(home) for home in {topology.hosts[host].switch for host in hosts.values()}}

    def port(switch: str, other: str) -> int:
        return int(graph.edges[switch, other]["ports"][switch])

    def children(name: str) -> tuple[Child, ...]:
        here: dict[int, list[int]] = {}
        for rank, host in hosts.items():
            if name in reached[topology.hosts[host].switch]:
                here.setdefault(shape.leader(rank), []).append(rank)
        own = [
            Child(ids[name][leader], topology.hosts[hosts[ranks[0]]].port, tuple(ranks), host=hosts[ranks[0]])
            for leader, ranks in here.items()
        ]
        own += [Child(ids[name][child], port(name, child), nodes[child].ranks, switch=child) for child in below[name]]
        return tuple(sorted(own, key=lambda child: child.src_id))

    def uplink(name: str, root: str) -> Uplink | None:
        parent = shape.parents.get(root, {}).get(name)
        return None if parent is None else Uplink(parent, port(name, parent), ids[parent][name])

    for name in _lowest_first(below):
        height = max((nodes[child].height + 1 for child in below[name]), default=0)
        nodes[name] = Node(name, Role.ROOT if name in shape.roots else Role.LEAF, children(name), height=height)
    for name, node in nodes.items():
        if node.role is Role.LEAF:
            ways = tuple(uplink(name, root) for root in shape.roots)
            nodes[name] = Node(name, Role.LEAF, node.children, ways, node.height)
    # The topology's order among equals; a parent is higher than all its children.
    order = list(topology.switches)
    ranked = sorted(nodes, key=lambda name: (-nodes[name].height, order.index(name)))
    return Trees({name: nodes[name] for name in ranked}, shape.roots)


def _below(shape: Shape) -> dict[str, set[str]]:
    """The child switches of each switch, in whatever tree."""
    below: dict[str, set[str]] = {name: set() for name in shape.switches}
    for child, parent in shape.edges:
        below[parent].add(child)
    return below


def _lowest_first(below: Mapping[str, set[str]]) -> list[str]:
    """The switches, children before parents."""
    done: list[str] = []
    waiting = dict(below)
    while waiting:
        ready = [name for name, children in waiting.items() if children <= set(done)]
        done += ready
        for name in ready:
            del waiting[name]
    return done
