"""The cheapest arborescence (Chu, Liu 1965; Edmonds 1967)."""

from __future__ import annotations

from collections.abc import Mapping

Costs = Mapping[tuple[int, int], float]


def cheapest(nodes: int, root: int, costs: Costs) -> list[tuple[int, int]]:
    """The arcs of an arborescence from ``root`` over nodes 0..nodes-1 with the least sum of costs; of equal ones, the same one
    every time. Every node must be reachable. Cost: O(nodes x arcs)."""
    arcs = [(source, target, cost, n) for n, ((source, target), cost) in enumerate(costs.items()) if target != root]
    chosen = _solve(nodes, root, arcs)
    ends = list(costs)
    return [ends[n] for n in chosen]


def _solve(nodes: int, root: int, arcs: list[tuple[int, int, float, int]]) -> list[int]:
    """Ids of the chosen arcs, each of which has a source, a target, a cost and an id."""
    best: dict[int, tuple[int, int, float, int]] = {}
    for arc in arcs:
        if arc[0] != arc[1] and (arc[1] not in best or arc[2] < best[arc[1]][2]):
            best[arc[1]] = arc
    cycle = _cycle(root, best)
    if not cycle:
        return [arc[3] for arc in best.values()]
    # The cycle becomes one node; an arc into it costs what it adds to breaking the cycle there.
    inside, whole = set(cycle), nodes
    outer, target_of = [], {}
    for source, target, cost, n in arcs:
        if target in inside:
            if source not in inside:
                outer.append((source, whole, cost - best[target][2], n))
                target_of[n] = target
        else:
            outer.append((whole if source in inside else source, target, cost, n))
    chosen = _solve(nodes + 1, root, outer)
    broken = next(target_of[n] for n in chosen if n in target_of)
    return chosen + [best[node][3] for node in cycle if node != broken]


def _cycle(root: int, best: Mapping[int, tuple[int, int, float, int]]) -> list[int]:
    """The nodes of a cycle among the best arcs, if there is one."""
    state: dict[int, int] = {root: 0}
    for start in best:
        path, node = [], start
        while node not in state:
            state[node] = start + 1
            path.append(node)
            node = best[node][0]
        if state[node] == start + 1 and node in path:
            return path[path.index(node) :]
        for each in path:
            state[each] = 0
    return []
