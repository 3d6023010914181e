"""What each collective moves on each link, as formulas.

A job of n ranks, S bytes each; below the switch in question are m of them, r of those not the call's root. In a tree a block
travels every link once up and once down, with one header each way, whatever the number of hosts below: a switch sends one
partial up, and its parent's result comes down to it in full, whoever may want it.

Blocks of one rank for another (gather, scatter, all_to_all) can be more: the formula is their payload. A partial without payload
goes up as long as the packet that finished it was (the receiver's packets are as long as the block, the others' are only a
header); and where the last packet at a switch was a short one, the result does not fit it and is asked for again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from netsum.frames import PREFIX_BYTES
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES

Share = int | Fraction
"""In S."""


class Place(NamedTuple):
    """Where a link is: of ``n`` ranks ``m`` are below it, and the call's root is one of them or not."""

    n: int
    m: int
    with_root: bool

    @property
    def r(self) -> int:
        """Ranks below that are not the root."""
        return self.m - self.with_root


class Formula(NamedTuple):
    """What one call moves on a link, in words and as a number."""

    words: str
    share: Callable[[Place], Share]


@dataclass(frozen=True)
class Rule:
    """What one call moves: on the link of the host of rank 0 (the root, where the call has one), from a switch to its parent, and
    back. ``blocks``: payload of the call's blocks altogether, for n ranks. ``least``: the links of switches may have more."""

    collective: str
    host: Formula
    up: Formula
    down: Formula
    blocks: Callable[[int], Share]
    least: bool = False


HALF: Final = Fraction(1, 2)
QUARTER: Final = Fraction(1, 4)


def _same(name: str, words: str = "S", share: Share = 1) -> Rule:
    formula = Formula(words, lambda _: share)
    return Rule(name, formula, formula, formula, lambda _: share)


def _others(n: int) -> Fraction:
    """Of n parts all but a rank's own."""
    return Fraction(n - 1, n)


_N_TIMES: Final = Formula("nS", lambda place: place.n)

RULES: Final = (
    _same("allreduce"),
    _same("allreduce bits=16", "S/2", HALF),
    _same("allreduce bits=8", "S/4", QUARTER),
    _same("allreduce half zeros", "S/2", HALF),
    _same("reduce"),
    _same("reduce_scatter"),
    _same("broadcast"),
    Rule("all_gather", _N_TIMES, _N_TIMES, _N_TIMES, lambda n: n),
    Rule(
        "gather",
        Formula("(n-1)S", lambda place: place.n - 1),
        Formula("rS", lambda place: place.r),
        Formula("(n-1)S", lambda place: place.n - 1),
        lambda n: n - 1,
        least=True,
    ),
    Rule(
        "scatter",
        Formula("S(n-1)/n", lambda place: _others(place.n)),
        Formula("root's: S(n-1)/n", lambda place: _others(place.n) if place.with_root else 0),
        Formula("S(n-1)/n", lambda place: _others(place.n)),
        _others,
        least=True,
    ),
    Rule(
        "all_to_all",
        Formula("2S(n-1)/n", lambda place: 2 * _others(place.n)),
        Formula("mS(n-1)/n", lambda place: place.m * _others(place.n)),
        Formula("(n-1)S", lambda place: place.n - 1),
        lambda n: n - 1,
        least=True,
    ),
    _same("barrier", "0", 0),
)


def frames(rule: Rule, n: int, size: int, block_bytes: int) -> int:
    """Frames that a call sends over a link in one direction: one a block, and one for the ranks to agree on the call."""
    return int(rule.blocks(n) * size / block_bytes) + 1


def octets(share: Share, count: int, size: int) -> int:
    """Bytes of so many frames with that share of ``size`` in them; the agreement is one chunk."""
    return int(share * size) + CHUNK_BYTES + count * (PREFIX_BYTES + HEADER_BYTES)
