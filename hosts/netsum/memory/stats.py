"""What a client of memory in the network counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class MemoryStats:
    """What a client has sent and received. ``refused`` counts replies by status; ``shared`` those that came by multicast, of
    ``shared_bytes``; ``unasked`` such as were not for this client, or from nobody who has the region's key."""

    instructions: int = 0
    packets_sent: int = 0
    bytes_sent: int = 0
    packets_received: int = 0
    bytes_received: int = 0
    retransmissions: int = 0
    fast_retransmissions: int = 0
    compressed: int = 0
    duplicates: int = 0
    malformed: int = 0
    shared: int = 0
    shared_bytes: int = 0
    unasked: int = 0
    congested: int = 0
    rtt: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
