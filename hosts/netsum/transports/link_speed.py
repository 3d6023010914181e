# SPDX-License-Identifier: MIT
"""The speed of a network interface, as its device says it (Linux)."""

from __future__ import annotations

import array
import socket
import struct
import sys
from pathlib import Path
from typing import Final

from netsum.transports.interfaces import interface_of

if sys.platform != "win32":
    import fcntl

SYSFS: Final = Path("/sys/class/net")
_SIOCGIFHWADDR: Final = 0x8927  # <linux/sockios.h>; struct ifreq has a struct sockaddr behind its name of 16 bytes
_IFREQ_BYTES: Final = 40
_MAC: Final = slice(18, 24)
_UNKNOWN: Final = (1 << 32) - 1
"""Kernels have -1 for it, some without the sign."""
_NOMINAL: Final = frozenset({"vmxnet3", "vif", "e1000"})
"""Drivers of a hypervisor's devices that say the same number whatever carries their packets."""


def speed_of(address: str, sysfs: Path = SYSFS) -> int | None:
    """The speed of the interface with this IPv4 address in Mbit/s; None if it is not known. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        name = interface_of(sock, address)
        return None if name is None else speed_of_interface(sock, name, sysfs)


def speed_of_interface(sock: socket.socket, name: str, sysfs: Path = SYSFS) -> int | None:
    """The same of the interface of this name. ``sock`` is any socket."""
    folder = sysfs / name
    # sysfs shows the network namespace in which it was mounted, which may have another interface of this name.
    if _read(folder / "address") != _mac_of(sock, name):
        return None
    lower = [each.name.removeprefix("lower_") for each in folder.glob("lower_*")]
    if len(lower) == 1:  # a VLAN, or a bridge with one port: what it sends goes over that one's cable
        return _of_device(sysfs / lower[0])
    return _of_device(folder)


def _of_device(folder: Path) -> int | None:
    """The speed that a device has negotiated. Only what has hardware, or a hypervisor, behind it has a ``device``: the number of
    other interfaces is a constant of their driver (veth 10000, tun 10), or the sum over ports of which a flow uses one (bridge,
    bond). And the rate of a radio changes from packet to packet."""
    device = folder / "device"
    if not device.exists() or (folder / "wireless").exists() or (folder / "phy80211").exists():
        return None
    if (device / "driver").resolve().name in _NOMINAL:
        return None
    try:
        speed = int(_read(folder / "speed"))  # EINVAL where the link is down or the driver does not know
    except ValueError:
        return None
    return speed if 0 < speed < _UNKNOWN else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _mac_of(sock: socket.socket, name: str) -> str:
    request = array.array("B", struct.pack(f"16s{_IFREQ_BYTES - 16}x", name.encode()))
    fcntl.ioctl(sock, _SIOCGIFHWADDR, request)
    return request.tobytes()[_MAC].hex(":")
