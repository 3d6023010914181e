"""Stage ``uplink``: where a leaf's partials go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from netsum_controller.stages.entry import Entry


@dataclass(frozen=True)
class UplinkEntry(Entry):
    """The switch's partials of job ``job_id``'s blocks of ``stripe`` leave through ``port`` for the parent's address, from UDP
    port ``udp_port``, as its source ``src_id``."""

    TABLE: ClassVar = "uplink"
    ACTION: ClassVar = "uplink.up"
    KEY: ClassVar = ("job_id", "stripe")

    job_id: int
    stripe: int
    port: int
    mac: int
    ip: int
    udp_port: int
    src_id: int
