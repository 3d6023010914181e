# SPDX-License-Identifier: MIT
"""Formulas of what each collective moves: the one table of formulas, in S, the bytes of a rank's array.

A job has n ranks; m of them are below the switch in question, r of those are not the call's root. Every block costs a header in
each direction at every rank, and every call one more small block, by which the ranks agree on the call. In a tree a block
travels every link once up and once down, whatever the number of hosts below: a switch sends one partial up, and its parent's
result comes down to it in full, for whichever rank it is.

The blocks of broadcast, all_gather, gather, scatter and all_to_all have one payload, which crosses a link as soon as it comes.
Unless it comes last, a header follows when all ranks have answered: up to one more for each block, down to a rank that gets
payloads, and on links between switches. Such a link's headers are those of all blocks, and its payload, down, is that of all.

Without a switch, all algorithms move the same in total and differ in who sends it and when; but the double binary tree moves
what is for one rank, or from one, via the tops of its two trees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from netsum.frames import PREFIX_BYTES
from netsum.peers.schedules import two_trees
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES

Share = int | Fraction
"""In S."""
HALF: Final = Fraction(1, 2)


class Place(NamedTuple):
    """A place where bytes are counted: ``m`` of ``n`` ranks are below a link, with or without the call's root."""

    n: int
    m: int = 0
    with_root: bool = False

    @property
    def r(self) -> int:
        """Ranks below that are not the root."""
        return self.m - self.with_root

    @property
    def others(self) -> Fraction:
        """The share of all parts but a rank's own."""
        return Fraction(self.n - 1, self.n)


class Formula(NamedTuple):
    """Bytes that one call moves, in words and as a number."""

    words: str
    share: Callable[[Place], Share]


@dataclass(frozen=True)
class Cost:
    """Formulas of one call. ``ranks``: what a rank sends and receives, the root first; ``up``, ``down``: between a switch and
    its parent; ``hosts``: what all ranks together send without a switch. ``blocks``: payload of all the call's blocks."""

    collective: str
    blocks: Callable[[Place], Share]
    ranks: dict[str, tuple[Formula, Formula]]
    up: Formula
    down: Formula
    hosts: Formula

    @property
    def root(self) -> Formula:
        """Bytes that rank 0 sends, which is the root if the call has one."""
        return next(iter(self.ranks.values()))[0]


def _times(words: str, share: Share) -> Formula:
    return Formula(words, lambda _: share)


NOTHING: Final = _times("0", 0)
ONE: Final = _times("S", 1)
ALL: Final = Formula("nS", lambda at: at.n)
REST: Final = Formula("(n-1)S", lambda at: at.n - 1)
PART: Final = Formula("S/n", lambda at: Fraction(1, at.n))
OTHERS: Final = Formula("S(n-1)/n", lambda at: at.others)


def _allreduce(how: str, words: str, share: Share, hosts: Formula) -> Cost:
    same = _times(words, share)
    return Cost(f"allreduce{how}", same.share, {"each": (same, same)}, same, same, hosts)


COSTS: Final = (
    _allreduce("", "S", 1, Formula("2(n-1)S", lambda at: 2 * (at.n - 1))),
    _allreduce(" bits=16", "S/2", HALF, REST),
    _allreduce(" bits=8", "S/4", HALF / 2, Formula("(n-1)S/2", lambda at: HALF * (at.n - 1))),
    _allreduce(" half zeros", "S/2", HALF, REST),
    Cost("reduce", ONE.share, {"root": (ONE, ONE), "others": (ONE, NOTHING)}, ONE, ONE, REST),
    Cost("reduce_scatter", ONE.share, {"each": (ONE, PART)}, ONE, ONE, REST),
    Cost("broadcast", ONE.share, {"root": (ONE, ONE), "others": (NOTHING, ONE)},
         Formula("root's: S", lambda at: int(at.with_root)), ONE, REST),
    Cost("all_gather", ALL.share, {"each": (ONE, ALL)},
         Formula("mS", lambda at: at.m), ALL, Formula("n(n-1)S", lambda at: at.n * (at.n - 1))),
    Cost("gather", REST.share, {"root": (NOTHING, REST), "others": (ONE, NOTHING)},
         Formula("rS", lambda at: at.r), REST, REST),
    Cost("scatter", OTHERS.share, {"root": (OTHERS, NOTHING), "others": (NOTHING, PART)},
         Formula("root's: S(n-1)/n", lambda at: at.others if at.with_root else 0), OTHERS,
         Formula("(n-1)S/n", OTHERS.share)),
    Cost("all_to_all", REST.share, {"each": (OTHERS, OTHERS)},
         Formula("mS(n-1)/n", lambda at: at.m * at.others), REST, REST),
    Cost("barrier", NOTHING.share, {"each": (NOTHING, NOTHING)}, NOTHING, NOTHING, NOTHING),
)  # fmt: skip


def headers(cost: Cost, n: int, size: int, block_bytes: int, each: int = HEADER_BYTES) -> int:
    """Bytes that a call sends in one direction besides payload: a header of so many bytes per block, and the agreement."""
    return frames(cost, n, size, block_bytes) * each + CHUNK_BYTES


def frames(cost: Cost, n: int, size: int, block_bytes: int) -> int:
    """Packets that a call sends in one direction: one per block, and one by which the ranks agree on the call."""
    return int(cost.blocks(Place(n)) * size / block_bytes) + 1


FRAME_HEADERS: Final = PREFIX_BYTES + HEADER_BYTES


def between_hosts(cost: Cost, algorithm: str, n: int, size: int) -> tuple[str, int]:
    """The formula without a switch, and its bytes of payload; the root is rank 0."""
    words, share = cost.hosts.words, cost.hosts.share(Place(n))
    if algorithm == "double_binary_tree":
        if cost.collective in ("reduce", "broadcast"):
            return f"{words} + way", int((share + _way(0, n)) * size)
        if cost.collective in ("reduce_scatter", "all_gather"):
            words = f"> {words}"  # plus the ways; which tree a rank's rows are in depends on the batches
    return words, int(share * size)


def _way(rank: int, workers: int) -> Fraction:
    """Steps from a rank to the top, averaged over the two trees, which have half of the rows each."""
    steps = 0
    for tree in two_trees(workers):
        at = rank
        while tree.parents[at]:
            (at,) = tree.parents[at]
            steps += 1
    return Fraction(steps, 2)
