# SPDX-License-Identifier: MIT
"""The schedules of the algorithms without a switch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from netsum.descriptor import AUTO, PLAN
from netsum.peers.plan import Mode, PeerPlan, Ranks, Receive, Round, Rows, Send, bare, only, owner, owners
from netsum.peers.schedule_files import read_plan
from netsum.wire.schema import EVERYONE

# Ring: a reduce-scatter and an all-gather around a ring of the ranks.
#
# Source: P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, J. Parallel
# and Distributed Computing 69 (2009).
#
# Every rank owns a share of the rows. In each step it sends a share to the next rank, which combines it with its own
# rows: first the share before its own, then the one before that, and so on. After n - 1 steps every rank holds the
# result of its share, and the results go around the ring in the same way.
#
# Cost: 2 (n - 1) steps. A rank sends 2R rows less its own share and the next rank's, about 2 (n - 1)/n R: the least
# there is. It sends and receives one message at a time.


def ring(rank: int, workers: int, dests: Ranks, sources: Ranks) -> PeerPlan:
    shares = owners(workers, dests, sources)
    following, before = (rank + 1) % workers, (rank - 1) % workers
    rounds = []
    for step in range(1, workers):
        out, back = shares[rank - step], shares[(before - step) % workers]
        rounds.append(Round.of([Send(following, out)], [Receive(before, back, Mode.COMBINE)]))
    for step in range(workers - 1):
        out, back = shares[rank - step], shares[before - step]
        rounds.append(Round.of([Send(following, out, bare(out, dests))], [Receive(before, back, Mode.TAKE)]))
    return PeerPlan.of(rounds)


# Binomial tree: up to one rank and down again, for rows that are put together at one rank.
#
# Source: R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication operations in MPICH, Int. J.
# High Performance Computing Applications 19 (2005): reduce and broadcast.
#
# Ranks are numbered from the root on. The parent of number v is v without its lowest one bit, and its children are v +
# 1, v + 2, v + 4 ... as long as what is added is below that bit. Rows for the root come back as headers; what goes up
# of rows from the root are headers.
#
# Cost: 2 floor(log2 n) steps. Of rows for the root every other rank sends R. Of rows from the root a rank sends R to
# each child, the root to ceil(log2 n) of them.


def binomial_tree(rank: int, workers: int, dests: Ranks, root: int) -> PeerPlan:
    """One rank's part. No row is for one rank alone but for the root."""
    rows: Rows = tuple(range(len(dests)))
    number = (rank - root) % workers
    bit = number & -number if number else 1 << workers.bit_length()
    parents = [(number - bit + root) % workers] if number else []
    children = []
    step = 1
    while step < bit and number + step < workers:
        children.append((number + step + root) % workers)
        step *= 2
    headers = bare(rows, dests)
    return PeerPlan.of(
        [
            Round.of([], [Receive(child, rows, Mode.COMBINE) for child in children]),
            Round.of([Send(parent, rows) for parent in parents], [Receive(parent, rows, Mode.TAKE) for parent in parents]),
            # First to the child that has the most below it.
            Round.of([Send(child, rows, headers) for child in reversed(children)], []),
        ]
    )


# Double binary tree: half of the rows up and down one tree, half up and down another.
#
# Source: P. Sanders, J. Speck and J. L. Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
# Parallel Computing 35 (2009).
#
# The in-order of the first tree is 1, 2 ... n, and the root of every subtree is the position in it that ends with most
# zeros in binary: odd positions are leaves. The second tree is the first one mirrored when n is even (n + 1 - i stands
# where i stood), and shifted by one around the end when n is odd; so its inner nodes are odd positions. No rank is
# inner in both trees: each has the work of one inner node and one leaf.
#
# Cost: 2 floor(log2 n) steps. A rank sends half of the rows to its parent in each tree (a root has none) and to each of
# at most two children in one of them: at most 2R rows. Rows for one rank alone go down with their payload on the way to
# it only.


@dataclass(frozen=True)
class Tree:
    """For each rank its ``parents`` (one; none at the root), its ``children``, and all ranks ``below`` it, including itself."""

    parents: tuple[tuple[int, ...], ...]
    children: tuple[tuple[int, ...], ...]
    below: tuple[frozenset[int], ...]


