# SPDX-License-Identifier: MIT
"""The rings of ranks along which chains go.

Where a switch joins all hosts, one ring loads each host's link alike in both directions. On a torus, hosts are joined directly,
and each has several links. There, rings are made that go over direct links only and together use every link equally often, each
for an equal share of the array: no link idles and none carries two shares at once.

The rings are found like this. A step along one side, to one direction, moves every rank at once; it is a permutation of the
ranks, and together these permutations use every link, in each direction, once. Two of them may trade: a rank's next in one
becomes its next in the other and the reverse, and so on along the chain of ranks for which that is then needed too. Trades at
random, those that join cycles and now and then one that does not, go on until every permutation is one cycle, a ring. (Where
there is no such set, it takes every link twice, and twice as many rings.) The random numbers are the same on every rank.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice, product
from math import exp, prod
from typing import Final

from netsum.descriptor import torus_sides

Ring = tuple[int, ...]
"""Ranks in the order in which packets visit them; the first comes after the last."""

_WORK: Final = 1_500_000
"""Most trades of a start, times ranks: a second or less."""
_TRADES: Final = 20_000
_SIZES: Final = (10, 6, 20, 1 << 20)
"""Most ranks in a trade, a number for each two starts: large tori need small trades, but not always."""
_HEAT: Final = 0.3
"""A trade that makes d cycles more is done with probability e^(-d / heat)."""


def rings_of(algorithm: str, ranks: Sequence[int]) -> tuple[Ring, ...]:
    """The rings for these ranks, in ascending order. Ranks that are not there (any more) are passed by."""
    sides = torus_sides(algorithm)
    if not sides:
        return (tuple(ranks),)
    there = set(ranks)
    return tuple(tuple(rank for rank in ring if rank in there) for ring in torus_rings(sides))


@lru_cache(maxsize=16)
def torus_rings(sides: tuple[int, ...]) -> tuple[Ring, ...]:
    """Rings through all places of a torus, which are numbered row by row. As many as a host has neighbors, or twice as many,
    unless no even set is found: then those of the best that was."""
    best: list[Ring] = [tuple(range(prod(sides)))]
    for start in range(2 * len(_SIZES)):
        found = _trade(_steps(sides) * (1 + start % 2), _SIZES[start // 2], random.Random(start))
        whole = [_ring(step) for step in found if _cycles(step) == 1]
        if len(whole) == len(found):
            return tuple(whole) or (best[0],)
        best = max(best, whole, key=len)
    return tuple(best)


def _steps(sides: Sequence[int]) -> list[list[int]]:
    """For each side and direction: the next rank of every rank. Along a side of 2 both directions are the same wire."""
    places = list(product(*map(range, sides)))
    number = {place: rank for rank, place in enumerate(places)}
    return [
        [number[(*place[:axis], (place[axis] + step) % side, *place[axis + 1 :])] for place in places]
        for axis, side in enumerate(sides)
        for step in ((), (1,), (1, -1))[min(side, 3) - 1]
    ]


def _trade(steps: list[list[int]], most: int, chance: random.Random) -> list[list[int]]:
    """Trade until each is one cycle, or for long enough, ``most`` ranks at a time."""
    cycles = [_cycles(step) for step in steps]
    for _ in range(min(_TRADES, _WORK // len(steps[0])) if steps else 0):
        if sum(cycles) == len(steps):
            break
        one, other = int(chance.random() * len(steps)), int(chance.random() * len(steps))
        ranks = list(islice(_needed(steps[one], steps[other], int(chance.random() * len(steps[0]))), most + 1))
        if one == other or len(ranks) > most:
            continue
        ours, theirs = steps[one][:], steps[other][:]
        for rank in ranks:
            ours[rank], theirs[rank] = theirs[rank], ours[rank]
        more = _cycles(ours) + _cycles(theirs) - cycles[one] - cycles[other]
        if more <= 0 or chance.random() < exp(-more / _HEAT):
            steps[one], steps[other] = ours, theirs
            cycles[one], cycles[other] = _cycles(ours), _cycles(theirs)
    return steps


def _needed(ours: list[int], theirs: list[int], rank: int) -> Iterator[int]:
    """The ranks that must trade together with this one, so that every rank still is next to another once."""
    first = rank
    yield rank
    while (rank := ours.index(theirs[rank])) != first:
        yield rank


def _cycles(step: Sequence[int]) -> int:
    left, found = [True] * len(step), 0
    for rank in range(len(step)):
        found += left[rank]
        while left[rank]:
            left[rank] = False
            rank = step[rank]  # noqa: PLW2901
    return found


def _ring(step: Sequence[int]) -> Ring:
    ring = [0]
    while (following := step[ring[-1]]) != 0:
        ring.append(following)
    return tuple(ring)
