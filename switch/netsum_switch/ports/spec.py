# SPDX-License-Identifier: MIT
"""`PORT@WHERE`, the argument of `-i`, and the port it stands for."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from netsum_switch.ports.base import Port, PortError
from netsum_switch.ports.kernel_socket import SocketPort
from netsum_switch.ports.packet import PacketPort
from netsum_switch.ports.udp import Address, UdpPort

# v1model's egress_spec has 9 bits.
MAX_PORT = 511

_BROADCAST = ipaddress.IPv4Address("255.255.255.255")

_FORMS = (
    "PORT@INTERFACE, PORT@udp:HOST:PORT, PORT@udp:HOST:PORT:PEER_HOST:PEER_PORT, PORT@socket:HOST:PORT "
    "or PORT@socket:HOST:PORT:INSIDE_PORT"
)


@dataclass(frozen=True, slots=True)
class PortSpec:
    """A port to be opened: on `interface`, on UDP address `local` (with or without a fixed `peer`), or on a UDP socket of the
    kernel at `own`, whose datagrams have the UDP port `inside_port` inside (None: that of `own`)."""

    number: int
    interface: str | None = None
    local: Address | None = None
    peer: Address | None = None
    own: Address | None = None
    inside_port: int | None = None


def parse_port(text: str) -> PortSpec:
    """Parse `1@veth0`, `1@udp:127.0.0.1:9001[:127.0.0.1:9101]` or `1@socket:10.1.0.9:12000[:12001]`. Raises PortError if the
    text is none of these."""
    number_text, at, where = text.partition("@")
    if not at or not number_text.isdecimal() or not where:
        raise PortError(f"{text!r} is not a port: write {_FORMS}")
    number = int(number_text)
    if number > MAX_PORT:
        raise PortError(f"{text!r}: port numbers go from 0 to {MAX_PORT}")
    kind, colon, rest = where.partition(":")
    if kind not in ("udp", "socket") or not colon:
        return PortSpec(number, interface=where)
    if "[" in where:
        raise PortError(f"{text!r}: an address of IPv6, and UDP ports are IPv4 only")
    parts = rest.split(":")
    if kind == "socket":
        return _of_socket(text, number, parts)
    if len(parts) not in (2, 4):
        raise PortError(f"{text!r} is not a port: write {_FORMS}")
    peer = _address(text, *parts[2:]) if len(parts) == 4 else None
    if peer is not None and peer[1] == 0:
        raise PortError(f"{text!r}: the peer's UDP port cannot be 0")
    return PortSpec(number, local=_address(text, parts[0], parts[1]), peer=peer)


def open_port(spec: PortSpec) -> Port:
    """Raises PortError if it cannot be opened."""
    if spec.interface is not None:
        return PacketPort(spec.number, spec.interface)
    if spec.own is not None:
        return SocketPort(spec.number, spec.own, spec.inside_port)
    if spec.local is None:
        raise PortError(f"port {spec.number}: neither an interface nor a UDP address")
    return UdpPort(spec.number, spec.local, spec.peer)


def _of_socket(text: str, number: int, parts: list[str]) -> PortSpec:
    if len(parts) not in (2, 3):
        raise PortError(f"{text!r} is not a port: write {_FORMS}")
    own = _address(text, parts[0], parts[1])
    try:
        host = ipaddress.IPv4Address(own[0])
    except ValueError:
        raise PortError(f"{text!r}: {own[0]} is not an IPv4 address: write the one at which hosts reach this machine") from None
    if host.is_unspecified or host.is_multicast or host == _BROADCAST:
        raise PortError(
            f"{text!r}: {host} is not one machine's address, and frames carry it: write the one at which hosts reach this machine"
        )
    inside = parts[2] if len(parts) == 3 else None
    if inside is not None and _address(text, own[0], inside)[1] == 0:
        raise PortError(f"{text!r}: the UDP port inside cannot be 0")
    return PortSpec(number, own=own, inside_port=None if inside is None else int(inside))


def _address(text: str, host: str, port: str) -> Address:
    if not host or not port.isdecimal() or int(port) > 65535:
        raise PortError(f"{text!r}: {host}:{port} is not a UDP address")
    return host, int(port)
