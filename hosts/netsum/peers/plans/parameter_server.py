"""Parameter server: every rank serves a share of the rows.

Source: M. Li et al., Scaling distributed machine learning with the parameter server, OSDI 2014; a server on every worker, as in
Y. Jiang et al., A unified architecture for accelerating distributed DNN training in heterogeneous GPU/CPU clusters, OSDI 2020,
where there are no machines besides.

Everyone sends each share to the rank that serves it, which combines them and sends the result back to all.

Cost: 2 steps, the fewest there are. A rank sends R rows less its own share, and its own share n - 1 times, about 2 (n - 1)/n R;
but n - 1 messages come to every rank at once.
"""

from __future__ import annotations

from netsum.peers.plan import Mode, Plan, Receive, Round, Send
from netsum.peers.plans.rows import Ranks, bare, owners


def plan(rank: int, workers: int, dests: Ranks, sources: Ranks) -> Plan:
    """One rank's part. Each begins with the rank behind it, so that not all send to the same one first."""
    shares = owners(workers, dests, sources)
    own = shares[rank]
    others = [other % workers for other in range(rank + 1, rank + workers)]
    return Plan.of(
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
