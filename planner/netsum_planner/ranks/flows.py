"""Who sends to whom at the same time in an allreduce, by each of netsum's host algorithms (:mod:`netsum.peers.plans`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from netsum.peers.plans.double_binary_tree import two_trees

Flow = tuple[int, int]
"""From a rank to a rank."""


class Step(NamedTuple):
    """Flows at the same time, each of ``share`` of the array; the same flows ``times`` in a row."""

    flows: tuple[Flow, ...]
    share: Fraction
    times: int = 1


def ring(ranks: int) -> list[Step]:
    return [Step(tuple((rank, (rank + 1) % ranks) for rank in range(ranks)), Fraction(1, ranks), 2 * (ranks - 1))]


def halving_doubling(ranks: int) -> list[Step]:
    """Halving and doubling have the same flows. Unless ``ranks`` is a power of two, the first pair up before and after."""
    power = 1 << (ranks.bit_length() - 1)
    pairs = [(even, even + 1) for even in range(0, 2 * (ranks - power), 2)]
    left = [*(even for even, _ in pairs), *range(2 * len(pairs), ranks)]
    half = Fraction(1, 2)
    steps = []
    if pairs:
        odd_to_even = tuple((odd, even) for even, odd in pairs)
        steps += [Step((*pairs, *odd_to_even), half), Step(odd_to_even, half)]
    for bit in reversed(range(power.bit_length() - 1)):
        flows = tuple((left[number], left[number ^ 1 << bit]) for number in range(power))
        steps.append(Step(flows, Fraction(1 << bit, power), 2))
    if pairs:
        steps.append(Step(tuple(pairs), Fraction(1)))
    return steps


def double_binary_tree(ranks: int) -> list[Step]:
    """Once the pipeline is full, all children of both trees send up at once, and all parents down."""
    up = tuple((child, parent) for tree in two_trees(ranks) for child in range(ranks) for parent in tree.parents[child])
    return [Step(up, Fraction(1, 2)), Step(tuple((parent, child) for child, parent in up), Fraction(1, 2))]


def parameter_server(ranks: int) -> list[Step]:
    flows = tuple((one, other) for one in range(ranks) for other in range(ranks) if one != other)
    return [Step(flows, Fraction(1, ranks), 2)]


ALGORITHMS: Final[Mapping[str, Callable[[int], list[Step]]]] = {
    "ring": ring,
    "halving_doubling": halving_doubling,
    "double_binary_tree": double_binary_tree,
    "parameter_server": parameter_server,
}
