"""Stages ``ports`` and ``forward``: counters of what comes in at each port, and of how much of it is dropped."""

from __future__ import annotations

from typing import NamedTuple

PORTS_COUNTER = "ports"
DROPPED_COUNTER = "dropped"


class PortCounts(NamedTuple):
    """Packets and bytes (of whole frames) that came in at a port since the program was loaded, and packets ``dropped`` because
    their sender address belongs to another port."""

    packets: int
    bytes: int
    dropped: int