def double_binary_tree(rank: int, workers: int, dests: Ranks, _sources: Ranks) -> PeerPlan:
    half = -(-len(dests) // 2)
    places = [
        (tree, tree.parents[rank], tree.children[rank], rows)
        for tree, rows in zip(two_trees(workers), (tuple(range(half)), tuple(range(half, len(dests)))), strict=True)
    ]
    # A leaf waits for no rank on the way up, and no rank for it on the way down: its part goes with the inner node's first and
    # last round.
    leaf = [(parent, rows) for _, parents, children, rows in places if not children for parent in parents]
    inner = [(parent, rows) for _, parents, children, rows in places if children for parent in parents]
    return PeerPlan.of(
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


# Recursive halving-doubling, for any number of ranks.
#
# Source: R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication operations in MPICH, Int. J.
# High Performance Computing Applications 19 (2005): Rabenseifner's allreduce.
#
# Let p be the largest power of two that is at most n. If p < n, the first 2 (n - p) ranks pair up: the two of a pair
# exchange halves of the rows and combine one half each; then the odd one hands its half to the even one, and waits for
# the results. The p ranks that are left *halve*: in each of log2 p steps a rank exchanges half of the rows that it
# still works on with a partner, at distance p/2, p/4 ... 1, and combines the half that it keeps, until it holds the
# result of its share. Then they *double*: the same steps backwards, with results.
#
# Cost: 2 log2 p steps, and 3 more if p < n. A rank without a pair sends 2 (p - 1)/p R rows, up to rounding. Of a pair,
# the odd one sends R rows, the even one as one without, R/2 before that and R after it.


def halving_doubling(rank: int, workers: int, dests: Ranks, sources: Ranks) -> PeerPlan:
    power = 1 << (workers.bit_length() - 1)
    paired = 2 * (workers - power)
    if rank >= paired:
        return PeerPlan.of(_halve_and_double(rank - paired // 2, power, paired, dests, sources))
    whole: Rows = tuple(range(len(dests)))
    low, high = whole[: len(whole) // 2], whole[len(whole) // 2 :]
    if rank % 2:
        even = rank - 1
        return PeerPlan.of(
            [
                Round.of([Send(even, low)], [Receive(even, high, Mode.COMBINE)]),
                Round.of([Send(even, high)], [Receive(even, whole, Mode.TAKE)]),
            ]
        )
    odd = rank + 1
    return PeerPlan.of(
        [
            Round.of([Send(odd, high)], [Receive(odd, low, Mode.COMBINE)]),
            Round.of([], [Receive(odd, high, Mode.TAKE)]),
            *_halve_and_double(rank // 2, power, paired, dests, sources),
            Round.of([Send(odd, whole, bare(whole, dests, frozenset({odd})))], []),
        ]
    )


def _halve_and_double(number: int, power: int, paired: int, dests: Ranks, sources: Ranks) -> list[Round]:
    """The rounds of the rank that is ``number`` among the ``power`` that are left."""
    ranks = [2 * one if 2 * one < paired else one + paired // 2 for one in range(power)]
    numbers = {rank: one for one, rank in enumerate(ranks)}
    numbers |= {odd: odd // 2 for odd in range(1, paired, 2)}  # the even one stands in for both
    numbers[EVERYONE] = EVERYONE
    shares = owners(power, tuple(numbers[dest] for dest in dests), tuple(numbers[source] for source in sources))
    halving: list[Round] = []
    doubling: list[Round] = []
    first, distance = 0, power // 2
    while distance:
        mine, other = (first + distance, first) if number & distance else (first, first + distance)
        keep, give = _joined(shares[mine : mine + distance]), _joined(shares[other : other + distance])
        partner = ranks[number ^ distance]
        halving.append(Round.of([Send(partner, give)], [Receive(partner, keep, Mode.COMBINE)]))
        doubling.append(Round.of([Send(partner, keep, bare(keep, dests))], [Receive(partner, give, Mode.TAKE)]))
        first, distance = mine, distance // 2
    return [*halving, *reversed(doubling)]


def _joined(shares: tuple[Rows, ...]) -> Rows:
    return tuple(sorted(row for share in shares for row in share))


# Parameter server: every rank serves a share of the rows.
#
# Source: M. Li et al., Scaling distributed machine learning with the parameter server, OSDI 2014; a server on every
# worker, as in Y. Jiang et al., A unified architecture for accelerating distributed DNN training in heterogeneous
# GPU/CPU clusters, OSDI 2020, where there are no machines besides.
#
# Everyone sends each share to the rank that serves it, which combines them and sends the result back to all.
#
# Cost: 2 steps, the fewest there are. A rank sends R rows less its own share, and its own share n - 1 times, about 2 (n
# - 1)/n R; but n - 1 messages come to every rank at once.


def parameter_server(rank: int, workers: int, dests: Ranks, sources: Ranks) -> PeerPlan:
    """One rank's part. Each begins with the rank behind it, so that not all send to the same one first."""
    shares = owners(workers, dests, sources)
    own = shares[rank]
    others = [other % workers for other in range(rank + 1, rank + workers)]
    return PeerPlan.of(
        [
            Round.of(
                [Send(other, shares[other]) for other in others],
                [Receive(other, own, Mode.COMBINE) for other in reversed(others)],
            ),
            Round.of(
                [Send(other, own, bare(own, dests)) for other in others],
                [Receive(other, shares[other], Mode.TAKE) for other in reversed(others)],
            ),
        ]
    )


# The algorithms, one a file: pure functions of who one is and what the rows of the batch are.
#
# In their costs n is the number of ranks and R the number of rows, all of them from everyone and for everyone. Steps
# are the length of the longest chain of messages of which each waits for the one before; a message of no rows is not
# sent, so few rows may take fewer steps. A rank sends the rows of the table with their payload; rows without are headers of 14
# bytes.


Algorithm = Callable[[int, int, Ranks, Ranks], PeerPlan]
"""``plan(rank, workers, dests, sources)``: one rank's part; ``dests`` and ``sources`` as in :mod:`netsum.peers.plan`."""

ALGORITHMS: Final[Mapping[str, Algorithm]] = {
    "ring": ring,
    "halving_doubling": halving_doubling,
    "double_binary_tree": double_binary_tree,
    "parameter_server": parameter_server,
}


def make_plan(algorithm: str, rank: int, workers: int, dests: Ranks, sources: Ranks, chosen: str) -> PeerPlan:
    """One rank's plan for a batch; that of ``workers`` ranks fit together when all but ``rank`` are alike.

    Rows from one rank for one other go there directly, whatever the algorithm. ``auto`` takes the binomial tree where all rows
    are put together at one rank (reduce, broadcast), else the algorithm ``chosen`` for the batch, on every rank alike; but not
    two trees for rows that belong to ranks (reduce_scatter, all_gather), which would go to the trees' tops besides. It also takes
    the place of a file's plan, which is for all ranks, if some are evicted.
    """
    rows: Rows = tuple(range(len(dests)))
    direct = tuple(row for row in rows if EVERYONE not in (dests[row], sources[row]))
    if direct:
        rest = tuple(row for row in rows if EVERYONE in (dests[row], sources[row]))
        first = parameter_server(rank, workers, *_at(direct, dests, sources))
        others = make_plan(algorithm, rank, workers, *_at(rest, dests, sources), chosen)
        return PeerPlan(only(first, direct).rounds + only(others, rest).rounds)
    if algorithm.startswith(PLAN):
        known = read_plan(algorithm.removeprefix(PLAN))
        if len(known.hosts) == workers:
            return known.plan(rank, workers, dests, sources)
        algorithm = AUTO
    if algorithm != AUTO:
        return ALGORITHMS[algorithm](rank, workers, dests, sources)
    roots = {owner(dest, source) for dest, source in zip(dests, sources, strict=True)}
    if len(roots) == 1 and EVERYONE not in roots:
        return binomial_tree(rank, workers, dests, roots.pop())
    if chosen == "double_binary_tree" and roots != {EVERYONE}:
        chosen = "parameter_server"
    return ALGORITHMS[chosen](rank, workers, dests, sources)


def _at(rows: Rows, dests: Ranks, sources: Ranks) -> tuple[Ranks, Ranks]:
    return tuple(dests[row] for row in rows), tuple(sources[row] for row in rows)
