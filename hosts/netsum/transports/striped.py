# SPDX-License-Identifier: MIT
"""UDP to several switches, each of which combines some of a job's blocks (docs/concepts.md)."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from netsum.frames import FrameFormat
from netsum.packet_batch import Packet, ReceiveBatch, Rows, SendBatch
from netsum.transports.mmsg import MessageArray
from netsum.transports.peer_filter import Address
from netsum.transports.udp import UdpTransport
from netsum.wire.codec import BLOCK_ID
from netsum.wire.schema import HEADER_BYTES

_IDS: Final = np.dtype(">u4")


class StripedUdpTransport(UdpTransport):
    """A UDP socket that sends each block to the switch that is its root, and receives from all of them.

    One socket serves all, so that there is one descriptor to wait for, and one address that NAT on the way must know. Only on
    Linux does the kernel drop packets from elsewhere; what proves who sent one is its key.
    """

    def __init__(self, local: Address, remotes: Sequence[Address], roots: Sequence[int]) -> None:
        """``remotes`` is the address of each root, and ``roots`` the root of each stripe, numbered from 0. Raises OSError if the
        port is taken, or an address not known."""
        there = [(socket.gethostbyname(host), port) for host, port in remotes]
        super().__init__(local, there[0], there[1:])
        self._roots = np.array(roots)
        self._ways = [(remote, MessageArray(self._outgoing.rows, remote)) for remote in there]

    def send(self, packets: Sequence[Packet], framed: FrameFormat | None = None, lead: bytes = b"") -> None:
        batches: dict[int, SendBatch] = {}
        for part in packets.parts if isinstance(packets, SendBatch) else packets:
            if isinstance(part, np.ndarray):
                roots = self._roots[_block_ids(part) % len(self._roots)]
                for root in dict.fromkeys(roots.tolist()):
                    batches.setdefault(root, SendBatch()).add_rows(part[roots == root])
            else:
                root = self._roots[int.from_bytes(part[0][BLOCK_ID]) % len(self._roots)]
                batches.setdefault(int(root), SendBatch()).add(part)
        for root, batch in batches.items():
            self._remote, self._outgoing = self._ways[root]
            super().send(batch, framed, lead)

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        """The packets in order of their blocks: what comes from each root lacks those of the others, and blocks in a row are
        taken together."""
        packets = super().recv(timeout)
        if not isinstance(packets, ReceiveBatch) or len(packets) < 2:
            return packets
        most = int(packets.sizes.max())
        if most < HEADER_BYTES:
            return packets
        rows = packets.rows[:, :most]
        ids = _block_ids(rows)
        ahead = (ids - ids[0]).astype(np.int32)  # serial numbers, which wrap around
        if (ahead[1:] >= ahead[:-1]).all():
            return packets
        order = np.argsort(ahead, kind="stable")
        return ReceiveBatch(rows[order], packets.sizes[order], packets.congested)


def _block_ids(rows: Rows) -> NDArray[np.uint32]:
    return np.ascontiguousarray(rows[:, BLOCK_ID]).view(_IDS)[:, 0].astype(np.uint32)
