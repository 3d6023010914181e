# SPDX-License-Identifier: MIT
"""Ethernet, IPv4 and UDP around a netsum packet, for transports that carry whole frames.

A conversation's addresses never change, so a frame's first 42 bytes depend only on the payload's size and are made once for
each size. In an arriving frame, the twelve bytes from the source address to the destination port tell whether it is for us.
Frames that arrive together are mostly alike, and then looked at together.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from netsum.descriptor import Ends
from netsum.packet_batch import ReceiveBatch
from netsum.wire.codec import are_alike

ETHERNET_BYTES: Final = 14
IPV4_BYTES: Final = 20
UDP_BYTES: Final = 8
PREFIX_BYTES: Final = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES

_IPV4_TYPE = b"\x08\x00"
_START = b"\x45"  # version 4, no options
ECT: Final = 2
"""The two low bits of the IPv4 header's second byte (RFC 3168): links may mark the packet instead of losing it."""
CE: Final = 3
"""The same: a congested link has marked it."""
_TOS: Final = 15
_UDP = 17
_CONVERSATION = slice(26, 38)  # source ip, destination ip, source port, destination port


def mac_bytes(text: str) -> bytes:
    """``02:00:00:00:00:01`` as six bytes; ValueError for anything else."""
    parts = text.split(":")
    if len(parts) != 6:
        raise ValueError(f"{text!r} is not a MAC address")
    return bytes(int(part, 16) for part in parts)


def group_mac(ip: str) -> str | None:
    """The MAC address for frames to a multicast address (RFC 1112); None for any other address."""
    first, *low = socket.inet_aton(ip)
    return bytes((1, 0, 0x5E, low[0] & 127, *low[1:])).hex(":") if 224 <= first < 240 else None


def internet_checksum(data: bytes) -> int:
    """The ones' complement sum of RFC 1071."""
    if len(data) % 2:
        data += b"\x00"
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def is_congested(tos: int) -> bool:
    """True if a congested link has marked a packet, by the second byte of its IPv4 header."""
    return int(tos) & CE == CE


