"""Stage ``member``: who may contribute, from which port, in this epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from netsum_controller.stages.entry import Entry


@dataclass(frozen=True)
class MemberEntry(Entry):
    """Source ``src_id`` of job ``job_id`` is on ``ingress_port`` and sends from UDP port ``udp_port`` in this epoch; ``source``
    is its bit, ``workers`` how many workers it stands for (one, unless it is a switch). The entry's direct counter counts the
    packets that it lets in."""

    TABLE: ClassVar = "member"
    ACTION: ClassVar = "member_here"
    KEY: ClassVar = ("job_id", "src_id", "ingress_port")

    job_id: int
    src_id: int
    ingress_port: int
    source: int
    workers: int
    udp_port: int


@dataclass(frozen=True)
class ParentEntry(Entry):
    """A parent of this switch is on ``ingress_port``, where the switch is source ``src_id``. Its packets are for UDP port
    ``udp_port`` in this epoch, which is also the source port of the switch's partials."""

    TABLE: ClassVar = "member"
    ACTION: ClassVar = "parent_here"
    KEY: ClassVar = ("job_id", "src_id", "ingress_port")

    job_id: int
    src_id: int
    ingress_port: int
    udp_port: int
