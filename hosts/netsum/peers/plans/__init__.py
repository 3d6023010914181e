"""The algorithms, one a file: pure functions of who one is and what the rows of the batch are.

In their costs n is the number of ranks and R the number of rows, all of them from everyone and for everyone. Steps are the
length of the longest chain of messages of which each waits for the one before; a message of no rows is not sent, so few rows
may take fewer steps. A rank sends so many rows with their payload; rows without are headers of 14 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from netsum.descriptor import AUTO, PLAN
from netsum.peers.plan import Plan, Rows
from netsum.peers.plans import binomial_tree, double_binary_tree, halving_doubling, parameter_server, ring
from netsum.peers.plans.from_file import read_plan
from netsum.peers.plans.rows import Ranks, only, owner
from netsum.wire.schema import EVERYONE

Algorithm = Callable[[int, int, Ranks, Ranks], Plan]
"""``plan(rank, workers, dests, sources)``: one rank's part; ``dests`` and ``sources`` as in :mod:`netsum.peers.plans.rows`."""

ALGORITHMS: Final[Mapping[str, Algorithm]] = {
    "ring": ring.plan,
    "halving_doubling": halving_doubling.plan,
    "double_binary_tree": double_binary_tree.plan,
    "parameter_server": parameter_server.plan,
}


def make_plan(algorithm: str, rank: int, workers: int, dests: Ranks, sources: Ranks, chosen: str) -> Plan:
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
        first = parameter_server.plan(rank, workers, *_at(direct, dests, sources))
        others = make_plan(algorithm, rank, workers, *_at(rest, dests, sources), chosen)
        return Plan(only(first, direct).rounds + only(others, rest).rounds)
    if algorithm.startswith(PLAN):
        known = read_plan(algorithm.removeprefix(PLAN))
        if len(known.hosts) == workers:
            return known.plan(rank, workers, dests, sources)
        algorithm = AUTO
    if algorithm != AUTO:
        return ALGORITHMS[algorithm](rank, workers, dests, sources)
    roots = {owner(dest, source) for dest, source in zip(dests, sources, strict=True)}
    if len(roots) == 1 and EVERYONE not in roots:
        return binomial_tree.plan(rank, workers, dests, roots.pop())
    if chosen == "double_binary_tree" and roots != {EVERYONE}:
        chosen = "parameter_server"
    return ALGORITHMS[chosen](rank, workers, dests, sources)


def _at(rows: Rows, dests: Ranks, sources: Ranks) -> tuple[Ranks, Ranks]:
    return tuple(dests[row] for row in rows), tuple(sources[row] for row in rows)
