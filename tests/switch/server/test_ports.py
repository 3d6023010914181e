# SPDX-License-Identifier: MIT
"""Port backends: UDP sockets and interfaces."""

from __future__ import annotations

import socket
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from netsum_switch.ports import PortError, parse_port
from netsum_switch.ports.kernel_socket import SocketPort
from netsum_switch.ports.packet import PacketPort
from netsum_switch.ports.udp import UdpPort

from tests.switch.harness.frames import frame
from tests.switch.harness.namespace import Namespace
from tests.threads import PATIENCE


def test_port_specs() -> None:
    assert parse_port("3@veth7").interface == "veth7"
    spec = parse_port("1@udp:127.0.0.1:9001:localhost:9101")
    assert (spec.number, spec.local, spec.peer) == (1, ("127.0.0.1", 9001), ("localhost", 9101))
    assert parse_port("1@udp:127.0.0.1:0").peer is None
    spec = parse_port("1@socket:10.1.0.9:12000")
    assert (spec.own, spec.inside_port) == (("10.1.0.9", 12000), None)
    assert parse_port("1@socket:10.1.0.9:0:12001").inside_port == 12001


BAD_SPECS = (
    "", "1", "@x", "x@y", "-1@x", "1@", "1@udp:", "1@udp:h:p", "1@udp::1", "1@udp:h:1:g", "1@udp:h:1:g:0",
    "1@udp:h:65536", "1@socket:", "1@socket:10.1.0.9", "1@socket:10.1.0.9:x", "1@socket:10.1.0.9:1:65536",
    "1@socket:10.1.0.9:1:2:3",
)  # fmt: skip


@pytest.mark.parametrize("text", BAD_SPECS)
def test_bad_port_specs(text: str) -> None:
    with pytest.raises(PortError):
        parse_port(text)


BAD_SOCKETS = [
    (
        "0.0.0.0:12000",
        r"0\.0\.0\.0 is not one machine's address, and frames carry it: write the one at which hosts reach this machine",
    ),
    ("255.255.255.255:12000", "is not one machine's address"),
    ("239.1.2.3:12000", "is not one machine's address"),
    ("localhost:12000", "localhost is not an IPv4 address: write the one at which hosts reach this machine"),
    ("10.1.0:12000", r"10\.1\.0 is not an IPv4 address"),
    ("[::1]:12000", "an address of IPv6, and UDP ports are IPv4 only"),
    ("10.1.0.9:12000:0", "the UDP port inside cannot be 0"),
]


@pytest.mark.parametrize(("where", "message"), BAD_SOCKETS)
def test_bad_addresses_of_sockets(where: str, message: str) -> None:
    with pytest.raises(PortError, match=f"'1@socket:.*': .*{message}"):
        parse_port(f"1@socket:{where}")


@pytest.fixture
def port() -> Iterator[UdpPort]:
    port = UdpPort(1, ("127.0.0.1", 0))
    yield port
    port.close()


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(PATIENCE)
        yield sock


def test_udp_answers_the_last_sender(port: UdpPort, peer: socket.socket) -> None:
    assert port.receive() == []
    port.send(b"to no peer")
    assert port.counters.tx_dropped == 1
    frames = [frame(1, size=64), frame(2, size=9018), frame(3, size=14)]
    for each in frames:
        peer.sendto(each, port.address)
    assert port.receive() == frames  # loopback delivers in the call that sends
    port.send(frames[1])
    assert peer.recv(65536) == frames[1]
    counters = port.counters
    assert (counters.rx_packets, counters.rx_bytes) == (3, 64 + 9018 + 14)
    assert (counters.tx_packets, counters.tx_bytes) == (1, 9018)


def test_udp_peer_that_is_not_there(peer: socket.socket) -> None:
    gone = UdpPort(0, ("127.0.0.1", 0))
    gone.close()
    port = UdpPort(1, ("127.0.0.1", 0), gone.address)
    try:
        port.send(b"x" * 60)
        port.send(b"x" * 60)
        port.send(b"x" * 70000)  # more than a datagram
        peer.sendto(frame(1), port.address)
        assert port.receive() == [frame(1)]
    finally:
        port.close()


def test_udp_address_in_use(port: UdpPort) -> None:
    with pytest.raises(PortError, match=r"port 2: cannot bind UDP 127\.0\.0\.1:"):
        UdpPort(2, port.address)
    with pytest.raises(PortError, match=r"port 2: cannot bind UDP 127\.0\.0\.1:"):
        SocketPort(2, port.address)


class InNamespace:
    """A `PacketPort` on s1 of a namespace of its own, and the other end of the wire."""

    def __init__(self) -> None:
        self.namespace = Namespace((1,))
        self.port = self.namespace.call(lambda: PacketPort(1, "s1"))
        self.other = self.namespace.open_interface("h1")
        self.other.settimeout(PATIENCE)

    def close(self) -> None:
        self.port.close()
        self.other.close()
        self.namespace.close()


@pytest.fixture
def inside() -> Iterator[Any]:
    setup = InNamespace()
    yield setup
    setup.close()


@pytest.mark.root
def test_interface(inside: InNamespace) -> None:
    """Both ways, jumbo frames, frames for others, not one's own."""
    frames = [frame(1), frame(0xFFFFFFFFFFFF, size=9500 + 14), frame(3)]
    for each in frames:
        inside.other.send(each)
    assert inside.port.receive() == frames
    inside.port.send(frames[1])
    assert inside.other.recv(65536) == frames[1]
    assert inside.port.receive() == []
    inside.port.send(frame(1, size=20000))  # more than the MTU
    assert inside.port.counters.tx_dropped == 1


@pytest.mark.root
def test_vlan_tags_stay(inside: InNamespace) -> None:
    tagged = frame(1)[:12] + struct.pack("!HH", 0x8100, 0xA123) + frame(1)[12:]
    service = frame(1)[:12] + struct.pack("!HHHH", 0x88A8, 5, 0x8100, 6) + frame(1)[12:]
    inside.other.send(tagged)
    inside.other.send(service)
    assert inside.port.receive() == [tagged, service]


@pytest.mark.root
def test_interface_that_goes_down_and_comes_back(inside: InNamespace) -> None:
    link = ["ip", "-n", inside.namespace.name, "link", "set", "s1"]
    subprocess.run([*link, "down"], check=True)
    inside.port.send(frame(1))
    assert inside.port.receive() == []
    assert inside.port.counters.tx_dropped == 1
    subprocess.run([*link, "up"], check=True)
    inside.port.send(frame(2))
    assert inside.other.recv(65536) == frame(2)


@pytest.mark.root
def test_interface_that_vanishes(inside: InNamespace) -> None:
    subprocess.run(["ip", "-n", inside.namespace.name, "link", "delete", "s1"], check=True)
    for _ in range(3):
        inside.port.send(frame(1))
        assert inside.port.receive() == []
    assert inside.port.counters.tx_dropped == 3


@pytest.mark.root
def test_no_such_interface() -> None:
    with pytest.raises(PortError, match="port 4: no interface nosuch0"):
        PacketPort(4, "nosuch0")
