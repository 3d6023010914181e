"""Stage ``rewrite`` (egress): the addresses that each copy of a result gets."""

from __future__ import annotations

from dataclasses import dataclass

from netsum_controller.entries.entry import Entry


@dataclass(frozen=True)
class RewriteEntry(Entry, table="rewrite", action="to_member", key=("job_id", "replica")):
    """Replica ``replica`` (a source id) of job ``job_id``'s results goes to ``rank``, at this MAC, IP and UDP port."""

    job_id: int
    replica: int
    mac: int
    ip: int
    udp_port: int
    rank: int


@dataclass(frozen=True)
class SwitchRewriteEntry(Entry, table="rewrite", action="to_switch", key=("job_id", "replica")):
    """Replica ``replica`` (a source id) of job ``job_id``'s results goes down to a child switch, from ``udp_port``, that of the
    edge between the two."""

    job_id: int
    replica: int
    mac: int
    ip: int
    udp_port: int
