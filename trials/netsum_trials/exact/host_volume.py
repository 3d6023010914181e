"""Bytes of each collective where members combine themselves: what all ranks send together, next to the formulas.

Every algorithm moves the same in all, and differs in who sends it and when: but for the double binary tree, whose trees have
their own tops, so that what is for one rank, or of one, takes the way from or to the top besides; and for halving-doubling, if
the number of ranks is no power of two.

Measured bytes are those of all frames: payload, 14 bytes a row, heads, acknowledgements, the agreement, and a barrier behind
each call, since a rank that has its own results may still have something to send.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Final

from netsum.communicator import Communicator
from netsum.peers.plans.double_binary_tree import two_trees

from netsum_trials.exact.volume import SIZE, take

Rule = tuple[str, Callable[[int], Fraction]]

RULES: Final[dict[str, Rule]] = {
    "allreduce": ("2(n-1)S", lambda n: Fraction(2 * (n - 1))),
    "allreduce bits=16": ("(n-1)S", lambda n: Fraction(n - 1)),
    "allreduce bits=8": ("(n-1)S/2", lambda n: Fraction(n - 1, 2)),
    "allreduce half zeros": ("(n-1)S", lambda n: Fraction(n - 1)),
    "reduce": ("(n-1)S", lambda n: Fraction(n - 1)),
    "reduce_scatter": ("(n-1)S", lambda n: Fraction(n - 1)),
    "broadcast": ("(n-1)S", lambda n: Fraction(n - 1)),
    "all_gather": ("n(n-1)S", lambda n: Fraction(n * (n - 1))),
    "gather": ("(n-1)S", lambda n: Fraction(n - 1)),
    "scatter": ("(n-1)S/n", lambda n: Fraction(n - 1, n)),
    "all_to_all": ("(n-1)S", lambda n: Fraction(n - 1)),
    "barrier": ("0", lambda _: Fraction(0)),
}
"""Of each collective: what all ranks send together, in words and in S for n ranks."""


@dataclass(frozen=True)
class HostVolume:
    """What all ranks sent in one call: bytes of payload by the formula, and bytes that there were. ``again``: messages sent
    again."""

    collective: str
    formula: str
    expected: int
    measured: int
    again: int

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def expected(collective: str, algorithm: str, workers: int, size: int) -> tuple[str, int]:
    """The formula, and the bytes that it says; the root is rank 0."""
    words, times = RULES[collective]
    share = times(workers)
    if algorithm == "double_binary_tree":
        if collective in ("reduce", "broadcast"):
            return f"{words} + way", int((share + _way(0, workers)) * size)
        if collective in ("reduce_scatter", "all_gather"):
            words = f"> {words}"  # the ways, too; which tree a rank's rows are of depends on the batches
    return words, int(share * size)


def _way(rank: int, workers: int) -> Fraction:
    """Steps from a rank to the top, on the average of the two trees, which have half of the rows each."""
    steps = 0
    for tree in two_trees(workers):
        at = rank
        while tree.parents[at]:
            (at,) = tree.parents[at]
            steps += 1
    return Fraction(steps, 2)


def measure(communicators: Sequence[Communicator], size: int = SIZE) -> list[HostVolume]:
    """Make each call once, of float32s of ``size`` bytes a rank, on a job of its own where nothing is lost."""
    algorithm, ranks = communicators[0].descriptor.algorithm, len(communicators)
    take(communicators, "allreduce", size, settle=Communicator.barrier)  # the round trip time is known from here on
    volumes = []
    for collective in RULES:
        taken = take(communicators, collective, size, settle=Communicator.barrier)
        words, least = expected(collective, algorithm, ranks, size)
        sent, again = (sum(each[which] for each in taken) for which in (0, 2))
        volumes.append(HostVolume(collective, words, least, sent, again))
    return volumes
