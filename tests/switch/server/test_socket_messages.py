# SPDX-License-Identifier: MIT
"""Messages that leave by a kernel socket: the datagrams of a flow that were sent together, whatever was sent between them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from netsum_switch.native import kernel_socket
from netsum_switch.native.compiler import compiled
from netsum_switch.native.io import BATCH, SEGMENTS, SOCKET_QUEUE, VECTOR_BYTES, Wire, get, item, pointer
from netsum_switch.native.llvm_builder import LlvmFunction
from netsum_switch.pipeline import Pipeline
from netsum_switch.ports.kernel_socket import SocketPort
from netsum_switch.ports.udp import SOL_UDP, UDP_GRO

from tests.switch.core.switches import load
from tests.switch.server.test_packet_loop import LOOPBACK, running
from tests.switch.server.test_socket_ports import arrived, delivery, payload, reflect, segmented, wire_with_tos

NO_CHECKSUMS = 11  # SO_NO_CHECK, with which Linux refuses UDP_SEGMENT

Burst = tuple[int, int, int, int]
"""Datagrams that a peer sends with one call: the peer, their type of service, bytes of each, and of all of them."""

Message = tuple[bytes, int]
"""Payload and type of service."""


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module", autouse=True)
def needs_segments() -> None:
    with ExitStack() as stack:
        port = SocketPort(1, LOOPBACK)
        stack.callback(port.close)
        if not port.segments:
            pytest.skip("this kernel has no UDP_SEGMENT")


def exchanged(
    pipeline: Pipeline, bursts: Sequence[Burst], *, refuses: bool = False
) -> dict[int, tuple[list[Message], list[Message]]]:
    """By peer, the datagrams that it sent to a switch, and the messages in which they came back. The bursts wait together
    when the switch begins. `refuses`: the kernel takes no message of several datagrams."""
    with ExitStack() as undo:
        port = SocketPort(1, LOOPBACK)
        undo.callback(port.close)
        if refuses:
            with socket.socket(fileno=os.dup(port.fileno())) as same:
                same.setsockopt(socket.SOL_SOCKET, NO_CHECKSUMS, 1)
        peers = {number: wire_with_tos(undo) for number, *_ in bursts}
        sent: dict[int, list[Message]] = {number: [] for number in peers}
        for seed, (number, tos, size, total) in enumerate(bursts):
            peer = peers[number]
            peer.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)  # receive messages uncut
            peer.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
            with delivery(port):
                sent[number] += [(each, tos) for each in segmented(peer, payload(total, seed), size, port.address) or [b""]]
        dataplane = running(undo, pipeline, port)
        found = {number: received(peer, len(sent[number])) for number, peer in peers.items()}
        dataplane.stop()
        assert (port.counters.tx_packets, port.counters.tx_dropped) == (sum(map(len, sent.values())), 0)
    return {number: (sent[number], found[number]) for number in peers}


def received(peer: socket.socket, datagrams: int) -> list[Message]:
    """The messages that come until they are so many datagrams."""
    found = []
    while datagrams > 0:
        data, ancillary, _, _ = peer.recvmsg(1 << 17, 128)
        values = {(level, kind): value for level, kind, value in ancillary}
        size = int.from_bytes(values.get((SOL_UDP, UDP_GRO), b"")[:4], "little") or len(data) or 1
        datagrams -= max(1, -(-len(data) // size))
        found.append((data, values[socket.IPPROTO_IP, socket.IP_TOS][0]))
    return found


def joined(sent: Sequence[Message]) -> list[Message]:
    """The messages that a peer's datagrams are if no other's were between them."""
    messages: list[Message] = []
    largest = count = 0  # of the last message, if another datagram may follow
    for data, tos in sent:
        if 0 < len(data) <= largest and tos == messages[-1][1] and count < SEGMENTS:
            messages[-1] = (messages[-1][0] + data, tos)
            count += 1
        else:
            messages.append((data, tos))
            largest, count = len(data), 1
        if len(data) < largest:
            largest = 0
    return messages


def test_datagrams_of_one_flow_leave_as_one_message(undo: ExitStack) -> None:
    """Others, also those of the same peer with another mark, are messages of their own."""
    port = SocketPort(1, LOOPBACK)
    undo.callback(port.close)
    one, two = wire_with_tos(undo), wire_with_tos(undo)
    for peer in (one, two):
        peer.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    sent = [(one, 0, 100), (one, 0, 100), (two, 3, 50), (one, 0, 33), (one, 0, 100), (one, 3, 100), (two, 3, 50), (one, 3, 100)]
    for number, (peer, tos, size) in enumerate(sent):
        peer.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        with delivery(port):
            peer.sendto(payload(size, number), port.address)
    running(undo, reflect(), port)
    parts = [payload(size, number) for number, (_, _, size) in enumerate(sent)]
    messages = [(parts[0] + parts[1] + parts[3], 0), (parts[4], 0), (parts[5] + parts[7], 3)]
    assert [arrived(one)[:2] for _ in messages] == messages
    assert arrived(two)[:2] == (parts[2] + parts[6], 3)


ROUND_ROBIN = {
    peers: [(number % peers, 0, 100, 100 * SOCKET_QUEUE // BATCH) for number in range(BATCH)] for peers in (1, 2, 3, 8, 16, 32)
}
"""By the number of peers, as many datagrams as a port's queue holds, in turn."""


