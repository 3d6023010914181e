"""Stage ``member``: who may contribute, from which port, in this epoch."""

from __future__ import annotations

from dataclasses import dataclass

from netsum_controller.entries.entry import Entry


@dataclass(frozen=True)
class MemberEntry(Entry, table="member", action="member_here", key=("job_id", "src_id", "ingress_port")):
    """Source ``src_id`` of job ``job_id`` is on ``ingress_port`` and sends from UDP port ``udp_port`` in this epoch; ``source``
    is its bit, ``workers`` how many workers it stands for (one, unless it is a switch). The entry's direct counter counts the
    packets that it lets in."""

    job_id: int
    src_id: int
    ingress_port: int
    source: int
    workers: int
    udp_port: int


@dataclass(frozen=True)
class ParentEntry(Entry, table="member", action="parent_here", key=("job_id", "src_id", "ingress_port")):
    """A parent of this switch is on ``ingress_port``, where the switch is source ``src_id``. Its packets are for UDP port
    ``udp_port`` in this epoch, which is also the source port of the switch's partials."""

    job_id: int
    src_id: int
    ingress_port: int
    udp_port: int
