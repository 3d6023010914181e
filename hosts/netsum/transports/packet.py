"""Raw frames on an interface (AF_PACKET, Linux, needs CAP_NET_RAW): a member without an IP stack of its own."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Sequence

from netsum.errors import NetsumError
from netsum.frames import FrameFormat, group_mac, mac_bytes
from netsum.transports.base import Packet
from netsum.transports.peer_filter import Address
from netsum.transports.sockets import SocketBatch

_ETH_P_IP = 0x0800
_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23
_PACKET_ADD_MEMBERSHIP = 1
_MEMBERSHIP = struct.Struct("@iHH8s")  # of a multicast address: interface, kind 0, the address and its length


class PacketTransport(SocketBatch):
    """Sends and receives the member's frames on ``interface``, in the network namespace of the calling thread."""

    def __init__(self, frame_format: FrameFormat, interface: str) -> None:
        """Raises NetsumError if the system has no AF_PACKET, OSError if there is no such interface or no permission."""
        super().__init__(packet_socket(interface))
        self._format = frame_format
        self._interface = interface

    def join(self, group: Address) -> None:
        """See :class:`netsum.transports.multicast.Joins`."""
        mac = mac_bytes(group_mac(group[0]) or "")
        membership = _MEMBERSHIP.pack(socket.if_nametoindex(self._interface), 0, len(mac), mac)
        self.sock.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
        self._format.join(group)

    def send(self, packets: Sequence[Packet], framed: FrameFormat | None = None) -> None:
        super().send(packets, framed or self._format)

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        return self._format.payloads(super().recv(timeout))


def packet_socket(interface: str) -> socket.socket:
    """A socket for the IPv4 frames of ``interface``. Raises NetsumError if the system has no AF_PACKET, OSError if there is no
    such interface or no permission."""
    if sys.platform != "linux":
        raise NetsumError("a packet link needs Linux; use a udp or frames link")
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        sock.bind((interface, _ETH_P_IP))
    except BaseException:
        sock.close()
        raise
    return sock
