"""A job without a switch, in memory: its members combine each other's contributions."""

from __future__ import annotations

from typing import Any

from netsum.descriptor import Descriptor
from netsum.peers.memory import memory_peers

from tests.hosts.network import Network, descriptor

KEY = bytes(range(16))


def peer_descriptor(rank: int, workers: int, **changes: Any) -> Descriptor:
    """A member's descriptor; ``changes`` replace fields."""
    addresses = tuple(f"127.0.0.1:{20000 + each}" for each in range(workers))
    fields = {"job_id": 0, "algorithm": "auto", "peers": addresses, "peer_key": KEY.hex()}
    return descriptor(rank, workers, **{**fields, **changes})


class PeerNetwork(Network):
    """Like :class:`tests.hosts.network.MemoryNetwork`, without a switch."""

    def __init__(self, workers: int, **changes: Any) -> None:
        self.descriptors = [peer_descriptor(rank, workers, **changes) for rank in range(workers)]
        self.transports = list(memory_peers(range(workers)).values())
