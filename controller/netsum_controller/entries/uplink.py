"""Stage ``uplink``: where a leaf's partials go."""

from __future__ import annotations

from dataclasses import dataclass

from netsum_controller.entries.entry import Entry


@dataclass(frozen=True)
class UplinkEntry(Entry, table="uplink", action="uplink.up", key=("job_id", "stripe")):
    """The switch's partials of job ``job_id``'s blocks of ``stripe`` leave through ``port`` for the parent's address, from UDP
    port ``udp_port``, as its source ``src_id``."""

    job_id: int
    stripe: int
    port: int
    mac: int
    ip: int
    udp_port: int
    src_id: int
