"""What netsum's blocks and messages take on a wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from netsum.collectives.partition import GROUP
from netsum.descriptor import IP_UDP_BYTES
from netsum.peers.wire import FRAME, HEAD, MESSAGE, RECORD
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, MAX_CHUNKS

ETHERNET: Final = 14
TCP_IP: Final = 52
"""Bytes of IPv4 and TCP with timestamps."""


@dataclass(frozen=True)
class Wire:
    """``block_bytes`` of gradients a packet, a ``window`` of blocks, the ``mtu`` between hosts. ``host_s``: seconds until
    a host has dealt with a packet or a message, while others are on their way."""

    block_bytes: int = CHUNK_BYTES * MAX_CHUNKS
    window: int = 4 * GROUP
    mtu: int = 9000
    host_s: float = 0.0

    @property
    def packet(self) -> int:
        """Bytes of a block's packet on the wire."""
        return ETHERNET + IP_UDP_BYTES + HEADER_BYTES + self.block_bytes

    @property
    def opening(self) -> int:
        """Bytes of the packet that opens a call."""
        return ETHERNET + IP_UDP_BYTES + HEADER_BYTES + CHUNK_BYTES

    def blocks(self, nbytes: float) -> float:
        """Packets that carry so many bytes."""
        return nbytes / self.block_bytes

    def message(self, nbytes: float) -> float:
        """Bytes on the wire of a message between hosts that carries so many bytes of blocks."""
        inside = FRAME.size + HEAD.size + MESSAGE.size + nbytes * (1 + RECORD.itemsize / self.block_bytes)
        return inside * (ETHERNET + self.mtu) / (self.mtu - TCP_IP)
