# SPDX-License-Identifier: MIT
"""The loop in machine code that serves the ports."""

from __future__ import annotations

import logging
import os
import select
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from netsum_switch.dataplane import DataPlane
from netsum_switch.pipeline import Pipeline
from netsum_switch.ports import Port
from netsum_switch.ports.base import enlarge_buffers
from netsum_switch.ports.faulty import FaultyPort, Rates
from netsum_switch.ports.packet import PacketPort
from netsum_switch.ports.udp import Address, UdpPort
from netsum_switch.queues import QueueOptions
from netsum_switch.table import Exact

from tests.switch.core.switches import Core
from tests.switch.harness.frames import frame
from tests.switch.harness.namespace import Namespace
from tests.threads import PATIENCE, repeatedly

LOOPBACK = ("127.0.0.1", 0)
_NO_CHECKSUMS, _UDP_SEGMENT, _UDP_GRO = 11, 103, 104  # SO_NO_CHECK, and linux/udp.h


def forwarding() -> Pipeline:
    """Sends a frame to the port that its destination says; what is for 9 goes nowhere."""
    core = Core("contract")
    for number in (1, 2, 3, 4):
        core.insert("exact_table", [Exact(number)], "forward", number)
    return core.pipeline


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def peer(undo: ExitStack) -> socket.socket:
    """Receives what the tests' port sends."""
    return wire(undo)


def wire(undo: ExitStack) -> socket.socket:
    sock = undo.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sock.bind(LOOPBACK)
    sock.settimeout(PATIENCE)
    enlarge_buffers(sock)
    return sock


def address(sock: socket.socket) -> Address:
    found: Address = sock.getsockname()
    return found


def running(undo: ExitStack, pipeline: Pipeline, *ports: Port, queues: QueueOptions | None = None) -> DataPlane:
    dataplane = DataPlane(ports, queues=queues)
    undo.callback(dataplane.stop)
    dataplane.swap(pipeline)
    dataplane.start()
    return dataplane


def test_ports_are_served_in_turn(undo: ExitStack, peer: socket.socket) -> None:
    from netsum_switch.native.io import BATCH

    waiting = {1: 5 * BATCH, 2: 2 * BATCH, 3: 2}
    ports = [UdpPort(number, LOOPBACK, address(peer)) for number in (1, 2, 3, 4)]
    for port in ports:
        for _ in range(waiting.get(port.number, 0)):
            peer.sendto(frame(4, src=port.number), port.address)  # loopback delivers in the call that sends
    running(undo, forwarding(), *ports)
    order = [int.from_bytes(peer.recv(2000)[6:12], "big") for _ in range(sum(waiting.values()))]
    assert {number: order.count(number) for number in waiting} == waiting
    assert order[: 3 * BATCH].count(3) == 2
    last = len(order) - order[::-1].index(2)
    assert order[:last].count(1) <= 3 * BATCH


def test_a_port_with_large_messages_gets_no_larger_turn(undo: ExitStack, peer: socket.socket) -> None:
    from netsum_switch.native.io import BATCH, LARGE_BATCH

    ports = [UdpPort(number, LOOPBACK, address(peer)) for number in (1, 2, 4)]
    if not ports[0].segments:
        pytest.skip("this kernel has no UDP_SEGMENT")
    size, each = 4154, 15
    many = frame(4, src=1, size=size) * each
    cut = [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("H", size))]
    dataplane = running(undo, forwarding(), *ports)
    peer.sendmsg([many], cut, 0, ports[0].address)
    for _ in range(each):
        assert len(peer.recv(65536)) == size
    with dataplane.lock:
        for _ in range(3 * LARGE_BATCH):
            peer.sendmsg([many], cut, 0, ports[0].address)
        for _ in range(2 * BATCH):
            peer.sendto(frame(4, src=2), ports[1].address)
    order = [int.from_bytes(peer.recv(65536)[6:12], "big") for _ in range(3 * LARGE_BATCH * each + 2 * BATCH)]
    first = order.index(2)
    assert order[:first].count(1) == LARGE_BATCH * each, "then the other port has its turn"


