"""Turns a graph of nodes into structured code, without jumps or a function per node.

A program's control flow is acyclic. Where branches of a node meet again is its immediate post-dominator; the code of
the branches goes into the node's ``if``, and the code from the meeting point on follows it, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from netsum_switch.errors import UnsupportedError

Node = str | None
"""A node's name; None is the end."""

Branch = Callable[[Node, Node], None]
"""``branch(first, join)`` writes the nodes from ``first`` up to ``join``."""


def has_loop(graph: Mapping[str, Sequence[Node]], entry: Node) -> bool:
    """Whether a node that can be reached from ``entry`` leads back to itself."""
    finished: dict[Node, bool] = {None: True}

    def visit(node: Node) -> bool:
        if node is None or node in finished:
            return not finished[node]
        finished[node] = False
        found = any(visit(following) for following in graph[node])
        finished[node] = True
        return found

    return visit(entry)


def post_dominators(graph: Mapping[str, Sequence[Node]], entry: Node, what: str) -> dict[Node, Node]:
    """The immediate post-dominator of every reachable node; a loop is an UnsupportedError."""
    order: list[Node] = []
    state: dict[Node, bool] = {}  # True: finished, False: on the way

    def visit(node: Node) -> None:
        state[node] = False
        for following in graph[node] if node is not None else ():
            if following not in state:
                visit(following)
            elif not state[following]:
                raise UnsupportedError(f"{what} has a loop (at {following})")
        state[node] = True
        order.append(node)

    visit(entry)
    if None not in state:
        raise UnsupportedError(f"{what} never ends")
    number = {node: index for index, node in enumerate(order)}
    above: dict[Node, Node] = {None: None}

    def meet(left: Node, right: Node) -> Node:
        while left != right:
            while number[left] > number[right]:
                left = above[left]
            while number[right] > number[left]:
                right = above[right]
        return left

    for node in order:
        if node is not None:
            following = list(graph[node])
            join = following[0]
            for each in following[1:]:
                join = meet(join, each)
            above[node] = join
    return above


def write_structured(
    graph: Mapping[str, Sequence[Node]], entry: Node, emit: Callable[[str, Node, Branch], None], what: str
) -> None:
    """Write every node once, by ``emit(node, join, branch)``, which writes the node and, through ``branch``, the nodes
    between it and ``join``."""
    if entry is None:
        return
    above = post_dominators(graph, entry, what)

    def branch(first: Node, join: Node) -> None:
        node = first
        while node is not None and node != join:
            emit(node, above[node], branch)
            node = above[node]

    branch(entry, None)
