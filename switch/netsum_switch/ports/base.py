# SPDX-License-Identifier: MIT
"""The interface of a port for the data plane: a descriptor to poll, batches of frames in, frames out."""

from __future__ import annotations

import ctypes
import logging
import socket
import sys
from typing import Protocol

from netsum_switch.errors import SwitchError

log = logging.getLogger("netsum_switch.ports")

# A jumbo frame is 9018 bytes; with segmentation offload left on, up to 64 KiB arrive.
MAX_FRAME = 65536

# Frames taken from one port before the others' turns, and the longest that the control plane waits. Few enough that a
# flooded port hardly delays the others; many enough that finding the next port costs little.
TURN = 8

# Bytes requested from the kernel for each direction: some 200 jumbo frames. Silently capped by net.core.[rw]mem_max.
SOCKET_BUFFER = 4 << 20

# The *FORCE options are not capped, but need CAP_NET_ADMIN.
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33


# Bytes that an interface has not sent yet at which a port's packets wait in its egress queue, where the program has queues: as
# many as a socket of simple_switch holds by the kernel's default (net.core.wmem_default), and as the kernel counts them.
FULL = 212_992

# <asm-generic/socket.h>, <linux/sock_diag.h>: where the bytes that a socket has not sent stand in what SO_MEMINFO gives.
SO_MEMINFO, SENT_BYTES_AT = 55, 8


class PortError(SwitchError):
    """A port cannot be opened or its description is wrong."""


class PortCounters(ctypes.Structure):
    """Frames and bytes since the port was opened, as seen by the switch (no preamble, no FCS). Machine code counts too."""

    _fields_ = [
        (name, ctypes.c_uint64) for name in ("rx_packets", "rx_bytes", "rx_errors", "tx_packets", "tx_bytes", "tx_dropped")
    ]

    def received(self, frames: list[bytes]) -> list[bytes]:
        """Count these frames, and give them back."""
        self.rx_packets += len(frames)
        self.rx_bytes += sum(map(len, frames))
        return frames

    def sent(self, frame: bytes) -> None:
        self.tx_packets += 1
        self.tx_bytes += len(frame)


class Port(Protocol):
    """One port. Not thread-safe: `receive` and `send` are the data-plane thread's alone."""

    number: int
    name: str
    counters: PortCounters

    def fileno(self) -> int:
        """Descriptor that becomes readable when `receive` has frames."""

    def receive(self) -> list[bytes]:
        """Up to `TURN` frames that have arrived; never blocks, and never raises for a fault of the network."""

    def send(self, frame: bytes) -> None:
        """Send one frame, or drop and count it if it cannot be sent now; never blocks."""

    def is_full(self) -> bool:
        """True if the interface has `FULL` bytes to send before it can take more."""

    def close(self) -> None:
        """Close the descriptor."""


def is_full(sock: socket.socket) -> bool:
    """True if a socket has `FULL` bytes that its interface has not sent yet."""
    memory = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 64)
    return int.from_bytes(memory[SENT_BYTES_AT : SENT_BYTES_AT + 4], sys.byteorder) >= FULL


def enlarge_buffers(sock: socket.socket) -> None:
    """Request `SOCKET_BUFFER` bytes each way. A refusal is not an error: a smaller buffer is only slower."""
    for forced, plain in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, SOCKET_BUFFER)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, SOCKET_BUFFER)
