# SPDX-License-Identifier: MIT
"""This host's network interfaces, by their IPv4 addresses (Linux)."""

from __future__ import annotations

import array
import socket
import struct
import sys
from typing import Final

if sys.platform != "win32":
    import fcntl

# <linux/sockios.h>, struct ifreq of <linux/if.h>: a name of 16 bytes, and a union whose largest member is struct ifmap.
_SIOCGIFCONF, _SIOCGIFMTU = 0x8912, 0x8921
_NAME_BYTES: Final = 16
_IFREQ_BYTES: Final = _NAME_BYTES + struct.calcsize("LLHBBB3x")
_ADDRESS: Final = slice(_NAME_BYTES + 4, _NAME_BYTES + 8)
"""Of a struct sockaddr_in: behind its family and port."""


def addresses(sock: socket.socket) -> list[tuple[str, bytes]]:
    """The name of an interface and an IPv4 address of it, four bytes; an interface is listed once for each of its addresses.
    ``sock`` is any socket. Raises OSError."""
    (size, _) = struct.unpack("iP", fcntl.ioctl(sock, _SIOCGIFCONF, struct.pack("iP", 0, 0)))
    buffer = array.array("B", bytes(size))
    start, _ = buffer.buffer_info()
    (size, _) = struct.unpack("iP", fcntl.ioctl(sock, _SIOCGIFCONF, struct.pack("iP", size, start)))
    entries = [buffer[at : at + _IFREQ_BYTES].tobytes() for at in range(0, size, _IFREQ_BYTES)]
    return [(entry[:_NAME_BYTES].partition(b"\0")[0].decode(), entry[_ADDRESS]) for entry in entries]


def interface_of(sock: socket.socket, address: str) -> str | None:
    """The name of the interface that has this IPv4 address; None if there is none. Raises OSError."""
    wanted = socket.inet_aton(address)
    for name, own in addresses(sock):
        if own == wanted or (own[0] == wanted[0] == 127):  # all of 127.0.0.0/8 is the loopback interface's
            return name.partition(":")[0]  # the label of a further address is eth0:1
    return None


def mtu_of(address: str) -> int:
    """The MTU of the interface that has this IPv4 address, bytes of an IP packet. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        name = interface_of(sock, address)
        if name is None:
            raise OSError(f"no interface of this host has the address {address}")
        return mtu_of_interface(sock, name)


def mtu_of_interface(sock: socket.socket, name: str) -> int:
    """The MTU of the interface of this name, bytes of an IP packet. Raises OSError."""
    answer = fcntl.ioctl(sock, _SIOCGIFMTU, struct.pack("16si12x", name.encode(), 0))
    (mtu,) = struct.unpack_from("i", answer, _NAME_BYTES)
    return int(mtu)
