# SPDX-License-Identifier: MIT
"""Many datagrams at a time through the kernel: what arrives is what was sent, however the kernel groups it."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.frames import CE, ECT, FrameFormat
from netsum.packet_batch import ReceiveBatch, SendBatch, congested
from netsum.transports import PacketTransport, UdpTransport, segmentation
from netsum.transports.sockets import BATCH, SocketBatch
from netsum_testbed.netns import NetworkNamespace, run_command

from tests.hosts.test_transports import collect, free_ports
from tests.threads import PATIENCE

LOOPBACK = "127.0.0.1"
NO_CHECKSUMS = 11  # SO_NO_CHECK

pytestmark = pytest.mark.skipif(not segmentation.has_large_frames(), reason="this kernel is older than Linux 6.2")


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def ends() -> tuple[socket.socket, SocketBatch]:
    """A plain socket, and what receives from it."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((LOOPBACK, 0))
    batch = SocketBatch(sock)
    batch.carry_segments()
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(sock.getsockname())
    return sender, batch


def send(sender: socket.socket, packets: Sequence[bytes]) -> None:
    """Packets of one size, but for the last, which may be shorter, at a time."""
    size = len(packets[0])
    sender.sendmsg([b"".join(packets)], [(socket.IPPROTO_UDP, segmentation.UDP_SEGMENT, struct.pack("H", size))])


def received(batch: SocketBatch, number: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < number:
        came = batch.recv(PATIENCE)
        assert came, f"{len(found)} of {number} packets came"
        assert not isinstance(came, ReceiveBatch) or len(came) == len(came.rows) == len(came.sizes)
        found += [bytes(each) for each in came]
    return found


GROUPS = st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 40), st.integers(0, 3000)), min_size=1, max_size=3)


