"""Ring: a reduce-scatter and an all-gather around a ring of the ranks.

Source: P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, J. Parallel and
Distributed Computing 69 (2009).

Every rank owns a share of the rows. In each step it sends a share to the next rank, which combines it with its own rows: first
the share before its own, then the one before that, and so on. After n - 1 steps every rank holds the result of its share, and
the results go around the ring in the same way.

Cost: 2 (n - 1) steps. A rank sends 2R rows less its own share and the next rank's, about 2 (n - 1)/n R: the least there is. It
sends and receives one message at a time.
"""

from __future__ import annotations

from netsum.peers.plan import Mode, Plan, Receive, Round, Send
from netsum.peers.plans.rows import Ranks, bare, owners


def plan(rank: int, workers: int, dests: Ranks, sources: Ranks) -> Plan:
    shares = owners(workers, dests, sources)
    following, before = (rank + 1) % workers, (rank - 1) % workers
    rounds = []
    for step in range(1, workers):
        out, back = shares[rank - step], shares[(before - step) % workers]
        rounds.append(Round.of([Send(following, out)], [Receive(before, back, Mode.COMBINE)]))
    for step in range(workers - 1):
        out, back = shares[rank - step], shares[before - step]
        rounds.append(Round.of([Send(following, out, bare(out, dests))], [Receive(before, back, Mode.TAKE)]))
    return Plan.of(rounds)
