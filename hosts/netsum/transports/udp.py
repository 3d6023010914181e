"""The kernel's UDP socket: how a member reaches a switch on a real network."""

from __future__ import annotations

import socket
import sys

from netsum.frames import ECT
from netsum.transports.only_from import Address
from netsum.transports.sockets import Datagrams

_SO_NO_CHECK = 11
_IP_RECVTOS = 13
_IP_MTU_DISCOVER = 10
_IP_PMTUDISC_PROBE = 3


class UdpTransport(Datagrams):
    """A UDP socket bound to the member's own port that receives only from the switch."""

    def __init__(self, local: Address, remote: Address) -> None:
        super().__init__(local, remote)
        self._incoming.ask_for_tos()

    def prepare(self, sock: socket.socket) -> None:
        prepare_udp(sock)
        if sys.platform == "linux":
            sock.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)


def prepare_udp(sock: socket.socket) -> None:
    """Set the options of every socket whose packets a switch computes with."""
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT)
    if sys.platform == "linux":
        # The switch compares whole contributions; a checksum over 4096 bytes would only cost time.
        sock.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
        # The switch takes no fragments, so a packet too big for the interface must be an error, not be lost silently.
        # ICMP messages about the path are ignored: it has no router, and any stranger can send them.
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
