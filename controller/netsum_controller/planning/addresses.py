"""Addresses as the ints that tables hold."""

from __future__ import annotations

import ipaddress


def mac_to_int(mac: str) -> int:
    """``02:6e:73:00:00:01`` as a 48-bit int."""
    return int(mac.replace(":", ""), 16)


def ip_to_int(ip: str) -> int:
    """``10.0.0.1`` as a 32-bit int."""
    return int(ipaddress.IPv4Address(ip))
