# SPDX-License-Identifier: MIT
"""Many datagrams at a time through the kernel's stack: UDP_SEGMENT to send, UDP_GRO to receive (Linux).

Up to 64 KB of datagrams of one size go through the stack as one, which the network device cuts up; a virtual one (veth, loopback)
hands it over whole. The kernel does it for a device without the feature, too, but computes all checksums then, which costs more
than it saves.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import struct
import sys
from contextlib import suppress
from typing import Final

from netsum.transports.interfaces import interface_of

if sys.platform != "win32":
    import fcntl

UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104
LARGEST: Final = 65000
"""Bytes of datagrams that go at a time, with the headers that some transports put before each."""
MOST: Final = 64
"""Datagrams that go at a time (UDP_MAX_SEGMENTS)."""
_OLDEST: Final = (6, 2)
"""The Linux on which raw sockets know of such frames (VIRTIO_NET_HDR_GSO_UDP_L4): a switch on an older one would lose them."""

# <linux/sockios.h>, <linux/ethtool.h>
_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSSET_INFO, _GFEATURES = 0x1B, 0x37, 0x3A
_FEATURES, _NAME_BYTES = 4, 32


def is_carried(sock: socket.socket, remote: tuple[str, int]) -> bool:
    """True if the device on the way to this address takes many datagrams at a time."""
    if not has_large_frames():
        return False
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(remote)
        device = interface_of(probe, probe.getsockname()[0])
        sock.getsockopt(socket.IPPROTO_UDP, UDP_SEGMENT)
        return device is not None and has_segmentation(probe, device)
    return False


def has_segmentation(sock: socket.socket, device: str) -> bool:
    """True if this device cuts up several datagrams, or hands them over whole; False if that cannot be found out."""
    with suppress(OSError):
        return "tx-udp-segmentation" in _active_features(sock, device)
    return False


def has_large_frames() -> bool:
    """True if a raw socket learns from this kernel that a frame is several datagrams."""
    if sys.platform != "linux":
        return False
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int(re.sub(r"\D.*", "", minor) or 0)) >= _OLDEST


def _active_features(sock: socket.socket, device: str) -> set[str]:
    """The device's features that are on, by the kernel's names (``ethtool -k``). Raises OSError."""

    def call(request: bytes, room: int) -> bytes:
        buffer = ctypes.create_string_buffer(request, len(request) + room)
        fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("16sN", device.encode(), ctypes.addressof(buffer)))
        return buffer.raw[len(request) :]

    (count,) = struct.unpack("I", call(struct.pack("=IIQ", _GSSET_INFO, 0, 1 << _FEATURES), 4))
    text = call(struct.pack("=III", _GSTRINGS, _FEATURES, count), count * _NAME_BYTES)
    words = -(-count // 32)
    blocks = struct.unpack(f"{4 * words}I", call(struct.pack("=II", _GFEATURES, words), 16 * words))
    active = sum(blocks[4 * word + 2] << 32 * word for word in range(words))
    names = (text[at : at + _NAME_BYTES].rstrip(b"\0").decode() for at in range(0, len(text), _NAME_BYTES))
    return {name for number, name in enumerate(names) if active >> number & 1}
