# SPDX-License-Identifier: MIT
"""Trees of switches as nested tuples: ranks are hosts, tuples are switches. ``(0, 1, 2)`` is a star, ``((0, 1), (2, 3))`` a
root with two leaves. Several roots over the same leaves share the blocks, by stripes."""

from __future__ import annotations

from typing import NamedTuple

Shape = tuple["int | Shape", ...]

EDGE_PORTS = 100
"""A host of rank r is on port r + 1; both ends of edge e between two switches are port EDGE_PORTS + e."""


class Child(NamedTuple):
    """Child of a switch: a host, or another switch with its number."""

    port: int
    ranks: tuple[int, ...]
    switch: int | None = None

    @property
    def src_id(self) -> int:
        return min(self.ranks)


class Node(NamedTuple):
    """A switch. ``parents``: ports and source ids there, by stripe; () at a root."""

    children: tuple[Child, ...]
    parents: tuple[tuple[int, int], ...] = ()


def ranks_of(shape: int | Shape) -> tuple[int, ...]:
    """Every rank below."""
    return (shape,) if isinstance(shape, int) else tuple(rank for part in shape for rank in ranks_of(part))


def nodes_of(shape: Shape, roots: int = 1) -> tuple[Node, ...]:
    """The switches of a tree, parents before children: first ``roots`` roots, each with all of the shape's parts."""
    nodes: list[Node] = [Node(())] * roots
    edges = EDGE_PORTS

    def build(parts: Shape, at: tuple[int, ...]) -> None:
        nonlocal edges
        children: list[list[Child]] = [[] for _ in at]
        below = []
        for part in parts:
            ranks = ranks_of(part)
            if isinstance(part, int):
                for mine in children:
                    mine.append(Child(part + 1, ranks))
                continue
            ports = range(edges, edges := edges + len(at))
            number = len(nodes)
            nodes.append(Node((), tuple((port, min(ranks)) for port in ports)))
            below.append((part, number))
            for mine, port in zip(children, ports, strict=True):
                mine.append(Child(port, ranks, number))
        for number, mine in zip(at, children, strict=True):
            nodes[number] = nodes[number]._replace(children=tuple(mine))
        for part, number in below:
            build(part, (number,))

    build(shape, tuple(range(roots)))
    return tuple(nodes)
