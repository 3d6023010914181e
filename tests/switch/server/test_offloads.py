# SPDX-License-Identifier: MIT
"""Checksums that a link has not computed, and several packets in one frame: a program sees what would be on a wire."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cache, partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum_switch.dataplane import DataPlane
from netsum_switch.native.sending import _LARGEST_MESSAGE
from netsum_switch.ports import offloads
from netsum_switch.ports.base import PortCounters, enlarge_buffers
from netsum_switch.ports.faulty import FaultyPort, Rates
from netsum_switch.ports.packet import PacketPort
from netsum_switch.ports.udp import UdpPort
from netsum_testbed.netns import NetworkNamespace, run_command
from scapy.layers.inet import IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from tests.switch.harness.frames import frame
from tests.switch.harness.namespace import Namespace
from tests.switch.server.test_packet_loop import LOOPBACK, forwarding, running, wire
from tests.threads import PATIENCE, until

_PACKET_VNET_HDR, _UDP_SEGMENT, _UDP_GRO = 15, 103, 104
FIN_PSH_ACK_CWR = 0x99
ON = [word for name in ("tx", "rx", "sg", "tso", "gso", "gro", "tx-udp-segmentation") for word in (name, "on")]


def headers(version: int, transport: Packet, tags: int = 0) -> Packet:
    """Ethernet to port 2, so many VLAN tags, IP and the transport header."""
    lower = Ether(src="02:00:00:00:00:01", dst="00:00:00:00:00:02")
    for number in range(tags):
        lower /= Dot1Q(vlan=number + 5)
    ip = IP(src="10.0.0.1", dst="10.0.0.2", id=65534, flags="DF") if version == 4 else IPv6(src="fd00::1", dst="fd00::2")
    return lower / ip / transport


def expected(head: Packet, payload: bytes, size: int) -> list[bytes]:
    """What scapy makes of each part of the payload."""
    frames = []
    parts = [payload[at : at + size] for at in range(0, len(payload), size)]
    for number, part in enumerate(parts):
        packet = head / Raw(part)
        if IP in packet:
            packet[IP].id = (head[IP].id + number) & 0xFFFF
        if UDP in packet and IP in packet:
            packet[UDP].chksum = 0
        if TCP in packet:
            packet[TCP].seq = (head[TCP].seq + number * size) & 0xFFFFFFFF
            packet[TCP].flags = int(head[TCP].flags) & ~(0 if number == len(parts) - 1 else 0x09) & ~(0x80 if number else 0)
        frames.append(bytes(packet))
    return frames


def large(head: Packet, payload: bytes, size: int | None) -> tuple[bytes, bytes]:
    """The frame with all of the payload and its struct virtio_net_hdr; without a ``size`` only the checksum is missing."""
    packet = Ether(bytes(head / Raw(payload)))
    transport = packet[UDP] if UDP in packet else packet[TCP]
    frame = bytearray(bytes(packet))
    start, offset = len(frame) - len(bytes(transport)), 6 if UDP in packet else 16
    if IP in packet:
        pseudo = socket.inet_aton(packet[IP].src) + socket.inet_aton(packet[IP].dst)
    else:
        pseudo = b"".join(socket.inet_pton(socket.AF_INET6, packet[IPv6].getfieldval(end)) for end in ("src", "dst"))
    pseudo += struct.pack(">HH", 17 if UDP in packet else 6, len(frame) - start)
    frame[start + offset : start + offset + 2] = offloads.sum16(pseudo).to_bytes(2, "big")
    kind = 0 if size is None else offloads.UDP if UDP in packet else offloads.TCP4 if IP in packet else offloads.TCP6
    end = start + (8 if UDP in packet else packet[TCP].dataofs * 4)
    return offloads.HEADER.pack(offloads.NEEDS_CHECKSUM, kind, end, size or 0, start, offset), bytes(frame)


UDP_HEAD = UDP(sport=5000, dport=6000)
TCP_HEAD = TCP(sport=5000, dport=6000, seq=0xFFFFFF00, ack=7, flags=FIN_PSH_ACK_CWR, options=[("Timestamp", (1, 2))])
TCP_STREAM = TCP(sport=5000, dport=6000, seq=0xFFFFFF00, ack=7, window=501, flags="PA", options=[("Timestamp", (1, 2))])
HEADS = [headers(version, transport, tags) for version in (4, 6) for transport in (UDP_HEAD, TCP_HEAD) for tags in (0, 1, 2)]
HEADS.append(headers(4, TCP_STREAM))
PAYLOADS = st.binary(min_size=1, max_size=3000)


@given(st.sampled_from(HEADS), PAYLOADS, st.integers(1, 1500))
def test_segments_are_the_packets_that_would_be_on_a_wire(head: Packet, payload: bytes, size: int) -> None:
    assert offloads.frames_of(*large(head, payload, size)) == expected(head, payload, size)


@given(st.sampled_from(HEADS), PAYLOADS)
def test_a_checksum_is_completed_or_not_computed_at_all(head: Packet, payload: bytes) -> None:
    header, frame = large(head, payload, None)
    (found,) = offloads.frames_of(header, frame)
    packet = head / Raw(payload)
    if UDP in packet and IP in packet:
        packet[UDP].chksum = 0
    elif TCP in packet:
        packet[TCP].chksum = None
    assert found == bytes(packet)


class PipePort(PacketPort):
    """A port on one end of a pair of sockets, into which a test writes frames as the kernel would hand them over."""

    def __init__(self, number: int) -> None:
        self.number, self.name, self.counters, self.down = number, f"pipe{number}", PortCounters(), False
        self.largest, self.joins, self.joins_tcp = 9514, True, True
        self._sock, self.other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.setblocking(False)
        self.other.settimeout(PATIENCE)
        for each in (self._sock, self.other):
            enlarge_buffers(each)


def written(header: bytes, frame: bytes) -> list[bytes]:
    try:
        return offloads.frames_of(header, frame)
    except offloads.OffloadError:
        return []


MUTATIONS = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=3)


@given(st.data())
def test_machine_code_makes_the_same_of_whatever_comes(data: st.DataObject) -> None:
    """Of what the kernel says, of what it never says, and of headers that do not fit."""
    head = data.draw(st.sampled_from(HEADS))
    header, frame = (bytearray(each) for each in large(head, data.draw(PAYLOADS), data.draw(st.none() | st.integers(1, 1500))))
    for at, value in data.draw(MUTATIONS):
        changed, place = (header, at) if at < len(header) else (frame, at - len(header) + 6)
        changed[place % len(changed)] = value
    frame[:6] = b"\0\0\0\0\0\2"
    last = Ether(dst="00:00:00:00:00:02", type=0x9000) / Raw(b"the last")
    with ExitStack() as undo:
        ports = [PipePort(1), PipePort(2)]
        for each in ports:
            undo.callback(each.other.close)
        running(undo, PIPELINE(), *ports)
        ports[0].other.send(bytes(header + frame))
        ports[0].other.send(offloads.NOTHING + bytes(last))
        found: list[bytes] = []
        while not found or found[-1] != bytes(last):
            data_read = ports[1].other.recv(1 << 17)
            found += offloads.frames_of(data_read[:10], data_read[10:])
    expected_frames = written(bytes(header), bytes(frame))
    assert [_but_identification(each) for each in found[:-1]] == [_but_identification(each) for each in expected_frames]
    assert ports[0].counters.rx_errors == (not expected_frames)
    assert ports[0].counters.rx_packets == len(expected_frames) + 1


PIPELINE = cache(forwarding)


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def receive(port: PacketPort, number: int) -> list[bytes]:
    frames: list[bytes] = []
    while len(frames) < number:
        assert select.select([port.fileno()], [], [], PATIENCE)[0], f"{len(frames)} of {number} frames came"
        frames += port.receive()
    return frames


@pytest.mark.parametrize("wrapped", [False, True])
def test_frames_that_come_together_on_a_udp_port(undo: ExitStack, wrapped: bool) -> None:
    """Also where Python serves the port."""
    ports = [UdpPort(1, LOOPBACK), UdpPort(2, LOOPBACK)]
    running(undo, forwarding(), *(FaultyPort(port, Rates(), Rates(), 1) if wrapped else port for port in ports))
    peer = wire(undo)
    peer.sendto(frame(2), ports[1].address)  # so that port 2 knows where to send
    assert peer.recv(2000) == frame(2)
    frames = [frame(2, src=number) for number in range(20)] + [frame(2, size=30)]
    control = [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("H", 64))]
    for _ in range(2):
        peer.sendmsg([b"".join(frames)], control, 0, ports[0].address)
        assert [peer.recv(2000) for _ in frames] == frames
    assert ports[0].counters.rx_packets == 2 * len(frames)


@pytest.mark.root
class TestSwitch:
    """A switch with ports 1 and 2 on the interfaces s1 and s2."""

    @pytest.fixture
    def namespace(self, undo: ExitStack) -> Namespace:
        namespace = Namespace((1, 2))
        undo.callback(namespace.close)
        for interface in ("h1", "s1", "h2", "s2"):
            namespace.run("ethtool", "-K", interface, *ON)
        return namespace

    @pytest.fixture
    def ports(self, namespace: Namespace) -> list[PacketPort]:
        return [namespace.call(partial(PacketPort, number, f"s{number}")) for number in (1, 2)]

    @pytest.fixture
    def dataplane(self, undo: ExitStack, ports: list[PacketPort]) -> DataPlane:
        return running(undo, forwarding(), *ports)

    @pytest.fixture
    def sender(self, undo: ExitStack, namespace: Namespace, dataplane: DataPlane) -> socket.socket:  # noqa: ARG002
        sock = undo.enter_context(namespace.open_interface("h1"))
        sock.setsockopt(263, _PACKET_VNET_HDR, 1)
        return sock

    @pytest.fixture
    def receiver(self, undo: ExitStack, namespace: Namespace) -> PacketPort:
        port = namespace.call(lambda: PacketPort(2, "h2"))
        undo.callback(port.close)
        return port

    @pytest.mark.parametrize("head", HEADS, ids=lambda head: "-".join(layer.__name__ for layer in head.layers()))
    def test_large_frames_and_missing_checksums(self, head: Packet, sender: socket.socket, receiver: PacketPort) -> None:
        payload = bytes(at * at % 251 for at in range(9001))
        for size in (None, 1000, 1400, 8999):
            whole = payload[:1401] if size is None else payload
            header, frame = large(head, whole, size)
            sender.sendmsg((header, frame))
            frames = offloads.frames_of(header, frame)
            assert receive(receiver, len(frames)) == frames

    @pytest.mark.parametrize("transport", [UDP_HEAD, TCP_STREAM], ids=["datagrams", "stream"])
    def test_packets_of_one_flow_leave_as_one_frame(
        self, transport: Packet, sender: socket.socket, ports: list[PacketPort], receiver: PacketPort
    ) -> None:
        header, frame = large(headers(4, transport), bytes(at % 251 for at in range(4136 * 14 + 1000)), 4136)
        sender.sendmsg((header, frame))
        found: list[bytes] = []
        seen = []
        with socket.socket(fileno=receiver.fileno()) as raw:
            raw.setblocking(True)
            raw.settimeout(PATIENCE)
            while len(found) < 15:
                data = raw.recv(1 << 17)
                seen.append(data)
                found += offloads.frames_of(data[:10], data[10:])
            raw.detach()
        assert found == offloads.frames_of(header, frame)
        assert len(seen) == 1, "all came together"
        until(lambda: ports[1].counters.tx_bytes == sum(map(len, found)))  # counted after they were sent

    @pytest.mark.parametrize(
        "change",
        [
            {"sport": 5001},
            {"chksum": 0x1234},
            {"flags": 0},
            {"tos": 3},
            {"ttl": 63},
            {"src": "10.0.0.3"},
            {"options": [IPOption_NOP()] * 4},
            {"load": b"another size"},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_what_differs_stays_apart(
        self, change: dict[str, object], sender: socket.socket, dataplane: DataPlane, receiver: PacketPort
    ) -> None:
        """Each frame comes out as it came in, whatever was before it."""
        frames = []
        for number in range(8):
            packet = headers(4, UDP(sport=5000, dport=6000, chksum=0)) / Raw(bytes([number]) * 100)
            if number % 2:
                for name, value in change.items():
                    layer = packet[UDP] if name in ("sport", "chksum") else packet[Raw] if name == "load" else packet[IP]
                    setattr(layer, name, value)
            frames.append(bytes(packet))
        with dataplane.lock:  # so that they wait together
            for each in frames:
                sender.sendmsg((offloads.NOTHING, each))
        found = receive(receiver, len(frames))
        assert [each[-1] for each in found] == [each[-1] for each in frames]
        assert all(_but_identification(one) == _but_identification(other) for one, other in zip(found, frames, strict=True))

    @pytest.mark.parametrize(
        "change",
        [
            {"seq": 1000},
            {"ack": 8},
            {"window": 502},
            {"flags": "FA"},
            {"flags": "PA"},
            {"flags": "EA"},
            {"urgptr": 1},
            {"options": [("Timestamp", (1, 3))]},
            {"options": []},
            {"chksum": 0x1234},
            {"reserved": 1},
        ],
        ids=lambda change: "-".join(map(str, next(iter(change.items())))),
    )
    def test_segments_that_differ_stay_apart(
        self, change: dict[str, object], sender: socket.socket, dataplane: DataPlane, receiver: PacketPort
    ) -> None:
        frames = []
        for number in range(8):
            options = [("Timestamp", (1, 2)), ("NOP", None), ("NOP", None)]
            segment = TCP(sport=5000, dport=6000, seq=100 * number, ack=7, window=501, flags="A", options=options)
            if number in (3, 4, 6):
                for name, value in change.items():
                    setattr(segment, name, value)
            frames.append(bytes(headers(4, segment) / Raw(bytes([number]) * 100)))
        with dataplane.lock:  # so that they wait together
            for each in frames:
                sender.sendmsg((offloads.NOTHING, each))
        found = receive(receiver, len(frames))
        assert [_but_identification(each) for each in found] == [_but_identification(each) for each in frames]

    def test_a_wrong_checksum_stays_wrong(self, sender: socket.socket, receiver: PacketPort) -> None:
        packets = [headers(4, UDP(sport=5000, dport=6000, chksum=0)) / Raw(bytes(100)) for _ in range(4)]
        packets[1][IP].chksum = packets[2][IP].chksum = 0x4711
        for each in packets:
            sender.sendmsg((offloads.NOTHING, bytes(each)))
        assert receive(receiver, 4) == [bytes(each) for each in packets]


def _but_identification(frame: bytes) -> bytes:
    """Without what the kernel counts in fragments that never are, and the checksum over it."""
    return frame[:18] + frame[20:24] + frame[26:]


@pytest.mark.root
class TestHosts:
    """Two hosts with all offloads of their links on."""

    @pytest.fixture
    def hosts(self, undo: ExitStack) -> Sequence[NetworkNamespace]:
        hosts = []
        switch = Namespace((1, 2))
        undo.callback(switch.close)
        for number in (1, 2):
            host = NetworkNamespace((), 1500)
            undo.callback(host.close)
            run_command("ip", "-n", switch.name, "link", "set", f"h{number}", "netns", host.name)
            host.run("ethtool", "-K", f"h{number}", *ON)
            mac = f"00:00:00:00:00:0{number}"
            link = ("ip", "-n", host.name)
            run_command(*link, "link", "set", f"h{number}", "address", mac, "up")
            run_command(*link, "addr", "add", f"10.0.0.{number}/24", "dev", f"h{number}")
            other = 3 - number
            run_command(*link, "neigh", "add", f"10.0.0.{other}", "lladdr", f"00:00:00:00:00:0{other}", "dev", f"h{number}")
            hosts.append(host)
        ports = [switch.call(partial(PacketPort, number, f"s{number}")) for number in (1, 2)]
        running(undo, forwarding(), *ports)
        return hosts

    def test_tcp_passes(self, undo: ExitStack, hosts: Sequence[NetworkNamespace]) -> None:
        listener = undo.enter_context(hosts[1].call(lambda: socket.create_server(("10.0.0.2", 7000))))
        sender = undo.enter_context(hosts[0].call(lambda: socket.create_connection(("10.0.0.2", 7000), PATIENCE)))
        receiver, _ = listener.accept()
        undo.enter_context(receiver)
        receiver.settimeout(PATIENCE)
        content = bytes(range(251)) * 20_000
        thread = threading.Thread(target=sender.sendall, args=(content,), daemon=True)
        thread.start()
        found = bytearray()
        while len(found) < len(content):
            found += receiver.recv(1 << 20)
        thread.join()
        assert found == content

    @pytest.mark.parametrize("whole", [True, False])
    def test_udp_passes_as_large_frames(self, undo: ExitStack, hosts: Sequence[NetworkNamespace], whole: bool) -> None:
        sender, receiver = (
            undo.enter_context(host.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))) for host in hosts
        )
        sender.bind(("10.0.0.1", 7000))
        receiver.bind(("10.0.0.2", 7000))
        receiver.settimeout(PATIENCE)
        if whole:
            receiver.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        size, count = 4136, _LARGEST_MESSAGE // 4136
        content = b"".join(bytes([number]) * size for number in range(count))
        control = [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("H", size))]
        sender.sendmsg([content], control, 0, ("10.0.0.2", 7000))
        found = b""
        while len(found) < len(content):
            data = receiver.recv(1 << 17)
            assert len(data) == size or whole
            found += data
        assert found == content
