# SPDX-License-Identifier: MIT
"""Ports on kernel sockets: what a program sees of datagrams, and which frames leave as datagrams."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum_switch.dataplane import DataPlane
from netsum_switch.pipeline import Pipeline
from netsum_switch.ports import Port, offloads
from netsum_switch.ports.base import SO_MEMINFO
from netsum_switch.ports.faulty import FaultyPort, Rates
from netsum_switch.ports.kernel_socket import SocketPort
from netsum_switch.ports.udp import UDP_SEGMENT
from netsum_switch.runtime import EmbeddedSwitch
from netsum_switch.table import Exact
from scapy.layers.inet import IP, UDP, IPOption_NOP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw

from tests.switch.core.switches import Core
from tests.switch.harness.controller import PROGRAMS
from tests.switch.server.test_cli import Process
from tests.switch.server.test_offloads import PipePort
from tests.switch.server.test_packet_loop import LOOPBACK, address, running, wire
from tests.switch.server.test_pcap import frames_in
from tests.threads import PATIENCE, until

HOST, MAC = "127.0.0.1", "02:00:7f:00:00:01"
INSIDE = 5000
EACH_TOS = [0, 1, 2, 3, 0xB8, 0xFF]


@cache
def reflect() -> Pipeline:
    return Core("reflect").pipeline


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def port(undo: ExitStack) -> SocketPort:
    port = SocketPort(1, LOOPBACK)
    undo.callback(port.close)
    return port


@pytest.fixture(params=["machine code", "Python"])
def reflecting(request: pytest.FixtureRequest, undo: ExitStack, port: SocketPort) -> DataPlane:
    """A switch that sends datagrams back, whose port is served by either."""
    served: Port = port if request.param == "machine code" else FaultyPort(port, Rates(), Rates(), 1)
    return running(undo, reflect(), served)


def wire_with_tos(undo: ExitStack) -> socket.socket:
    sock = wire(undo)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    return sock


def arrived(sock: socket.socket) -> tuple[bytes, int, tuple[str, int]]:
    """A datagram, its type of service and its sender."""
    data, ancillary, _, sender = sock.recvmsg(1 << 17, 64)
    (tos,) = (value[0] for level, kind, value in ancillary if (level, kind) == (socket.IPPROTO_IP, socket.IP_TOS))
    return data, tos, sender


def payload(size: int, seed: int = 0) -> bytes:
    return bytes((at * at + seed) % 251 for at in range(size))


def segmented(sock: socket.socket, data: bytes, size: int, to: tuple[str, int]) -> list[bytes]:
    """Send data as datagrams of one size, in one call; gives them."""
    control = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("H", size))]
    sock.sendmsg([data], control if size < len(data) else [], 0, to)
    return [data[at : at + size] for at in range(0, len(data), size)]


@contextmanager
def delivery(port: SocketPort) -> Iterator[None]:
    """Wait until what is sent inside waits at a port that no thread serves. On a busy machine, the call that sends may end
    before."""
    before = waiting(port)
    yield
    until(lambda: waiting(port) > before)


def waiting(port: SocketPort) -> int:
    """Bytes that a port has not received yet, as the kernel counts them."""
    with socket.socket(fileno=os.dup(port.fileno())) as same:
        return int.from_bytes(same.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 64)[:4], sys.byteorder)


def received_frame(peer: tuple[str, int], tos: int, data: bytes, inside: int) -> bytes:
    mac = "02:00:" + ":".join(f"{int(each):02x}" for each in peer[0].split("."))
    ip = IP(src=peer[0], dst=HOST, tos=tos, id=0, flags="DF", ttl=64)
    return bytes(Ether(src=mac, dst=MAC) / ip / UDP(sport=peer[1], dport=inside, chksum=0) / Raw(data))


# What the program gets and gives.


@pytest.mark.parametrize("inside", [None, INSIDE])
def test_frames_of_datagrams(undo: ExitStack, inside: int | None) -> None:
    port = SocketPort(1, LOOPBACK, inside)
    undo.callback(port.close)
    assert port.name == f"socket:127.0.0.1:{port.address[1]}"
    peers = [wire(undo), wire(undo)]
    expected = []
    for size in (0, 1, 18, 1472, 65507):
        for peer, tos in zip(peers, (0, 0xB9), strict=True):
            peer.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
            peer.sendto(payload(size), port.address)
            expected.append(received_frame(address(peer), tos, payload(size), inside or port.address[1]))
    assert port.receive() + port.receive() == expected
    assert port.counters.rx_bytes == sum(map(len, expected))


def test_one_peer(reflecting: DataPlane, port: SocketPort, undo: ExitStack) -> None:
    peer = wire(undo)
    sizes = [0, 1, 18, 1472, 1473, 8972, 65507, 0, 0]
    for number, size in enumerate(sizes):
        peer.sendto(payload(size, number), port.address)
    for number, size in enumerate(sizes):
        assert peer.recvfrom(1 << 17) == (payload(size, number), port.address)
    reflecting.stop()
    counters = port.counters
    assert counters.rx_packets == counters.tx_packets == len(sizes)
    assert counters.rx_bytes == counters.tx_bytes == sum(sizes) + 42 * len(sizes)
    assert counters.tx_dropped == counters.rx_errors == 0


def test_many_peers(reflecting: DataPlane, port: SocketPort, undo: ExitStack) -> None:
    peers = [wire(undo) for _ in range(20)]
    with reflecting.lock:  # so that they wait together
        for number in range(10):
            for at, peer in enumerate(peers):
                for _ in range(1 + at % 3):
                    peer.sendto(payload(100, number) + bytes([at]), port.address)
    for at, peer in enumerate(peers):
        for number in range(10):
            for _ in range(1 + at % 3):
                assert peer.recv(2000) == payload(100, number) + bytes([at])


@pytest.mark.parametrize(("size", "total"), [(1, 50), (1000, 20_033), (1472, 3 * 1472), (4136, 15 * 4136 + 1), (8958, 60_000)])
def test_datagrams_that_come_together(reflecting: DataPlane, port: SocketPort, undo: ExitStack, size: int, total: int) -> None:
    peer, other = wire(undo), wire(undo)
    with reflecting.lock:
        sent = segmented(peer, payload(total), size, port.address)
        other.sendto(b"between", port.address)
        sent += segmented(peer, payload(total, 1), size, port.address)
    assert [peer.recv(1 << 17) for _ in sent] == sent
    assert other.recv(2000) == b"between"
    assert port.counters.rx_packets == len(sent) + 1


def test_tos_passes_both_ways(reflecting: DataPlane, port: SocketPort, undo: ExitStack) -> None:  # noqa: ARG001
    peer = wire_with_tos(undo)
    for tos in EACH_TOS:
        peer.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        peer.sendto(b"marked", port.address)
        sent = segmented(peer, payload(2500), 1000, port.address)
        assert [arrived(peer)[:2] for _ in range(1 + len(sent))] == [(b"marked", tos), *((each, tos) for each in sent)]


def test_a_peer_that_refuses_costs_no_other_a_packet(reflecting: DataPlane, port: SocketPort, undo: ExitStack) -> None:
    gone, *peers = (wire(undo) for _ in range(4))
    for _ in range(3):
        with reflecting.lock:
            for number in range(10):
                for peer in (peers[0], gone, *peers[1:]):
                    segmented(peer, payload(350, number), 100, port.address)
            if gone.fileno() >= 0:
                gone.close()
                gone = wire(undo)
        for number in range(10):
            for peer in peers:
                assert b"".join(peer.recv(2000) for _ in range(4)) == payload(350, number)
    reflecting.stop()
    assert port.counters.rx_errors == 0


# Which frames leave.


def leaving(**changes: object) -> Packet:
    """A frame that a port may send; with fields changed, and as many bytes of padding."""
    packet = Ether(src=MAC, dst="00:00:00:00:00:02") / IP(src=HOST, dst=HOST, id=0, flags="DF")
    packet = packet / UDP(sport=INSIDE, dport=9, chksum=0) / Raw(payload(100))
    for name, value in changes.items():
        layer, _, field = name.partition("_")
        setattr(packet[{"ether": Ether, "ip": IP, "udp": UDP}[layer]], field, value)
    return packet


def sending(undo: ExitStack) -> SocketPort:
    port = SocketPort(2, LOOPBACK, INSIDE)
    undo.callback(port.close)
    return port


@cache
def to_the_socket() -> Pipeline:
    """Sends frames to port 2."""
    core = Core("contract")
    for mac in (0x000000000002, 0x010000000002, 0xFFFFFFFFFFFF):
        core.insert("exact_table", [Exact(mac)], "forward", 2)
    return core.pipeline


STAY = {
    "ARP": bytes(Ether(src=MAC, dst="ff:ff:ff:ff:ff:ff") / ARP()),
    "another protocol": bytes(leaving(ip_proto=6)),
    "IPv6": bytes(leaving(ether_type=0x86DD)),
    "a VLAN tag": bytes(leaving())[:12] + b"\x81\x00\x00\x05" + bytes(leaving())[12:],
    "IPv4 options": bytes(leaving(ip_options=[IPOption_NOP()] * 4)),
    "a fragment": bytes(leaving(ip_flags="MF")),
    "the last fragment": bytes(leaving(ip_flags=0, ip_frag=10)),
    "a wrong header checksum": bytes(leaving(ip_chksum=0x1234)),
    "another source address": bytes(leaving(ip_src="127.0.0.2")),
    "another source port": bytes(leaving(udp_sport=INSIDE + 1)),
    "port 0": bytes(leaving(udp_dport=0)),
    "a broadcast": bytes(leaving(ip_dst="255.255.255.255", ether_dst="ff:ff:ff:ff:ff:ff")),
    "a broadcast of the network": bytes(leaving(ip_dst="127.255.255.255")),
    "to no host": bytes(leaving(ip_dst="0.0.0.0")),
    "flooded": bytes(leaving(ether_dst="01:00:00:00:00:02")),
    "longer than it is": bytes(leaving(ip_len=129, udp_len=109)),
    "a short IPv4 length": bytes(leaving(ip_len=27, udp_len=7)),
    "another UDP length": bytes(leaving(udp_len=107)),
    "a UDP length of 0": bytes(leaving(udp_len=0)),
    "cut short": bytes(leaving())[:41],
    "nothing": bytes(leaving())[:14],
}


@pytest.mark.parametrize("name", STAY)
def test_frames_that_may_not_leave_are_dropped_and_counted(undo: ExitStack, name: str) -> None:
    """By Python and by machine code; the next one leaves."""
    peer = wire(undo)
    good = bytes(leaving(udp_dport=address(peer)[1]))
    from_python = sending(undo)
    from_python.send(STAY[name])
    from_python.send(good)
    source, native = PipePort(1), sending(undo)
    undo.callback(source.other.close)
    for each in (STAY[name], good):
        source.other.send(offloads.NOTHING + each)
    dataplane = running(undo, to_the_socket(), source, native)
    assert {peer.recvfrom(2000) for _ in range(2)} == {(payload(100), port.address) for port in (from_python, native)}
    dataplane.stop()
    for port in (from_python, native):
        assert (port.counters.tx_dropped, port.counters.tx_packets, port.counters.tx_bytes) == (1, 1, 142)


LEAVE = {
    "with padding": bytes(leaving()) + b"\0" * 18,
    "without DF": bytes(leaving(ip_flags=0, ip_id=7)),
    "with another TTL": bytes(leaving(ip_ttl=1)),
    "with a UDP checksum": bytes(leaving(udp_chksum=0x1234)),
    "to another MAC address": bytes(leaving(ether_dst="02:12:34:56:78:9a")),
}


@pytest.mark.parametrize("name", LEAVE)
def test_frames_that_leave(undo: ExitStack, name: str) -> None:
    port = sending(undo)
    port.send(LEAVE[name])
    assert (port.counters.tx_packets, port.counters.tx_bytes, port.counters.tx_dropped) == (1, 142, 0)


@pytest.mark.parametrize("mac", ["01:00:5e:07:07:07", "00:00:00:00:00:02"])
def test_a_group_gets_a_datagram_once(undo: ExitStack, mac: str) -> None:
    group = "239.7.7.7"
    members = [wire_in_group(undo, group) for _ in range(2)]
    port = sending(undo)
    for member in members:
        port.send(bytes(leaving(ether_dst=mac, ip_dst=group, udp_dport=address(member)[1])))
    assert [member.recvfrom(2000) for member in members] == [(payload(100), port.address)] * 2
    assert (port.counters.tx_packets, port.counters.tx_dropped) == (2, 0)


def wire_in_group(undo: ExitStack, group: str) -> socket.socket:
    sock = undo.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sock.bind((group, 0))
    sock.settimeout(PATIENCE)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(HOST))
    return sock


# Python and machine code do the same.


TARGETS = st.sampled_from(["one", "two", "one", "two", "0.0.0.0", "255.255.255.255", "127.255.255.255", "239.7.7.7"])
# Not of the targets: what is sent stays with the test's sockets.
MUTATIONS = st.lists(st.tuples(st.sampled_from([*range(6, 30), 34, 35, 38, 39]), st.integers(0, 255)), max_size=1)
SENT = st.lists(
    st.tuples(
        TARGETS,
        st.sampled_from([0, 0, 3, 0xB8]),
        st.sampled_from([0, 1, 100, 100, 1000]),
        st.sampled_from(["DF", "DF", 0]),
        st.sampled_from(["00:00:00:00:00:02", "00:00:00:00:00:02", "01:00:00:00:00:02", "ff:ff:ff:ff:ff:ff"]),
        st.sampled_from([0, 0, 18]),
        MUTATIONS,
    ),
    min_size=1,
    max_size=20,
)


@given(SENT)
def test_machine_code_sends_what_python_sends(
    sent: list[tuple[str, int, int, str | int, str, int, list[tuple[int, int]]]],
) -> None:
    with ExitStack() as undo:
        peers = {"one": wire_with_tos(undo), "two": wire_with_tos(undo)}
        frames = []
        for number, (target, tos, size, flags, mac, padding, mutations) in enumerate(sent):
            peer = peers.get(target)
            host, port_number = address(peer) if peer else (target, 9)
            packet = leaving(ether_dst=mac, ip_dst=host, ip_tos=tos, ip_flags=flags, udp_dport=port_number)
            packet[UDP].remove_payload()
            changed = bytearray(bytes(packet / Raw(payload(size, number + 1))) + b"\0" * padding)
            for at, value in mutations:
                changed[at] = value
            frames.append(bytes(changed))
        frames += [bytes(leaving(udp_dport=address(peer)[1])) for peer in peers.values()]
        pipeline = to_the_socket()
        from_python = sending(undo)
        for frame in frames:
            for egress_port, each in pipeline.process(1, frame):
                assert egress_port == from_python.number
                from_python.send(each)
        expected = {name: until_the_last(peer, from_python) for name, peer in peers.items()}
        source, native = PipePort(1), sending(undo)
        undo.callback(source.other.close)
        for frame in frames:
            source.other.send(offloads.NOTHING + frame)
        dataplane = running(undo, pipeline, source, native)
        assert {name: until_the_last(peer, native) for name, peer in peers.items()} == expected
        dataplane.stop()
        assert counted(native) == counted(from_python)


def until_the_last(peer: socket.socket, port: SocketPort) -> list[tuple[bytes, int]]:
    """The datagrams of a port, with their type of service, until that of `leaving`."""
    found: list[tuple[bytes, int]] = []
    while not found or found[-1] != (payload(100), 0):
        data, tos, sender = arrived(peer)
        assert sender == port.address
        found.append((data, tos))
    return found


def counted(port: SocketPort) -> dict[str, int]:
    return {name: getattr(port.counters, name) for name, *_ in port.counters._fields_}


ARRIVING = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 255), st.integers(0, 9000), st.integers(1, 3000)), min_size=1, max_size=8
)


@cache
def to_the_pipe() -> Pipeline:
    """Sends frames to port 2."""
    core = Core("contract")
    core.insert("exact_table", [Exact(int(MAC.replace(":", ""), 16))], "forward", 2)
    return core.pipeline


@given(ARRIVING)
def test_machine_code_receives_what_python_receives(messages: list[tuple[int, int, int, int]]) -> None:
    with ExitStack() as undo:
        peers = [wire(undo) for _ in range(3)]
        ports = [SocketPort(1, LOOPBACK, INSIDE) for _ in range(2)]
        for port in ports:
            undo.callback(port.close)
            for number, (at, tos, total, size) in enumerate(messages):
                peers[at].setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
                segmented(peers[at], payload(total, number), max(size, -(-total // 60)), port.address)
        expected: list[bytes] = []
        while more := ports[0].receive():
            expected += more
        target = PipePort(2)
        target.joins = False
        undo.callback(target.other.close)
        dataplane = running(undo, to_the_pipe(), ports[1], target)
        found = [target.other.recv(1 << 17) for _ in expected]
        dataplane.stop()
        assert found == [offloads.NOTHING + each for each in expected]
        assert counted(ports[1]) == counted(ports[0])


# The switch as a whole.


def test_a_process_with_its_captures(undo: ExitStack, tmp_path: Path) -> None:
    """They show frames; the ready file and the line that is printed, the socket."""
    more = ("--pcap", str(tmp_path), "--", "--grpc-server-addr", "127.0.0.1:0")
    process = Process(tmp_path, "-i", f"3@socket:127.0.0.1:0:{INSIDE}", str(PROGRAMS / "reflect.json"), *more)
    undo.callback(process.popen.wait)
    undo.callback(process.popen.kill)
    host, _, number = process.ready["udp"]["3"].partition(":")
    assert process.ready["ports"] == {"3": f"socket:{host}:{number}"}
    peer = wire(undo)
    sent = segmented(peer, payload(2100), 1000, (host, int(number)))
    assert [peer.recvfrom(2000) for _ in sent] == [(each, (host, int(number))) for each in sent]
    code, output, _ = process.stop()
    assert code == 0
    assert f"; ports 3@socket:{host}:{number}\n" in output
    expected = [received_frame(address(peer), 0, each, INSIDE) for each in sent]
    assert frames_in(tmp_path / "port3_in.pcap") == expected
    out = frames_in(tmp_path / "port3_out.pcap")
    assert [each[42:] for each in out] == sent
    assert {each[26:34] for each in out} == {socket.inet_aton(HOST) * 2}
    assert {each[34:36] for each in out} == {INSIDE.to_bytes(2, "big")}


def test_a_switch_says_where_its_sockets_are(undo: ExitStack) -> None:
    switch = undo.enter_context(EmbeddedSwitch(["1@socket:127.0.0.1:0"], program=PROGRAMS / "reflect.json"))
    peer = wire(undo)
    peer.sendto(b"x", switch.port_address(1))
    assert peer.recvfrom(2000) == (b"x", switch.port_address(1))
    assert switch.port_names == {1: f"socket:127.0.0.1:{switch.port_address(1)[1]}"}
