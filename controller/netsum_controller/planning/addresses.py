"""Addresses as text for people and as ints for tables."""

from __future__ import annotations

import ipaddress


def mac_to_int(mac: str) -> int:
    """``02:6e:73:00:00:01`` as a 48-bit int."""
    return int(mac.replace(":", ""), 16)


def int_to_mac(value: int) -> str:
    """The inverse of :func:`mac_to_int`."""
    return value.to_bytes(6, "big").hex(":")


def ip_to_int(ip: str) -> int:
    """``10.0.0.1`` as a 32-bit int."""
    return int(ipaddress.IPv4Address(ip))


def int_to_ip(value: int) -> str:
    """The inverse of :func:`ip_to_int`."""
    return str(ipaddress.IPv4Address(value))
