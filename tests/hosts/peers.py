# SPDX-License-Identifier: MIT
"""A job without a switch, in memory: its members combine each other's contributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from netsum.descriptor import CHAIN, Descriptor
from netsum.peers.wire import RANK, rank_of
from netsum.transports.loopback import InMemoryTransport
from netsum.wire.schema import EVERYONE

from tests.hosts.network import Network, descriptor

KEY = bytes(range(16))


def peer_descriptor(rank: int, workers: int, **changes: Any) -> Descriptor:
    """A member's descriptor; ``changes`` replace fields."""
    addresses = tuple(f"127.0.0.1:{20000 + each}" for each in range(workers))
    fields = {"job_id": 0, "algorithm": "auto", "peers": addresses, "peer_key": KEY.hex()}
    return descriptor(rank, workers, **{**fields, **changes})


def memory_peers(ranks: Sequence[int]) -> dict[int, InMemoryTransport]:
    """A transport for each rank; they deliver to each other."""
    transports = {rank: InMemoryTransport() for rank in ranks}

    def deliver(sender: int) -> Callable[[bytes], None]:
        def to_peer(packet: bytes) -> None:
            to_all = [each for each in transports if each != sender]
            receiver = rank_of(packet)
            for rank in to_all if receiver == EVERYONE else [receiver]:
                if rank in transports:
                    transports[rank].put(RANK.pack(sender) + packet[RANK.size :])

        return to_peer

    for rank, transport in transports.items():
        transport.deliver = deliver(rank)
    return transports


class PeerNetwork(Network):
    """Like :class:`tests.hosts.network.MemoryNetwork`, without a switch."""

    def __init__(self, workers: int, **changes: Any) -> None:
        self.descriptors = [peer_descriptor(rank, workers, **changes) for rank in range(workers)]
        self.transports = list(memory_peers(range(workers)).values())


class ChainNetwork(PeerNetwork):
    """The same, by chain, and packets have one block each."""

    def __init__(self, workers: int, **changes: Any) -> None:
        mtu = max(1200, changes.get("block_bytes", 0) + 200)
        super().__init__(workers, **{"algorithm": CHAIN, "mtu": mtu, **changes})
