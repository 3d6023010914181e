"""The members' sockets: who is heard, and who is not."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import netsum
import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum.descriptor import Descriptor
from netsum.errors import JoinError
from netsum.peers.transport import PeerSocket, PeerTransport, own_address
from netsum.transports import Transport, open_transport

from tests.hosts.calls import good, on_each, together
from tests.hosts.peers import peer_descriptor

KEY = bytes.fromhex("0123456789abcdef")


@pytest.fixture
def sockets() -> Iterator[list[PeerSocket]]:
    opened = [PeerSocket("127.0.0.1") for _ in range(3)]
    yield opened
    for each in opened:
        each.close()


@pytest.fixture
def descriptors(sockets: list[PeerSocket]) -> list[Descriptor]:
    addresses = tuple(each.address for each in sockets)
    return [peer_descriptor(rank, 3, peers=addresses) for rank in range(3)]


def received(transport: Transport) -> list[bytes]:
    """The next packets, within a second."""
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        if packets := transport.recv(0.1):
            return [bytes(packet) for packet in packets]
    return []


def test_packets_go_to_the_rank_in_front_and_come_with_the_senders(
    sockets: list[PeerSocket], descriptors: list[Descriptor]
) -> None:
    one, two, three = (PeerTransport(*each) for each in zip(sockets, descriptors, strict=True))
    one.send([(b"\x01head", b"piece"), (b"\x02", b"other"), (b"\x00", b"itself"), (b"\x07", b"nobody")])
    two.send([(b"\x02joined in one part",)])
    assert received(two) == [b"\x00headpiece"]
    got = received(three)
    got += received(three) if len(got) == 1 else []
    assert sorted(got) == [b"\x00other", b"\x01joined in one part"]
    assert one.recv(0) == []
    assert three.fileno() == sockets[2].sock.fileno()
    two.close()
    assert (two.recv(None), two.fileno()) == ([], None)
    with pytest.raises(OSError, match="closed"):
        two.send([(b"\x00late",)])


def test_strangers_are_dropped_and_counted(sockets: list[PeerSocket], descriptors: list[Descriptor]) -> None:
    transport = PeerTransport(sockets[0], descriptors[0])
    address = sockets[0].sock.getsockname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(KEY + b"\x01from elsewhere", address)  # dropped by the kernel, uncounted
    for datagram in (b"", KEY, KEY[:7], b"another key"[:8] + b"\x01", KEY + b"\x02not mine", KEY + b"\x09nobody"):
        sockets[1].sock.sendto(datagram, address)
    last = PeerTransport(sockets[1], replace(descriptors[1], peer_key="00" * 8))  # of another epoch
    last.send([(b"\x00", b"old")])
    PeerTransport(sockets[1], descriptors[1]).send([(b"\x00", b"good")])
    assert received(transport) == [b"\x01good"]
    assert transport.strangers == 7


def test_a_link_that_fails_for_a_moment_loses_packets() -> None:
    sock = PeerSocket("127.0.0.1")
    gone = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    gone.bind(("127.0.0.1", 0))
    addresses = (sock.address, f"127.0.0.1:{gone.getsockname()[1]}")
    gone.close()
    transport = PeerTransport(sock, peer_descriptor(0, 2, peers=addresses), owns=True)
    for _ in range(3):
        transport.send([(b"\x01", b"into the void")])
        assert transport.recv(0.01) == []
    transport.close()
    assert sock.sock.fileno() == -1, "it owned the socket"


def test_addresses() -> None:
    assert own_address("http://127.0.0.1:8080") == "127.0.0.1"
    assert own_address("http://[nonsense") is None
    assert own_address("https://") is None
    sock = PeerSocket("127.0.0.1:0")
    assert sock.address == f"127.0.0.1:{sock.sock.getsockname()[1]}"
    with pytest.raises(JoinError, match=r"other members at 203\.0\.113\.7"):
        PeerSocket("203.0.113.7")
    with pytest.raises(JoinError, match=sock.address):
        PeerSocket(sock.address)
    sock.close()
    with pytest.raises(JoinError, match="at which address rank 0"):
        open_transport(peer_descriptor(0, 2, peers=("", "127.0.0.1:9")))


def test_a_job_over_real_sockets_from_descriptors(sockets: list[PeerSocket], descriptors: list[Descriptor]) -> None:
    for each in sockets:
        each.close()
    communicators = [netsum.join(descriptor=each, call_timeout=30.0) for each in descriptors]
    arrays = [np.random.default_rng(rank).standard_normal(40_000).astype(np.float32) for rank in range(3)]
    try:
        total = good(on_each(communicators, lambda comm: comm.allreduce(arrays[comm.rank])))
        np.testing.assert_allclose(total, sum(arrays), rtol=0, atol=1e-6)
        good(on_each(communicators, lambda comm: comm.broadcast(arrays[comm.rank], root=2)))
    finally:
        together([partial(Communicator.close, comm) for comm in communicators])
