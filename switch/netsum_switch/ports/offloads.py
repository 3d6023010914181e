# SPDX-License-Identifier: MIT
"""What a virtual link leaves undone: checksums that are still to be computed, and several packets in one frame.

A veth computes no checksum, and carries up to 64 KB of UDP datagrams (UDP_SEGMENT) or of a TCP stream (TSO) as one frame.
An AF_PACKET socket with PACKET_VNET_HDR has a struct virtio_net_hdr in front of each frame, which says so. Here, frames become
what they would be on a wire, so a program sees no difference. Machine code does the same (`netsum_switch.native.offloads`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

# <linux/virtio_net.h>
HEADER = struct.Struct("=BBHHHH")
NEEDS_CHECKSUM = 1
TCP4, TCP6, UDP = 1, 4, 5  # of several packets in one frame: TCP over IPv4 and IPv6, UDP over either (Linux 6.2)
_ECN = 0x80
NOTHING = HEADER.pack(0, 0, 0, 0, 0, 0)
"""In front of a frame that is ready to be sent."""

LARGEST_HEADERS = 256
"""Bytes: Ethernet, tags, IP and TCP or UDP with all their options."""

_IPV4, _IPV6, _TAGS = 0x0800, 0x86DD, (0x8100, 0x88A8)
_TCP, _UDP = 6, 17
_FIN_PSH, _CWR = 0x09, 0x80


class OffloadError(ValueError):
    """The frame's headers do not fit what the kernel says of it."""


class _Ip(NamedTuple):
    """Where a frame's IP header begins, its version, and its protocol if the transport header is where it ends."""

    start: int
    version: int
    protocol: int


def frames_of(header: bytes, frame: bytes) -> list[bytes]:
    """The frames that a frame with this struct virtio_net_hdr is on a wire. A UDP checksum over IPv4 that is still to be computed
    becomes 0, "not computed" (RFC 768). Raises :class:`OffloadError`."""
    flags, kind, _, size, transport, offset = HEADER.unpack(header)
    kind &= ~_ECN
    if not kind and not flags & NEEDS_CHECKSUM:
        return [frame]
    ip = _ip(frame, transport)
    if not kind:
        return [_checked(bytearray(frame), ip, transport, offset)]
    if kind not in (TCP4, TCP6, UDP) or not size or ip.protocol != (_UDP if kind == UDP else _TCP):
        raise OffloadError(f"segmentation of kind {kind} into {size} bytes, protocol {ip.protocol}")
    return list(_segments(frame, ip, transport, offset, size))


def moved(header: bytes, by: int) -> bytes:
    """The same of a frame whose rest a VLAN tag has moved by so many bytes."""
    *fields, transport, offset = HEADER.unpack(header)
    return HEADER.pack(*fields, transport + by, offset) if by else header


def _ip(frame: bytes, transport: int) -> _Ip:
    at = 12
    while int.from_bytes(frame[at : at + 2], "big") in _TAGS and at < 20:
        at += 4
    kind, start = int.from_bytes(frame[at : at + 2], "big"), at + 2
    if kind == _IPV4 and start + 20 <= transport < len(frame) and transport == start + 4 * (frame[start] & 15):
        return _Ip(start, 4, frame[start + 9])
    if kind == _IPV6 and transport < len(frame) and transport == start + 40:
        return _Ip(start, 6, frame[start + 6])
    return _Ip(start, 0, 0)


def _checked(frame: bytearray, ip: _Ip, transport: int, offset: int) -> bytes:
    """The frame, whose checksum field holds the sum over the pseudo header so far."""
    place = transport + offset
    if place + 2 > len(frame):
        raise OffloadError(f"a checksum at byte {place} of {len(frame)}")
    if ip.version == 4 and ip.protocol == _UDP and offset == 6:
        frame[place : place + 2] = bytes(2)
    else:
        checksum = ~sum16(frame[transport:]) & 0xFFFF
        if offset == 6 and not checksum:
            checksum = 0xFFFF
        frame[place : place + 2] = checksum.to_bytes(2, "big")
    return bytes(frame)


def _segments(frame: bytes, ip: _Ip, transport: int, offset: int, size: int) -> Iterator[bytes]:
    length = 8 if ip.protocol == _UDP else 4 * (frame[transport + 12] >> 4) if transport + 12 < len(frame) else 0
    end = transport + length
    if length < max(8, offset + 2) or end > min(len(frame), LARGEST_HEADERS):
        raise OffloadError(f"headers of {end} bytes, a checksum at byte {transport + offset}")
    head, payload = frame[:end], frame[end:]
    starts = range(0, len(payload), size)
    for number, start in enumerate(starts):
        segment = bytearray(head + payload[start : start + size])
        _set_lengths(segment, ip, number)
        if ip.protocol == _UDP:
            segment[transport + 4 : transport + 6] = (len(segment) - transport).to_bytes(2, "big")
        else:
            sequence = int.from_bytes(segment[transport + 4 : transport + 8], "big") + start
            segment[transport + 4 : transport + 8] = (sequence & 0xFFFFFFFF).to_bytes(4, "big")
            if number < len(starts) - 1:
                segment[transport + 13] &= ~_FIN_PSH
            if number:
                segment[transport + 13] &= ~_CWR
        pseudo = sum16(_addresses(segment, ip)) + ip.protocol + len(segment) - transport
        place = transport + offset
        segment[place : place + 2] = _folded(pseudo).to_bytes(2, "big")
        yield _checked(segment, ip, transport, offset)


def _set_lengths(segment: bytearray, ip: _Ip, number: int) -> None:
    start = ip.start
    if ip.version == 6:
        segment[start + 4 : start + 6] = (len(segment) - start - 40).to_bytes(2, "big")
        return
    identification = int.from_bytes(segment[start + 4 : start + 6], "big") + number
    segment[start + 2 : start + 4] = (len(segment) - start).to_bytes(2, "big")
    segment[start + 4 : start + 6] = (identification & 0xFFFF).to_bytes(2, "big")
    segment[start + 10 : start + 12] = bytes(2)
    checksum = ~sum16(segment[start : start + 4 * (segment[start] & 15)]) & 0xFFFF
    segment[start + 10 : start + 12] = checksum.to_bytes(2, "big")


def _addresses(segment: bytearray, ip: _Ip) -> bytearray:
    return segment[ip.start + 12 : ip.start + 20] if ip.version == 4 else segment[ip.start + 8 : ip.start + 40]


def sum16(data: bytes | bytearray) -> int:
    """The ones' complement sum of 16-bit words (RFC 1071)."""
    data = data + b"\0" * (len(data) % 2)
    return _folded(sum(struct.unpack(f">{len(data) // 2}H", data)))


def _folded(total: int) -> int:
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total