class FrameFormat:
    """Frames between one member and its switch: prefixes for what it sends, and recognition of what it gets."""

    def __init__(self, source: tuple[str, str, int], destination: tuple[str, str, int]) -> None:
        """Each end is (MAC, IPv4 address, UDP port)."""
        source_mac, source_ip, source_port = source
        destination_mac, destination_ip, destination_port = destination
        self._ethernet = mac_bytes(destination_mac) + mac_bytes(source_mac) + _IPV4_TYPE
        ours, theirs = socket.inet_aton(source_ip), socket.inet_aton(destination_ip)
        self._addresses = ours + theirs
        self._ports = struct.pack(">HH", source_port, destination_port)
        self._expected = theirs + ours + struct.pack(">HH", destination_port, source_port)
        self._joined = self._expected
        self._prefixes: dict[int, bytes] = {}

    @classmethod
    def of(cls, ends: Ends) -> FrameFormat:
        """The host's side of its conversation with a switch."""
        host, switch = ends.host, ends.switch
        return cls((host.mac, host.ip, host.udp_port), (switch.mac, switch.ip, switch.port))

    def join(self, group: tuple[str, int]) -> None:
        """Recognize what the other end sends to this group as well."""
        address, port = group
        self._joined = self._expected[:4] + socket.inet_aton(address) + self._ports[2:] + struct.pack(">H", port)

    def prefix(self, size: int) -> bytes:
        """The 42 bytes in front of ``size`` bytes of UDP payload. The UDP checksum is 0: not computed."""
        prefix = self._prefixes.get(size)
        if prefix is None:
            prefix = self._prefixes[size] = self._make_prefix(size)
        return prefix

    def _make_prefix(self, size: int) -> bytes:
        def ipv4(checksum: int) -> bytes:
            total = IPV4_BYTES + UDP_BYTES + size
            # Identification 0 and DF: never fragmented (RFC 6864).
            head = struct.pack(">BBHHHBBH", 0x45, ECT, total, 0, 0x4000, 64, _UDP, checksum)
            return head + self._addresses

        udp = self._ports + struct.pack(">HH", UDP_BYTES + size, 0)
        return self._ethernet + ipv4(internet_checksum(ipv4(0))) + udp

    def joint_prefix(self, size: int) -> bytes:
        """The 42 bytes in front of ``size`` bytes of several packets, of which the device makes frames: the sum of the pseudo
        header is where it puts the UDP checksums (RFC 768)."""
        prefix = self.prefix(size)
        pseudo = self._addresses + struct.pack(">HH", _UDP, UDP_BYTES + size)
        return prefix[:-2] + struct.pack(">H", internet_checksum(pseudo) ^ 0xFFFF)

    def payloads(self, frames: Sequence[memoryview]) -> Sequence[memoryview]:
        """The UDP payloads of those frames that are well-formed packets of this conversation from the other end."""
        if not isinstance(frames, ReceiveBatch):
            return [packet for frame in frames if (packet := self._payload(frame)) is not None]
        number, heads = len(frames), frames.rows[:, :PREFIX_BYTES]
        head = heads[0].tobytes()
        size = self._payload_bytes(head, int(frames.sizes[0]))
        alike = number == 1 or (are_alike(heads) and are_alike(frames.sizes))
        if size < 0 or not alike:
            return self._differing(frames)
        sizes = np.empty(number, np.int64)
        sizes.fill(size)
        return ReceiveBatch(frames.rows[:, PREFIX_BYTES:], sizes, number if is_congested(head[_TOS]) else 0)

    @staticmethod
    def is_marked(frame: memoryview) -> bool:
        """True if a congested link has marked the frame."""
        return is_congested(frame[_TOS])

    def _differing(self, frames: ReceiveBatch) -> Sequence[memoryview]:
        ours, congested = [], 0
        for frame in frames:
            packet = self._payload(frame)
            if packet is not None:
                ours.append(packet)
                congested += is_congested(frame[_TOS])
        if len(ours) == len(frames):
            return ReceiveBatch(frames.rows[:, PREFIX_BYTES:], np.array([len(packet) for packet in ours]), congested)
        return ReceiveBatch.of(ours, congested) if congested else ours

    def _payload(self, frame: memoryview) -> memoryview | None:
        size = self._payload_bytes(bytes(frame[:PREFIX_BYTES]), len(frame))
        return None if size < 0 else frame[PREFIX_BYTES : PREFIX_BYTES + size]

    def _payload_bytes(self, head: bytes, length: int) -> int:
        """As :func:`_udp_bytes`; below 0 also if the frame is not of this conversation."""
        return _udp_bytes(head, length) if head[_CONVERSATION] in (self._expected, self._joined) else -1


@lru_cache(maxsize=256)  # frames of one conversation and size are mostly alike
def _udp_bytes(head: bytes, length: int) -> int:
    """The payload's size in a frame of this length that begins so; below 0 if that is not a whole UDP packet."""
    if length < PREFIX_BYTES or head[12:14] != _IPV4_TYPE or head[14:15] != _START or head[23] != _UDP:
        return -1
    size = (head[38] << 8 | head[39]) - UDP_BYTES
    return size if size <= length - PREFIX_BYTES else -1


def parse_frame(frame: memoryview, ip: bytes, port: int) -> tuple[str, tuple[str, int], memoryview] | None:
    """A frame for this address and port, whichever host sent it: the sender's MAC, its address and UDP port, and the payload."""
    if len(frame) < PREFIX_BYTES or frame[30:34] != ip or frame[36] << 8 | frame[37] != port:
        return None
    size = _udp_bytes(bytes(frame[:PREFIX_BYTES]), len(frame))
    if size < 0:
        return None
    sender = socket.inet_ntoa(frame[26:30]), frame[34] << 8 | frame[35]
    return frame[6:12].hex(":"), sender, frame[PREFIX_BYTES : PREFIX_BYTES + size]
