"""What the data plane needs of a port: a descriptor to poll, frames in batches, frames out."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from typing import Protocol

from netsum_switch.errors import SwitchError

log = logging.getLogger("netsum_switch.ports")

# A jumbo frame is 9018 bytes; what a segmentation offload that was left on delivers is up to 64 KiB.
MAX_FRAME = 65536

# Frames taken from one port before the others have their turn, and the longest time the control plane waits. Few, so that
# who floods a port makes the others wait for little more than these; many enough that asking who is next costs little.
TURN = 8

# Bytes asked of the kernel for each direction: some 200 jumbo frames. Silently capped by net.core.[rw]mem_max.
SOCKET_BUFFER = 4 << 20

# Set both when the process may (CAP_NET_ADMIN): the *FORCE options are not capped.
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33


class PortError(SwitchError):
    """A port cannot be opened or its description is wrong."""


@dataclass(slots=True)
class PortCounters:
    """Frames and bytes since the port was opened, as seen by the switch (no preamble, no FCS)."""

    rx_packets: int = 0
    rx_bytes: int = 0
    rx_errors: int = 0
    tx_packets: int = 0
    tx_bytes: int = 0
    tx_dropped: int = 0


class Port(Protocol):
    """One port. Not thread-safe: `receive` and `send` are the data-plane thread's alone."""

    number: int
    name: str
    counters: PortCounters

    def fileno(self) -> int:
        """Descriptor that becomes readable when `receive` has frames."""

    def receive(self) -> list[bytes]:
        """Up to `TURN` frames that are there now; never blocks, never raises for what the network did."""

    def send(self, frame: bytes) -> None:
        """Send one frame, or drop and count it when it cannot be sent now; never blocks."""

    def close(self) -> None:
        """Give the descriptor back."""


def enlarge_buffers(sock: socket.socket) -> None:
    """Ask for `SOCKET_BUFFER` bytes each way; a smaller buffer is only slower, so a refusal is no error."""
    for forced, plain in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, SOCKET_BUFFER)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, SOCKET_BUFFER)