def test_answers_go_to_the_last_sender_whatever_runs_and_all_is_counted(undo: ExitStack, peer: socket.socket) -> None:
    one, two = UdpPort(1, LOOPBACK), UdpPort(2, LOOPBACK)
    dataplane = running(undo, forwarding(), one, two)
    first, second = peer, wire(undo)
    first.sendto(frame(2), one.address)  # there is no peer yet
    second.sendto(frame(1, size=9000), two.address)
    assert first.recv(65536) == frame(1, size=9000)
    for _ in range(2):
        dataplane.swap(forwarding())
        first.sendto(frame(2), one.address)
        assert second.recv(65536) == frame(2)
        second, other = wire(undo), second
        second.sendto(frame(2), two.address)
        assert second.recv(65536) == frame(2)
        other.sendto(frame(1), two.address)
        assert first.recv(65536) == frame(1)
        second = other
    dataplane.stop()
    assert (one.counters.rx_packets, one.counters.rx_bytes) == (3, 3 * 64)
    assert (one.counters.tx_packets, one.counters.tx_bytes) == (3, 9000 + 2 * 64)
    assert (two.counters.rx_packets, two.counters.tx_packets, two.counters.tx_dropped) == (5, 4, 1)


def test_of_a_frame_that_the_program_fails_on_nothing_is_sent_and_the_others_go_on(
    undo: ExitStack, peer: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pipeline = Core("reports").pipeline
    learnt: list[object] = []
    pipeline.on_digest = lambda number, samples: learnt.append((number, samples))
    port = UdpPort(1, LOOPBACK, address(peer))
    kinds = [0x3333, 0x1111, 0x3333, 0x2222, 0x9000]
    for kind in kinds:
        peer.sendto(frame(7, ether_type=kind, src=5), port.address)
    dataplane = running(undo, pipeline, port)
    assert [peer.recv(2000)[12:14].hex() for _ in range(3)] == ["1111", "2222", "9000"]
    dataplane.stop()
    assert dataplane.failed_packets == 2
    assert learnt == [(1, [(5, 1)])]
    assert f"on a frame of 64 bytes at port 1, starting {frame(7, ether_type=0x3333, src=5).hex()}" in caplog.text
    assert "an assertion" in caplog.text
    assert "100% of 5 on port 1" in caplog.text


def test_a_port_that_fails_costs_one_frame(undo: ExitStack, peer: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    good, inner = UdpPort(1, LOOPBACK, address(peer)), UdpPort(2, LOOPBACK, address(peer))
    bad = FaultyPort(inner, Rates(), Rates(), 1)  # one that Python serves
    send = bad.send

    def failing(data: bytes) -> None:
        if len(data) == 100:
            raise ZeroDivisionError("a bug")
        send(data)

    monkeypatch.setattr(bad, "send", failing)
    dataplane = running(undo, forwarding(), good, bad)
    for size in (100, 64):
        peer.sendto(frame(2, size=size), good.address)
    assert peer.recv(2000) == frame(2, size=64)
    assert dataplane.failed_packets == 1


def test_ports_with_faults_and_without_go_together(undo: ExitStack, peer: socket.socket) -> None:
    good, inner = UdpPort(1, LOOPBACK, address(peer)), UdpPort(2, LOOPBACK, address(peer))
    running(undo, forwarding(), good, FaultyPort(inner, Rates(delay=0.001), Rates(duplicate=1.0), 1))
    peer.sendto(frame(2), good.address)
    assert [peer.recv(2000) for _ in range(2)] == [frame(2)] * 2
    peer.sendto(frame(1), inner.address)
    assert peer.recv(2000) == frame(1)


def test_who_wants_the_lock_gets_it_whether_frames_come_or_not(undo: ExitStack, peer: socket.socket) -> None:
    ports = [UdpPort(number, LOOPBACK, address(peer)) for number in (1, 2)]
    dataplane = running(undo, forwarding(), *ports)
    for _ in range(100):
        with dataplane.lock:
            pass
    with repeatedly(lambda: peer.sendto(frame(2), ports[0].address)):
        for _ in range(100):
            assert peer.recv(2000) == frame(2)
            with dataplane.lock:
                pass


def test_a_port_s_frames_keep_their_order_and_content_whatever_their_sizes(undo: ExitStack, peer: socket.socket) -> None:
    """The kernel takes neighbors of one size as one message."""
    sizes = [100] * 70 + [1000, 1000, 14, 14, 14, 9000, 9000, 9000] + [4154] * 40 + [60, 61, 61]
    port = UdpPort(1, LOOPBACK, address(peer))
    frames = [frame(1, src=number, size=size) for number, size in enumerate(sizes)]
    for each in frames:
        peer.sendto(each, port.address)
    dataplane = running(undo, forwarding(), port)
    assert [peer.recv(65536) for _ in frames] == frames
    dataplane.stop()
    assert (port.counters.tx_packets, port.counters.tx_bytes) == (len(sizes), sum(sizes))
    assert port.counters.tx_dropped == 0


def test_neighbors_of_one_size_are_one_message_where_the_kernel_cuts_it_up(undo: ExitStack, peer: socket.socket) -> None:
    port = UdpPort(1, LOOPBACK, address(peer))
    if port.segments:
        peer.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)  # receive it uncut
    frames = [frame(1, src=number) for number in range(20)] + [frame(1, size=65)]
    for each in frames:
        peer.sendto(each, port.address)
    running(undo, forwarding(), port)
    uncut = [b"".join(frames[:20]), frames[20]]
    assert [peer.recv(65536) for _ in (uncut if port.segments else frames)] == (uncut if port.segments else frames)


def test_what_the_kernel_does_not_take_as_one_message_goes_one_by_one(undo: ExitStack, peer: socket.socket) -> None:
    port = UdpPort(1, LOOPBACK, address(peer))
    with socket.socket(fileno=os.dup(port.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, _NO_CHECKSUMS, 1)  # with which Linux refuses UDP_SEGMENT
    frames = [frame(1, src=number) for number in range(20)]
    for each in frames:
        peer.sendto(each, port.address)
    dataplane = running(undo, forwarding(), port)
    assert [peer.recv(2000) for _ in frames] == frames
    dataplane.stop()
    assert (port.counters.tx_packets, port.counters.tx_dropped) == (20, 0)


def test_more_copies_than_a_port_s_queue_holds(undo: ExitStack, peer: socket.socket) -> None:
    from netsum_switch.native.io import QUEUE

    core = Core("contract")
    core.insert("exact_table", [Exact(1)], "multicast", 7)
    copies = range(1, 2 * QUEUE + 2)
    core.group(7, [(1, rid) for rid in copies])  # the program writes it into the source
    port = UdpPort(1, LOOPBACK, address(peer))
    running(undo, core.pipeline, port)
    for _ in range(3):
        peer.sendto(frame(1, src=0), port.address)
        assert [peer.recv(2000) for _ in copies] == [frame(1, src=rid) for rid in copies]


@pytest.mark.root
class TestInterfaces:
    """Ports 1 and 2 are interfaces of a namespace."""

    @pytest.fixture
    def namespace(self, undo: ExitStack) -> Namespace:
        namespace = Namespace((1, 2))
        undo.callback(namespace.close)
        return namespace

    @pytest.fixture
    def others(self, undo: ExitStack, namespace: Namespace) -> list[socket.socket]:
        found = [undo.enter_context(namespace.open_interface(f"h{number}")) for number in (1, 2)]
        for each in found:
            each.settimeout(PATIENCE)
        return found

    @pytest.fixture
    def ports(self, undo: ExitStack, namespace: Namespace) -> list[PacketPort]:
        ports = [namespace.call(partial(PacketPort, number, f"s{number}")) for number in (1, 2)]
        running(undo, forwarding(), *ports)
        return ports

    def test_frames_of_all_sizes_and_vlan_tags_pass(
        self, undo: ExitStack, namespace: Namespace, ports: list[PacketPort], others: list[socket.socket]
    ) -> None:
        receiver = namespace.call(lambda: PacketPort(2, "h2"))
        undo.callback(receiver.close)
        tagged = frame(2)[:12] + struct.pack("!HH", 0x8100, 0xA123) + frame(2)[12:]
        service = frame(2)[:12] + struct.pack("!HHHH", 0x88A8, 5, 0x8100, 6) + frame(2)[12:]
        for each in (frame(2), tagged, frame(2, size=9514), service):
            others[0].send(each)
            assert select.select([receiver.fileno()], [], [], 60.0)[0]
            assert receiver.receive() == [each]
        undo.close()  # a frame is counted after it was sent
        assert ports[0].counters.rx_packets == ports[1].counters.tx_packets == 4

    def test_an_interface_that_goes_down_comes_back(
        self,
        namespace: Namespace,
        ports: list[PacketPort],
        others: list[socket.socket],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        link = ["ip", "-n", namespace.name, "link", "set", "s2"]
        subprocess.run([*link, "down"], check=True)
        for _ in range(3):
            others[0].send(frame(2))
        others[0].send(frame(1))
        assert others[0].recv(65536) == frame(1)  # those before are done with
        subprocess.run([*link, "up"], check=True)
        others[0].send(frame(2, size=100))
        assert others[1].recv(65536) == frame(2, size=100)
        assert ports[1].counters.tx_dropped == 3
        assert caplog.text.count("port 2: interface s2: Network is down") == 1
