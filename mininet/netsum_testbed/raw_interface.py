# SPDX-License-Identifier: MIT
"""The Ethernet interface from which an aggregator's switch takes raw frames, and the switch's own address there (Linux).

The P4 program answers ARP for the switch's address, so the kernel must not have it: it would answer ARP, too, and refuse the UDP.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from ipaddress import AddressValueError, IPv4Address, IPv4Interface
from typing import Final

from netsum.transports.interfaces import addresses, interface_of, mtu_of_interface

from netsum_testbed.errors import TestbedError

# <linux/sockios.h>, <linux/if.h>, <linux/if_arp.h>
_SIOCGIFFLAGS, _SIOCGIFNETMASK, _SIOCGIFHWADDR = 0x8913, 0x891B, 0x8927
_IFF_UP: Final = 1
_ARPHRD_ETHER: Final = 1
_REQUEST: Final = struct.Struct("16s24s")
_POINT_TO_POINT: Final = 31
"""The shortest prefix of a network without a broadcast address (RFC 3021)."""


def check_raw_interface(interface: str, address: str) -> int:
    """Return the interface's MTU, bytes of an IP packet, if a switch can have this address there. Raises :class:`TestbedError`
    if there is no such Ethernet interface, if it is down, if this process may not take its frames, if this machine's kernel has
    the address, or if no host of the interface's network could have it."""
    own = _host_address(address)
    try:
        socket.if_nametoindex(interface)
    except OSError:
        names = ", ".join(sorted(name for _, name in socket.if_nameindex()))
        raise TestbedError(f"--interface {interface}: there is no such interface (there are: {names})") from None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        (kind,) = struct.unpack_from("H", _ioctl(sock, _SIOCGIFHWADDR, interface))
        if kind != _ARPHRD_ETHER:
            raise TestbedError(f"--interface {interface}: it carries no Ethernet frames; take an Ethernet interface")
        (flags,) = struct.unpack_from("H", _ioctl(sock, _SIOCGIFFLAGS, interface))
        if not flags & _IFF_UP:
            raise TestbedError(f"--interface {interface}: it is down (`ip link set {interface} up`)")
        _check_permission(interface)
        if found := interface_of(sock, address):
            raise TestbedError(
                f"--switch-address {address}: this machine has that address already, at {found}. Give a free one: the kernel "
                f"must not answer for the switch"
            )
        _check_network(interface, own, _networks(sock, interface))
        return mtu_of_interface(sock, interface)


def _host_address(address: str) -> IPv4Address:
    try:
        own = IPv4Address(address)
    except AddressValueError:
        raise TestbedError(f"--switch-address {address}: not an IPv4 address like 10.1.0.20") from None
    if own.is_multicast or own.is_unspecified or own.is_loopback or own.is_reserved:
        raise TestbedError(f"--switch-address {address}: hosts cannot send to it; give a free address of their network")
    return own


def _check_permission(interface: str) -> None:
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except PermissionError:
        raise TestbedError(
            f"--interface {interface}: raw frames need root or the capability CAP_NET_RAW (systemd: "
            f"AmbientCapabilities=CAP_NET_RAW); without, leave --interface out"
        ) from None


def _check_network(interface: str, own: IPv4Address, networks: list[IPv4Interface]) -> None:
    """Raise :class:`TestbedError` if the interface has networks, and the address is no host's in any of them."""
    there = [each.network for each in networks if own in each.network]
    if networks and not there:
        listed = ", ".join(map(str, networks))
        raise TestbedError(
            f"--switch-address {own}: it is not in the network of {interface} ({listed}), so hosts would not find it there"
        )
    for network in there:
        if network.prefixlen < _POINT_TO_POINT and own in (network.network_address, network.broadcast_address):
            raise TestbedError(f"--switch-address {own}: it is the network's or the broadcast address of {network}, no host's")


def _networks(sock: socket.socket, interface: str) -> list[IPv4Interface]:
    """The interface's IPv4 addresses, each with the length of its network's prefix."""
    found = []
    for label, address in addresses(sock):
        if label.partition(":")[0] == interface:  # the label of a further address is eth0:1
            sockaddr = struct.pack("=H2x4s", socket.AF_INET, address)
            mask = _ioctl(sock, _SIOCGIFNETMASK, label, sockaddr)[4:8]
            found.append(IPv4Interface((address, int.from_bytes(mask).bit_count())))
    return found


def _ioctl(sock: socket.socket, request: int, name: str, argument: bytes = b"") -> bytes:
    """The union of a struct ifreq after the call."""
    try:
        return fcntl.ioctl(sock, request, _REQUEST.pack(name.encode(), argument))[16:]
    except OSError as error:
        raise TestbedError(f"--interface {name}: {error.strerror}") from None