@pytest.mark.parametrize("peers", ROUND_ROBIN)
def test_flows_that_alternate_leave_as_few_messages(peers: int) -> None:
    for sent, found in exchanged(reflect(), ROUND_ROBIN[peers]).values():
        assert len(found) == -(-len(sent) // SEGMENTS)
        assert found == joined(sent)


BURSTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([0, 0, 0, 3]),
        st.sampled_from([1, 33, 100, 100, 100]),
        st.sampled_from([0, 1, 30, 100, 100, 200, 250, 264, 800]),
    ).map(lambda burst: (*burst[:3], min(burst[3], burst[2] * SOCKET_QUEUE // BATCH))),
    min_size=1,
    max_size=BATCH,
)
"""What comes in one turn, and fits into the queue."""


@given(BURSTS)
@example([(0, 0, 100, 200), (1, 0, 100, 100), (0, 0, 33, 33), (1, 0, 33, 33), (0, 0, 100, 100), (1, 0, 100, 0), (0, 0, 100, 100)])
@example([(number % 3, 0, 100, 100) for number in range(BATCH)])
def test_peers_get_the_messages_that_they_would_get_alone(bursts: list[Burst]) -> None:
    for sent, found in exchanged(reflect(), bursts).values():
        assert found == joined(sent)


@given(BURSTS)
@example(ROUND_ROBIN[3])
def test_refused_messages_go_one_by_one_in_their_order(bursts: list[Burst]) -> None:
    for sent, found in exchanged(reflect(), bursts, refuses=True).values():
        assert found == sent


def test_more_datagrams_than_the_queue_holds() -> None:
    for sent, found in exchanged(reflect(), [(number % 5, 0, 10, 10 * SEGMENTS) for number in range(BATCH)]).values():
        assert b"".join(data for data, _ in found) == b"".join(data for data, _ in sent)


def ungrouped(out: LlvmFunction) -> None:
    out.give("void")


def backwards(out: LlvmFunction) -> None:
    frames, queued, spare = pointer(out, "%w", Wire.FRAMES), get(out, "%w", Wire.QUEUED), out.space(VECTOR_BYTES)
    with out.each(out.op("lshr", 64, queued, 1)) as index:
        one = item(out, frames, index, VECTOR_BYTES)
        other = item(out, frames, out.op("sub", 64, out.op("sub", 64, queued, 1), index), VECTOR_BYTES)
        for to, of in ((spare, one), (one, other), (other, spare)):
            out.copy(to, of, VECTOR_BYTES)
    out.give("void")


@pytest.mark.parametrize("mutation", [ungrouped, backwards])
def test_the_properties_can_fail(mutation: Callable[[LlvmFunction], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_socket, "_write_group", mutation)
    compiled.cache_clear()
    pipeline = load("reflect")
    compiled.cache_clear()
    together = exchanged(pipeline, ROUND_ROBIN[3]).values()
    assert all(found != joined(sent) for sent, found in together)
    one_by_one = exchanged(pipeline, ROUND_ROBIN[3], refuses=True).values()
    assert all((found == sent) == (mutation is ungrouped) for sent, found in one_by_one)
