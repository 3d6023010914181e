"""`PORT@WHERE`, the argument of `-i`, and the port it stands for."""

from __future__ import annotations

from dataclasses import dataclass

from netsum_switch.ports.base import Port, PortError
from netsum_switch.ports.packet import PacketPort
from netsum_switch.ports.udp import Address, UdpPort

# v1model's egress_spec has 9 bits.
MAX_PORT = 511

_FORMS = "PORT@INTERFACE, PORT@udp:HOST:PORT or PORT@udp:HOST:PORT:PEER_HOST:PEER_PORT"


@dataclass(frozen=True, slots=True)
class PortSpec:
    """A port to be opened: on `interface`, or on UDP address `local` (with or without a fixed `peer`)."""

    number: int
    interface: str | None = None
    local: Address | None = None
    peer: Address | None = None


def parse_port(text: str) -> PortSpec:
    """Parse `1@veth0`, `1@udp:127.0.0.1:9001` or `1@udp:127.0.0.1:9001:127.0.0.1:9101`. Raises PortError if the text is
    none of these."""
    number_text, at, where = text.partition("@")
    if not at or not number_text.isdecimal() or not where:
        raise PortError(f"{text!r} is not a port: write {_FORMS}")
    number = int(number_text)
    if number > MAX_PORT:
        raise PortError(f"{text!r}: port numbers go from 0 to {MAX_PORT}")
    if not where.startswith("udp:"):
        return PortSpec(number, interface=where)
    if "[" in where:
        raise PortError(f"{text!r}: an address of IPv6, and UDP ports are IPv4 only")
    parts = where.removeprefix("udp:").split(":")
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
    if spec.local is None:
        raise PortError(f"port {spec.number}: neither an interface nor a UDP address")
    return UdpPort(spec.number, spec.local, spec.peer)


def _address(text: str, host: str, port: str) -> Address:
    if not host or not port.isdecimal() or int(port) > 65535:
        raise PortError(f"{text!r}: {host}:{port} is not a UDP address")
    return host, int(port)
