# SPDX-License-Identifier: MIT
"""The members' connections in simulated time: what is damaged breaks them at once, and what stalls has a deadline."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from netsum.peers import connections
from netsum.peers.connections import MAX_RETRY, PATIENCE
from netsum.peers.transport import UNPROVEN, PeerSocket, PeerTransport
from netsum.peers.wire import FRAME, SIZE, STALLED, FrameAuth, framed
from netsum.transports.base import Packet

from tests.hosts.peers import peer_descriptor
from tests.hosts.real_peers import LOST, Time, received, until


@pytest.fixture
def simulated() -> Time:
    return Time()


@pytest.fixture
def pair(simulated: Time) -> Iterator[tuple[PeerTransport, PeerTransport]]:
    """Ranks 0 and 1 in simulated time; 1 has sent something to 0."""
    sockets = [PeerSocket("127.0.0.1") for _ in range(2)]
    addresses = tuple(each.address for each in sockets)
    one, two = (
        PeerTransport(sock, peer_descriptor(rank, 2, window=64, peers=addresses), owns=True, clock=simulated)
        for rank, sock in enumerate(sockets)
    )
    two.send([(b"\0\x00", b"before")])
    assert received(one, two) == [b"\0\x01before"]
    yield one, two
    one.close()
    two.close()


@pytest.mark.parametrize("bit", [0, 18, 21, 31, 8 * SIZE.size + 1, 8 * FRAME.size - 1, 8 * FRAME.size + 1])
def test_a_bit_that_is_flipped_on_the_way_breaks_the_connection_at_once(
    bit: int, pair: tuple[PeerTransport, PeerTransport], simulated: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the size of a frame: time stands still, and no rank waits for the rest of one that is larger than it was sent."""
    one, two = pair

    def damaged(auth: FrameAuth, body: Packet) -> bytes:
        monkeypatch.setattr(connections, "framed", framed)
        frame = bytearray(framed(auth, body))
        frame[bit // 8] ^= 0x80 >> bit % 8
        return bytes(frame)

    monkeypatch.setattr(connections, "framed", damaged)
    two.send([(b"\0\x00", b"damaged")])
    until(lambda: two._outgoing[0]._sock is None, one, two)
    assert one.rejected_connections == 1
    simulated.now += MAX_RETRY
    assert received(one, two) == [LOST]
    two.send([(b"\0\x00", b"after")])
    assert received(one, two) == [b"\0\x01after"]


@pytest.mark.parametrize("size", [1, SIZE.size, FRAME.size, FRAME.size + 3])
def test_half_a_frame_has_a_deadline(size: int, pair: tuple[PeerTransport, PeerTransport], simulated: Time) -> None:
    one, two = pair
    way = two._outgoing[0]
    assert way._sock is not None
    assert way._auth is not None
    way._sock.send(framed(way._auth, (b"message",))[:size])
    until(lambda: one._incoming[1].stalled(simulated.now + 2 * STALLED), one, two)
    simulated.now += 0.9 * STALLED
    assert one.recv(0) == []
    assert 1 in one._incoming, "it waits for the rest"
    simulated.now += STALLED
    until(lambda: way._sock is None, one, two)
    assert two.last_error == "a member has closed the connection"
    simulated.now += MAX_RETRY
    assert received(one, two) == [LOST]
    assert one.rejected_connections == 0


def test_what_comes_while_a_member_stands_still_is_no_half_frame(
    pair: tuple[PeerTransport, PeerTransport], simulated: Time
) -> None:
    one, two = pair
    way = two._outgoing[0]
    assert way._sock is not None
    assert way._auth is not None
    frame = framed(way._auth, (b"message",))
    way._sock.send(frame[:30])
    until(lambda: one._incoming[1].stalled(simulated.now + 2 * STALLED), one, two)
    way._sock.send(frame[30:])
    simulated.now += 2 * STALLED
    assert received(one, two) == [b"\0\x01message"]


def test_untrusted_senders_that_say_nothing_are_bounded_in_number_and_time(
    pair: tuple[PeerTransport, PeerTransport], simulated: Time
) -> None:
    one, two = pair
    address = one._listener.getsockname()
    silent = [socket.create_connection(address) for _ in range(3 * UNPROVEN)]
    for _ in range(10):
        one.recv(0)
    assert len(one._unproven) == UNPROVEN + 1
    two.send([(b"\0\x00", b"good")])
    assert received(one, two) == [b"\0\x01good"], "and no other member is kept from connecting"
    assert one.rejected_connections >= 2 * UNPROVEN - 1
    simulated.now += 2 * PATIENCE
    one.recv(0)
    assert not one._unproven
    for each in silent:
        each.close()


def test_a_member_that_does_not_answer_is_tried_again(simulated: Time) -> None:
    simulated.step = 0.25 * PATIENCE
    sock = PeerSocket("127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as hung:
        there = "{}:{}".format(*hung.getsockname())
        transport = PeerTransport(sock, peer_descriptor(0, 2, peers=(sock.address, there)), owns=True, clock=simulated)
        transport.send([(b"\0\x01", b"into the void")])
        until(lambda: transport.last_error == "the connection is not answered", transport)
        hung.setblocking(False)
        accepted: list[socket.socket] = []
        while len(accepted) < 2:
            assert transport.recv(0.01) == []
            with suppress(BlockingIOError):
                accepted.append(hung.accept()[0])
        for each in accepted:
            each.close()
    for _ in range(3):
        transport.send([(b"\0\x01", b"into the void")])
        transport.recv(0.02)
    until(lambda: transport.last_error == "Connection refused", transport)
    transport.close()
    assert sock.sock.fileno() == -1, "it owned the socket"
