"""Double binary tree: half of the rows up and down one tree, half up and down another.

Source: P. Sanders, J. Speck and J. L. Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
Computing 35 (2009).

The in-order of the first tree is 1, 2 ... n, and the root of every subtree is the position in it that ends with most zeros in
binary: odd positions are leaves. The second tree is the first one mirrored when n is even (n + 1 - i stands where i stood), and
shifted by one around the end when n is odd; so its inner nodes are odd positions. No rank is inner in both trees: each has the
work of one inner node and one leaf.

Cost: 2 floor(log2 n) steps. A rank sends half of the rows to its parent in each tree (a root has none) and to each of at most two
children in one of them: at most 2R rows. Rows for one rank alone go down with their payload on the way to it only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from netsum.peers.plan import Mode, Plan, Receive, Round, Send
from netsum.peers.plans.rows import Ranks, bare


@dataclass(frozen=True)
class Tree:
    """For each rank its ``parents`` (one; none at the root), its ``children``, and all ranks ``below`` it, including itself."""

    parents: tuple[tuple[int, ...], ...]
    children: tuple[tuple[int, ...], ...]
    below: tuple[frozenset[int], ...]


def plan(rank: int, workers: int, dests: Ranks, _sources: Ranks) -> Plan:
    half = -(-len(dests) // 2)
    places = [
        (tree, tree.parents[rank], tree.children[rank], rows)
        for tree, rows in zip(two_trees(workers), (tuple(range(half)), tuple(range(half, len(dests)))), strict=True)
    ]
    # A leaf waits for nobody on the way up, and nobody for it on the way down: its part goes with the inner node's first and
    # last round.
    leaf = [(parent, rows) for _, parents, children, rows in places if not children for parent in parents]
    inner = [(parent, rows) for _, parents, children, rows in places if children for parent in parents]
    return Plan.of(
        [
            Round.of(
                [Send(parent, rows) for parent, rows in leaf],
                [Receive(child, rows, Mode.COMBINE) for _, _, children, rows in places for child in children],
            ),
            Round.of(
                [Send(parent, rows) for parent, rows in inner],
                [Receive(parent, rows, Mode.TAKE) for parent, rows in inner],
            ),
            Round.of(
                [
                    Send(child, rows, bare(rows, dests, tree.below[child]))
                    for tree, _, children, rows in places
                    for child in children
                ],
                [Receive(parent, rows, Mode.TAKE) for parent, rows in leaf],
            ),
        ]
    )


@lru_cache(maxsize=64)
def two_trees(workers: int) -> tuple[Tree, Tree]:
    """Both trees for this many ranks; position i of the first is rank i - 1."""
    ranks = list(range(workers))
    return _tree(ranks), _tree(ranks[::-1] if workers % 2 == 0 else [*ranks[1:], 0])


def _tree(ranks: list[int]) -> Tree:
    """The tree whose in-order is ``ranks``."""
    parents: list[tuple[int, ...]] = [()] * len(ranks)
    children: list[tuple[int, ...]] = [()] * len(ranks)
    below: list[frozenset[int]] = [frozenset()] * len(ranks)

    def build(part: list[int], above: tuple[int, ...]) -> tuple[int, ...]:
        """The subtree of these; the root's position in it is the largest power of two that there is. Returns the root."""
        if not part:
            return ()
        left = (1 << (len(part).bit_length() - 1)) - 1
        root = part[left]
        parents[root] = above
        children[root] = build(part[:left], (root,)) + build(part[left + 1 :], (root,))
        below[root] = frozenset(part)
        return (root,)

    build(ranks, ())
    return Tree(tuple(parents), tuple(children), tuple(below))
