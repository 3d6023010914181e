"""Recursive halving-doubling, for any number of ranks.

Source: R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication operations in MPICH, Int. J. High
Performance Computing Applications 19 (2005): Rabenseifner's allreduce.

Let p be the largest power of two that is at most n. If p < n, the first 2 (n - p) ranks pair up: the two of a pair exchange
halves of the rows and combine one half each; then the odd one hands its half to the even one, and waits for the results. The
p ranks that are left *halve*: in each of log2 p steps a rank exchanges half of the rows that it still works on with a partner, at
distance p/2, p/4 ... 1, and combines the half that it keeps, until it holds the result of its share. Then they *double*: the
same steps backwards, with results.

Cost: 2 log2 p steps, and 3 more if p < n. A rank without a pair sends 2 (p - 1)/p R rows, up to rounding. Of a pair, the odd one
sends R rows, the even one as one without, R/2 before that and R after it.
"""

from __future__ import annotations

from netsum.peers.plan import Mode, Plan, Receive, Round, Rows, Send
from netsum.peers.plans.rows import Ranks, bare, owners
from netsum.wire.schema import EVERYONE


def plan(rank: int, workers: int, dests: Ranks, sources: Ranks) -> Plan:
    power = 1 << (workers.bit_length() - 1)
    paired = 2 * (workers - power)
    if rank >= paired:
        return Plan.of(_halve_and_double(rank - paired // 2, power, paired, dests, sources))
    whole: Rows = tuple(range(len(dests)))
    low, high = whole[: len(whole) // 2], whole[len(whole) // 2 :]
    if rank % 2:
        even = rank - 1
        return Plan.of(
            [
                Round.of([Send(even, low)], [Receive(even, high, Mode.COMBINE)]),
                Round.of([Send(even, high)], [Receive(even, whole, Mode.TAKE)]),
            ]
        )
    odd = rank + 1
    return Plan.of(
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
