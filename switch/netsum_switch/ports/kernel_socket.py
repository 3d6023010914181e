# SPDX-License-Identifier: MIT
"""A port whose wire is one UDP socket of the kernel: hosts reach it over any IP network, with plain UDP datagrams.

Frames begin and end here: the kernel sends and receives payloads, and this port puts Ethernet, IPv4 and UDP headers in front of
what comes in, and takes them off what goes out. Needs no privilege. Machine code does the same
(`netsum_switch.native.kernel_socket`).
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import NamedTuple

from netsum_switch.ports.base import MAX_FRAME, TURN, PortCounters, is_full
from netsum_switch.ports.offloads import sum16
from netsum_switch.ports.udp import SOL_UDP, UDP_GRO, Address, bound, datagrams, segments

HEADERS = struct.Struct("!6s6sHBBHHHBBH4s4sHHHH")
"""Ethernet, IPv4 and UDP."""

LARGEST_FRAME = 14 + 65535
"""Bytes: Ethernet, and the longest packet of IPv4."""

_ETHERNET, _IPV4, _UDP = 14, 20, 8
_ETHERTYPE, _VERSION_AND_LENGTH, _PROTOCOL = 0x0800, 0x45, 17
_DONT_FRAGMENT, _FRAGMENT, _TTL = 0x4000, 0x3FFF, 64
_NO_HOST = bytes(4)  # which the kernel takes for this machine
_CONTROL_SPACE = socket.CMSG_SPACE(4) + socket.CMSG_SPACE(1)


class Outgoing(NamedTuple):
    """What a frame becomes: a datagram to an address, with a type of service. `size`: bytes of the frame without padding."""

    payload: bytes
    peer: Address
    tos: int
    size: int


class SocketPort:
    """Bound to `own`, the address that frames come to and leave from; any number of peers.

    Attributes:
        address: The socket's own address.
        inside_port: The UDP port that frames have instead of the socket's.
        headers: What the frame of a received datagram begins with, but for its peer, lengths, checksum and type of service.
            Machine code reads it.
    """

    def __init__(self, number: int, own: Address, inside_port: int | None = None) -> None:
        """`own`: an IPv4 address of this machine; port 0 takes a free one. `inside_port`: by default the socket's. Raises
        PortError if the address cannot be bound."""
        self.number = number
        self.counters = PortCounters()
        sock = bound(number, own)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        self._sock = sock
        self.address: Address = sock.getsockname()
        self.name = f"socket:{self.address[0]}:{self.address[1]}"
        self.inside_port = inside_port or self.address[1]
        self._host = socket.inet_aton(self.address[0])
        self.headers = bytearray(self._headers((bytes(4), 0), 0, _UDP, 0))

    def fileno(self) -> int:
        return self._sock.fileno()

    def receive(self) -> list[bytes]:
        frames: list[bytes] = []
        receive = self._sock.recvmsg
        for _ in range(TURN):
            try:
                data, control, _, sender = receive(MAX_FRAME, _CONTROL_SPACE)
            except BlockingIOError:
                break
            except OSError:
                self.counters.rx_errors += 1
                continue
            size, tos = len(data), 0
            for level, kind, value in control:
                if (level, kind) == (SOL_UDP, UDP_GRO):
                    size = int.from_bytes(value[:4], sys.byteorder)
                elif (level, kind) == (socket.IPPROTO_IP, socket.IP_TOS):
                    tos = value[0]
            peer = socket.inet_aton(sender[0]), sender[1]
            frames += [self._frame(peer, tos, payload) for payload in datagrams(data, size)]
        return self.counters.received(frames)

    def send(self, frame: bytes) -> None:
        counters = self.counters
        if (outgoing := self.outgoing(frame)) is None:
            counters.tx_dropped += 1
            return
        payload, peer, tos, size = outgoing
        control = [(socket.IPPROTO_IP, socket.IP_TOS, struct.pack("i", tos))] if tos else []
        try:
            self._sock.sendmsg((payload,), control, 0, peer)
        except OSError:  # a full buffer, no route, a firewall: the next frame may have another peer
            counters.tx_dropped += 1
            return
        counters.tx_packets += 1
        counters.tx_bytes += size

    def outgoing(self, frame: bytes) -> Outgoing | None:
        """The datagram that a frame becomes; None if the frame may not leave.

        A frame leaves if it is a whole UDP datagram over IPv4 without options, with right lengths and a right header checksum,
        from this port's address, to a host or a multicast group. The kernel refuses broadcasts and port 0; the UDP checksum is
        its own.
        """
        if len(frame) < HEADERS.size:
            return None
        (
            mac, _, ethertype, start, tos, length, _, fragment, _, protocol, _, source, target, source_port, target_port,
            udp_length, _,
        ) = HEADERS.unpack_from(frame)  # fmt: skip
        is_udp = (ethertype, start, protocol) == (_ETHERTYPE, _VERSION_AND_LENGTH, _PROTOCOL) and not fragment & _FRAGMENT
        fits = _IPV4 + _UDP <= length <= len(frame) - _ETHERNET and udp_length == length - _IPV4
        right = sum16(frame[_ETHERNET : _ETHERNET + _IPV4]) == 0xFFFF
        is_own = (source, source_port) == (self._host, self.inside_port)
        is_host = target != _NO_HOST and not mac[0] & 1
        is_group = target[0] >> 4 == 0xE
        if not (is_udp and fits and right and is_own and (is_host or is_group)):
            return None
        size = _ETHERNET + length
        return Outgoing(frame[HEADERS.size : size], (socket.inet_ntoa(target), target_port), tos, size)

    @property
    def segments(self) -> bool:
        """True if the kernel makes several datagrams of one message."""
        return segments(self._sock)

    def is_full(self) -> bool:
        return is_full(self._sock)

    def close(self) -> None:
        self._sock.close()

    def _frame(self, peer: tuple[bytes, int], tos: int, payload: bytes) -> bytes:
        size = _UDP + len(payload)
        checksum = ~sum16(self._headers(peer, tos, size, 0)[_ETHERNET : _ETHERNET + _IPV4]) & 0xFFFF
        return self._headers(peer, tos, size, checksum) + payload

    def _headers(self, peer: tuple[bytes, int], tos: int, size: int, checksum: int) -> bytes:
        """`size`: bytes from the UDP header on."""
        host, port = peer
        return HEADERS.pack(
            _mac(self._host), _mac(host), _ETHERTYPE,
            _VERSION_AND_LENGTH, tos, _IPV4 + size, 0, _DONT_FRAGMENT, _TTL, _PROTOCOL, checksum, host, self._host,
            port, self.inside_port, size, 0,
        )  # fmt: skip


def _mac(host: bytes) -> bytes:
    """The MAC address that stands for an IPv4 address."""
    return b"\x02\x00" + host
