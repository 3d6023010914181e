"""Bytes of each collective, measured at the hosts, next to the formulas of the collectives' docstrings.

Every block costs a header on top, out and in, at every rank, and every call one small block more, with which the ranks agree on
what they call. Besides, blocks are sent again: when a packet seems lost, and when a result has come as a notice, because the last
contribution was one of no size and a result does not fit such a packet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np
from netsum.communicator import Communicator
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES
from netsum_testbed.verify.data import Array

RANKS: Final = 4
SIZE: Final = 1 << 18
"""S, in bytes."""


Share = int | Fraction


class Rule(NamedTuple):
    """What one rank's traffic is, in S: as text, and as numbers for n ranks: times S, bytes out, in, and of the call's blocks
    altogether. ``collective`` may say more about the call."""

    collective: str
    who: str
    sent: str
    received: str
    sizes: Callable[[int], tuple[Share, Share, Share]]


HALF: Final = Fraction(1, 2)


def _part(n: int) -> Fraction:
    return Fraction(n - 1, n)


RULES: Final = (
    Rule("allreduce", "each", "S", "S", lambda _: (1, 1, 1)),
    Rule("allreduce bits=16", "each", "S/2", "S/2", lambda _: (HALF, HALF, HALF)),
    Rule("allreduce bits=8", "each", "S/4", "S/4", lambda _: (HALF / 2, HALF / 2, HALF / 2)),
    Rule("allreduce half zeros", "each", "S/2", "S/2", lambda _: (HALF, HALF, HALF)),
    Rule("reduce", "root", "S", "S", lambda _: (1, 1, 1)),
    Rule("reduce", "others", "S", "0", lambda _: (1, 0, 1)),
    Rule("reduce_scatter", "each", "S", "S/n", lambda n: (1, Fraction(1, n), 1)),
    Rule("broadcast", "root", "S", "S", lambda _: (1, 1, 1)),
    Rule("broadcast", "others", "S (room)", "S", lambda _: (1, 1, 1)),
    Rule("all_gather", "each", "S + (n-1)S (room)", "nS", lambda n: (n, n, n)),
    Rule("gather", "root", "(n-1)S (room)", "(n-1)S", lambda n: (n - 1, n - 1, n - 1)),
    Rule("gather", "others", "S", "0", lambda n: (1, 0, n - 1)),
    Rule("scatter", "root", "S(n-1)/n", "0", lambda n: (_part(n), 0, _part(n))),
    Rule("scatter", "others", "S/n (room)", "S/n", lambda n: (Fraction(1, n), Fraction(1, n), _part(n))),
    Rule(
        "all_to_all",
        "each",
        "2S(n-1)/n (half room)",
        "S(n-1)/n",
        lambda n: (2 * _part(n), _part(n), n - 1),
    ),
    Rule("barrier", "each", "0", "0", lambda _: (0, 0, 0)),
)


@dataclass(frozen=True)
class Way:
    """One direction: bytes that the formula expects, headers included, and bytes that there were."""

    formula: str
    expected: int
    measured: int


@dataclass(frozen=True)
class Volume:
    """What one rank (the first of those that ``who`` names) sent and received in one call. ``again``: packets sent again."""

    collective: str
    who: str
    sent: Way
    received: Way
    again: int

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def expected(rule: Rule, workers: int, size: int, block_bytes: int) -> tuple[int, int]:
    """Bytes out and in by a rule, with the headers and the agreement; S/n is a whole number of blocks."""
    out, into, blocks = rule.sizes(workers)
    headers = HEADER_BYTES * int(blocks * size / block_bytes) + HEADER_BYTES + CHUNK_BYTES
    return int(out * size) + headers, int(into * size) + headers


def measure(communicators: Sequence[Communicator], size: int = SIZE) -> list[Volume]:
    """Make each call once, of float32s of ``size`` bytes a rank, on a job of its own where nothing is lost."""
    ranks, block_bytes = len(communicators), communicators[0].descriptor.block_bytes
    volumes: list[Volume] = []
    taken: dict[str, list[tuple[int, int, int]]] = {}
    take(communicators, "allreduce", size)  # the round trip time is known from here on
    for rule in RULES:
        if rule.collective not in taken:
            taken[rule.collective] = take(communicators, rule.collective, size)
        sent, received, again = taken[rule.collective][0 if rule.who in ("root", "each") else 1]
        out, into = expected(rule, ranks, size, block_bytes)
        ways = Way(rule.sent, out, sent), Way(rule.received, into, received)
        volumes.append(Volume(rule.collective, rule.who, *ways, again))
    return volumes


def take(
    communicators: Sequence[Communicator],
    name: str,
    size: int,
    settle: Callable[[Communicator], None] = lambda _: None,
) -> list[tuple[int, int, int]]:
    """Bytes that each rank has sent and received for one call, and packets that it has sent again; the root is rank 0.
    ``settle(comm)`` is called between the call and the counting."""

    def counts(comm: Communicator) -> Array:
        stats = comm.stats
        return np.array([stats.bytes_sent, stats.bytes_received, stats.retransmissions])

    def make(comm: Communicator) -> tuple[int, int, int]:
        before = counts(comm)
        count = size // 4 // (comm.size if name == "scatter" and comm.rank else 1)
        given = np.full(count, comm.rank + 1, np.float32)
        collective, _, how = name.partition(" ")
        options = {"bits": int(how.removeprefix("bits="))} if how.startswith("bits=") else {}
        if how == "half zeros":
            given[: count // 2] = 0
        getattr(comm, collective)(*([] if name == "barrier" else [given]), **options)
        settle(comm)
        sent, received, again = (counts(comm) - before).tolist()
        return sent, received, again

    with ThreadPoolExecutor(len(communicators)) as pool:
        return list(pool.map(make, communicators))
