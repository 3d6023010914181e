# SPDX-License-Identifier: MIT
"""A port whose frames travel as UDP datagrams: one datagram is one whole Ethernet frame. Needs no privilege."""

from __future__ import annotations

import socket
import struct
import sys
from contextlib import suppress

from netsum_switch.ports.base import MAX_FRAME, TURN, PortCounters, PortError, enlarge_buffers

Address = tuple[str, int]

SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104  # linux/udp.h; Python has no names for the last two
_CONTROL_SPACE = socket.CMSG_SPACE(4)

_SOCKADDR = struct.Struct("=H2s4s8x")  # struct sockaddr_in: family, port, address


class UdpPort:
    """Bound to `local`; sends to `peer` or, without one, to the source of the last datagram received."""

    def __init__(self, number: int, local: Address, peer: Address | None = None) -> None:
        """Raises PortError if the address cannot be bound, or the peer's name is unknown."""
        self.number = number
        self.counters = PortCounters()
        self._fixed: Address | None = None
        self.peer = bytearray(_SOCKADDR.size)
        """The struct sockaddr_in to send to; zeros if no peer is known yet. Machine code reads and writes it too."""
        if peer is not None:
            self._fixed = (_resolved(number, peer[0]), peer[1])
            self._know(self._fixed)
        self._sock = bound(number, local)
        self.address: Address = self._sock.getsockname()
        self.name = f"udp:{self.address[0]}:{self.address[1]}"

    def fileno(self) -> int:
        return self._sock.fileno()

    def receive(self) -> list[bytes]:
        frames: list[bytes] = []
        receive = self._sock.recvmsg
        for _ in range(TURN):
            try:
                data, control, _, sender = receive(MAX_FRAME, _CONTROL_SPACE)
                if self._fixed is None:
                    self._know(sender)
                size = int.from_bytes(control[0][2][:4], sys.byteorder) if control else len(data)
                frames += datagrams(data, size)
            except BlockingIOError:
                break
            except OSError:  # an ICMP error for an earlier datagram: the port stays open
                self.counters.rx_errors += 1
        return self.counters.received(frames)

    def send(self, frame: bytes) -> None:
        counters = self.counters
        peer = self._fixed or self._learnt()
        if peer is None:  # nothing has come in yet, so there is no wire
            counters.tx_dropped += 1
            return
        try:
            self._sock.sendto(frame, peer)
        except OSError:  # a full buffer, or a frame larger than a datagram
            counters.tx_dropped += 1
            return
        counters.sent(frame)

    @property
    def learns(self) -> bool:
        """True if it sends to the sender of the last datagram."""
        return self._fixed is None

    @property
    def segments(self) -> bool:
        """True if the kernel makes several datagrams of one message."""
        return segments(self._sock)

    def _know(self, peer: Address) -> None:
        _SOCKADDR.pack_into(self.peer, 0, socket.AF_INET, peer[1].to_bytes(2, "big"), socket.inet_aton(peer[0]))

    def _learnt(self) -> Address | None:
        family, port, host = _SOCKADDR.unpack(self.peer)
        return (socket.inet_ntoa(host), int.from_bytes(port, "big")) if family else None

    def is_full(self) -> bool:
        return False  # a datagram is at its receiver at once

    def close(self) -> None:
        self._sock.close()


def bound(number: int, local: Address) -> socket.socket:
    """A UDP socket for a port, which receives datagrams that come together as one (UDP_GRO). Raises PortError if the address
    cannot be bound."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        sock.bind(local)
    except OSError as error:
        sock.close()
        raise PortError(f"port {number}: cannot bind UDP {local[0]}:{local[1]}: {error.strerror}") from error
    enlarge_buffers(sock)
    with suppress(OSError):  # a kernel that does not know it gives them one by one
        sock.setsockopt(SOL_UDP, UDP_GRO, 1)
    return sock


def segments(sock: socket.socket) -> bool:
    """True if the kernel makes several datagrams of one message (UDP_SEGMENT, Linux 4.18)."""
    try:
        sock.getsockopt(SOL_UDP, UDP_SEGMENT)
    except OSError:
        return False
    return True


def datagrams(data: bytes, size: int) -> list[bytes]:
    """The datagrams of a message, of so many bytes each; the last may be shorter."""
    return [data[at : at + size] for at in range(0, max(1, len(data)), max(1, size))]


def _resolved(number: int, host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise PortError(f"port {number}: no host {host}: {error.strerror}") from error