@given(st.lists(GROUPS, min_size=1, max_size=3))
def test_packets_keep_their_order_and_bytes(rounds: list[list[tuple[int, int, int]]]) -> None:
    """Each group has packets of one size and perhaps a shorter one; groups of one round wait together."""
    sender, batch = ends()
    with sender:
        number = 0
        for groups in rounds:
            expected: list[bytes] = []
            for size, count, rest in groups:
                count = max(1, min(count, 20000 // size))  # noqa: PLW2901
                packets = [(number + at).to_bytes(4, "big")[-min(size, 4) :].ljust(size, b"x") for at in range(count)]
                packets += [b"r" * min(rest, size)] if rest else []
                number += len(packets)
                send(sender, packets) if len(packets) > 1 else sender.send(packets[0])
                expected += packets
            assert received(batch, len(expected)) == expected
    batch.close()


def test_rows_of_one_size_are_received_without_a_copy() -> None:
    sender, batch = ends()
    packets = [bytes([at]) * 4136 for at in range(15)]
    send(sender, packets)
    assert received(batch, 15) == packets, "the first of a size comes in one piece"
    for _ in range(4):
        send(sender, packets)
    came = batch.recv(PATIENCE)
    assert isinstance(came, ReceiveBatch)
    assert len(came) == 60
    steps = {after.ctypes.data - before.ctypes.data for before, after in pairwise(came.rows)}
    assert steps == {came.rows.strides[0]}, "each row is where the kernel put it"
    assert [bytes(each) for each in came] == packets * 4
    sender.close()
    batch.close()


def test_a_batch_is_sent_as_it_is_without(undo: ExitStack) -> None:
    left, right = ((LOOPBACK, port) for port in free_ports(2))
    one, other = UdpTransport(left, right), UdpTransport(right, left)
    for each in (one, other):
        undo.callback(each.close)
    assert one.carries_segments, "the loopback takes many at a time"
    batch = SendBatch()
    rows = np.random.default_rng(1).integers(0, 256, (2 * BATCH + 7, 1000), np.uint8)
    batch.add_rows(rows)
    batch.add((b"one", b"packet"))
    batch.add_rows(rows[:1])
    one.send(batch)
    assert collect(other, len(batch)) == [b"".join(packet) for packet in batch]


@pytest.mark.parametrize("number", [1, 15])
def test_marks_are_those_of_each_packet(undo: ExitStack, number: int) -> None:
    left, right = ((LOOPBACK, port) for port in free_ports(2))
    one, other = UdpTransport(left, right), UdpTransport(right, left)
    for each in (one, other):
        undo.callback(each.close)
    batch = SendBatch()
    batch.add_rows(np.zeros((number, 1000), np.uint8))
    for mark, expected in ((ECT, 0), (CE, number), (CE, number), (ECT, 0)):
        one.sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, mark)
        one.send(batch)
        seen = marks = 0
        while seen < number:
            packets = other.recv(PATIENCE)
            seen, marks = seen + len(packets), marks + congested(packets)
        assert marks == expected


def test_what_the_kernel_refuses_goes_one_by_one(undo: ExitStack, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    left, right = ((LOOPBACK, port) for port in free_ports(2))
    one, other = UdpTransport(left, right), UdpTransport(right, left)
    for each in (one, other):
        undo.callback(each.close)
    one.sock.setsockopt(socket.SOL_SOCKET, NO_CHECKSUMS, 1)  # with which Linux refuses UDP_SEGMENT
    rows = np.arange(20 * 100, dtype=np.uint8).reshape(20, 100)
    for _ in range(2):
        batch = SendBatch()
        batch.add_rows(rows)
        one.send(batch)
        assert collect(other, 20) == [bytes(row.data) for row in rows]
    assert not one.carries_segments
    assert caplog.text.count("does not take several packets at a time") == 1


@pytest.mark.root
def test_raw_frames_that_come_as_one_are_packets(undo: ExitStack) -> None:
    """A virtual link hands over what the sender's kernel would have cut up."""
    pair = ("near", "far")
    namespace = NetworkNamespace([pair], 9000, {pair})
    undo.callback(namespace.close)
    run_command("ip", "-n", namespace.name, "addr", "add", "10.0.0.1/24", "dev", "near")
    mac = namespace.run("cat", "/sys/class/net/near/address").strip()
    far = ("02:00:00:00:00:02", "10.0.0.2", 7000)
    run_command("ip", "-n", namespace.name, "neigh", "add", far[1], "lladdr", far[0], "dev", "near")
    sender = namespace.call(lambda: UdpTransport(("10.0.0.1", 7000), far[1:]))
    undo.callback(sender.close)
    receiver = namespace.call(lambda: PacketTransport(FrameFormat(far, (mac, "10.0.0.1", 7000)), "far"))
    undo.callback(receiver.close)
    batch = SendBatch()
    rows = np.random.default_rng(1).integers(0, 256, (40, 4136), np.uint8)
    batch.add((b"first",))
    batch.add_rows(rows)
    batch.add((b"last",))
    sender.send(batch)
    assert collect(receiver, len(batch)) == [b"".join(packet) for packet in batch]
    receiver.send([(b"back",)])
    assert collect(sender, 1) == [b"back"]
    assert receiver.carries_segments
    receiver.send(batch)
    assert collect(sender, len(batch)) == [b"".join(packet) for packet in batch]
    assert receiver.carries_segments, "the kernel took them as one"


@pytest.mark.root
@pytest.mark.parametrize("on", [True, False])
def test_it_depends_on_the_device(undo: ExitStack, on: bool) -> None:
    """A device without the feature would have the kernel compute all checksums."""
    pair = ("near", "far")
    namespace = NetworkNamespace([pair], 9000, {pair} if on else ())
    undo.callback(namespace.close)
    run_command("ip", "-n", namespace.name, "addr", "add", "10.0.0.1/24", "dev", "near")
    transport = namespace.call(lambda: UdpTransport(("10.0.0.1", 7000), ("10.0.0.2", 7000)))
    undo.callback(transport.close)
    assert transport.carries_segments == on
    assert bool(transport.sock.getsockopt(socket.SOL_SOCKET, NO_CHECKSUMS)) != on
