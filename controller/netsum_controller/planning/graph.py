"""The switches as a graph of links, without those that are ``down``. Pure; the algorithms are networkx's. Nodes and neighbours
are in the order of the topology's file, so the same file gives the same paths in every process."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import networkx as nx

from netsum_controller.config.topology import Topology

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
    """How many links each switch is away from ``to``. Breadth first: O(switches + links)."""
    return dict(nx.single_source_shortest_path_length(graph, to))


def next_hops(graph: Graph, distance: dict[str, int], switch: str) -> list[str]:
    """A switch's neighbours that are one link nearer to the target of ``distance`` (from :func:`distances`), in order."""
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
