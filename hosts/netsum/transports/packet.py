# SPDX-License-Identifier: MIT
"""Ethernet frames by PF_PACKET."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Sequence
from typing import Final

from netsum.errors import NetsumError
from netsum.frames import ETHERNET_BYTES, IPV4_BYTES, PREFIX_BYTES, FrameFormat, group_mac, mac_bytes
from netsum.packet_batch import ReceiveBatch
from netsum.transports.base import Packet
from netsum.transports.loopback import Inbox, LoopbackWire
from netsum.transports.peer_filter import Address
from netsum.transports.segmentation import has_large_frames, has_segmentation
from netsum.transports.sockets import LARGE_SLOT_BYTES, SocketBatch

if sys.platform == "linux":
    import fcntl

# Ethernet frames carried in UDP datagrams on loopback: a link to a switch without root and without interfaces.


class FramesTransport:
    """Each datagram is one frame between ``local`` and the switch port's ``remote``. Several members of one process may share the
    same wire."""

    def __init__(self, frame_format: FrameFormat, local: Address, remote: Address) -> None:
        """``local`` and ``remote`` are the link's ends as (address, UDP port). Raises OSError if another process has
        ``local``."""
        self._inbox = Inbox(frame_format)
        self._wire = LoopbackWire.attach(local, remote, self._inbox)

    @property
    def last_error(self) -> str | None:
        return self._wire.batch.last_error

    def join(self, group: Address) -> None:
        """See :class:`netsum.transports.udp.Joins`."""
        self._inbox.format.join(group)

    def send(self, packets: Sequence[Packet]) -> None:
        self._wire.send(packets, self._inbox.format)

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        return self._wire.recv(self._inbox, timeout)

    def fileno(self) -> int:
        return self._wire.batch.fileno()

    def close(self) -> None:
        self._wire.detach(self._inbox)


# Raw frames on an interface (AF_PACKET, Linux, needs CAP_NET_RAW): a member without an IP stack of its own.


_ETH_P_IP = 0x0800
_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_VNET_HDR = 15
_KIND, _SEGMENT = 1, slice(4, 6)
_OFFLOAD = struct.Struct("=BBHHHH")
_NEEDS_CHECKSUM, _UDP_DATAGRAMS = 1, 5  # VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_UDP_L4
_UDP_AT, _CHECKSUM_AT = ETHERNET_BYTES + IPV4_BYTES, 6
NO_OFFLOAD: Final = bytes(10)
"""In front of each frame, a struct virtio_net_hdr: flags, kind, length of the headers, bytes of a segment, place of the
checksum."""
_SIOCGIFINDEX = 0x8933
_IFREQ = struct.Struct("=16si20x")  # struct ifreq: the interface's name and number
_MEMBERSHIP = struct.Struct("@iHH8s")  # of a multicast address: interface, kind 0, the address and its length


class PacketTransport(SocketBatch):
    """Sends and receives the member's frames on ``interface``, in the network namespace of the calling thread. A virtual link
    takes and brings several packets as one frame."""

    def __init__(self, frame_format: FrameFormat, interface: str) -> None:
        """Raises NetsumError if the system has no AF_PACKET, OSError if there is no such interface or no permission."""
        super().__init__(packet_socket(interface), slot_bytes=LARGE_SLOT_BYTES)
        self._format = frame_format
        self._interface = interface
        self.carries_segments = has_large_frames() and has_segmentation(self.sock, interface)

    def join(self, group: Address) -> None:
        """See :class:`netsum.transports.udp.Joins`."""
        mac = mac_bytes(group_mac(group[0]) or "")
        membership = _MEMBERSHIP.pack(_interface_index(self.sock, self._interface), 0, len(mac), mac)
        self.sock.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
        self._format.join(group)

    def send(self, packets: Sequence[Packet], framed: FrameFormat | None = None, lead: bytes = NO_OFFLOAD) -> None:
        super().send(packets, framed or self._format, lead)

    def _together(self, packets: memoryview, width: int, head: bytes) -> tuple[Packet, Sequence[tuple[int, int, bytes]]]:  # noqa: ARG002
        offload = _OFFLOAD.pack(_NEEDS_CHECKSUM, _UDP_DATAGRAMS, PREFIX_BYTES, width, _UDP_AT, _CHECKSUM_AT)
        return (offload + self._format.joint_prefix(len(packets)), packets), ()

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        came = super().recv(timeout)
        if not isinstance(came, ReceiveBatch):
            return came
        frames = ReceiveBatch(came.rows[:, len(NO_OFFLOAD) :], came.sizes - len(NO_OFFLOAD))
        if not came.rows[:, _KIND].any():
            return self._format.payloads(frames)
        packets: list[memoryview] = []
        marked = 0
        for head, frame in zip(came.rows, frames, strict=True):
            for payload in self._format.payloads([frame]):
                segments = segments_of(head.data, payload)
                packets += segments
                marked += len(segments) * self._format.is_marked(frame)
        return ReceiveBatch.of(packets, marked)


def _interface_index(sock: socket.socket, interface: str) -> int:
    """The number of an interface in the socket's network namespace, which the calling thread may not be in. Raises OSError."""
    answer = fcntl.ioctl(sock, _SIOCGIFINDEX, _IFREQ.pack(interface.encode(), 0))
    return int(_IFREQ.unpack(answer)[1])


def segments_of(head: memoryview, payload: memoryview) -> list[memoryview]:
    """The payloads of the packets that came as one frame with this struct virtio_net_hdr."""
    size = int.from_bytes(head[_SEGMENT], sys.byteorder) if head[_KIND] else 0
    return [payload[at : at + size] for at in range(0, len(payload), size)] if size else [payload]


def packet_socket(interface: str) -> socket.socket:
    """A socket for the IPv4 frames of ``interface``, each with a struct virtio_net_hdr in front (PACKET_VNET_HDR). Raises
    NetsumError if the system has no AF_PACKET, OSError if there is no such interface or no permission."""
    if sys.platform != "linux":
        raise NetsumError("a packet link needs Linux; use a udp or frames link")
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        sock.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        sock.bind((interface, _ETH_P_IP))
    except BaseException:
        sock.close()
        raise
    return sock
