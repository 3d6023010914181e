# SPDX-License-Identifier: MIT
"""Counters of a communicator."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass
class Stats:
    """Statistics of a communicator. Bytes are UDP payload: netsum header and gradients. Where ranks of a host share memory, the
    packets of the rank that contributes for all are those on its link, and the others' are those in memory."""

    blocks: int = 0
    packets_sent: int = 0
    packets_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    retransmissions: int = 0
    fast_retransmissions: int = 0
    duplicates: int = 0
    stale: int = 0
    refused: int = 0
    malformed: int = 0
    notices: int = 0
    redone: int = 0
    degraded: int = 0
    """Blocks with a partial result, because a rank was late."""
    late: int = 0
    """Blocks whose result lacks this rank's contribution."""
    lost: int = 0
    """Blocks whose result was gone before this rank asked for it."""
    ahead: int = 0
    """Results of blocks that this rank had not reached: the others went on without it."""
    backoffs: int = 0
    """Results that asked this rank to give way to a job of a higher priority."""
    congested: int = 0
    """Packets that a congested link has marked, on the way here or as another rank's contribution on its way to the switch."""
    multicast: int = 0
    """Packets that came by IP multicast, as to other members."""
    multicast_lost: int = 0
    """Results that this rank had to fetch because they had not come by IP multicast."""
    stored: int = 0
    """Bytes of results, and without a switch of partial sums, that were written to this host's memory."""
    reads: int = 0
    """Requests for packets of chains that a gap, or a long silence, shows to be missing (only without a switch)."""
    resumes: int = 0
    """Switch restarts survived."""
    rtt: float = 0.0
    refusals: dict[str, int] = field(default_factory=dict)

    def plus(self, other: Stats) -> Stats:
        """These and those of another job; the round trip is this one's."""
        counts = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self) if each.type == "int"}
        refusals = {
            name: self.refusals.get(name, 0) + other.refusals.get(name, 0) for name in {**self.refusals, **other.refusals}
        }
        return Stats(**counts, rtt=self.rtt, refusals=refusals)
