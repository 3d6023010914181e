"""The members' network inside one process: for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netsum.peers.wire import RANK
from netsum.transports.memory import MemoryTransport


def memory_peers(ranks: Sequence[int]) -> dict[int, MemoryTransport]:
    """A transport for each rank; they deliver to each other."""
    transports = {rank: MemoryTransport() for rank in ranks}

    def deliver(sender: int) -> Callable[[bytes], None]:
        def to_peer(packet: bytes) -> None:
            receiver = transports.get(packet[0])
            if receiver is not None:
                receiver.put(RANK.pack(sender) + packet[RANK.size :])

        return to_peer

    for rank, transport in transports.items():
        transport.deliver = deliver(rank)
    return transports
