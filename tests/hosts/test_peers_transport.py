"""The members' sockets: who is heard, and who is not."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import netsum
import numpy as np
import pytest
from netsum.backend import open_transport
from netsum.communicator import Communicator
from netsum.descriptor import Descriptor
from netsum.errors import JoinError
from netsum.peers.transport import PeerSocket, PeerTransport, own_address
from netsum.transports import Transport

from tests.hosts.calls import good, on_each, together
from tests.hosts.peers import KEY, peer_descriptor


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


def received(transport: Transport, *others: Transport) -> list[bytes]:
    """The next packets, within a second; meanwhile the others answer."""
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        for other in others:
            assert other.recv(0) == []
        if packets := transport.recv(0.01):
            return [bytes(packet) for packet in packets]
    return []


@pytest.fixture
def transports(sockets: list[PeerSocket], descriptors: list[Descriptor]) -> list[PeerTransport]:
    return [PeerTransport(*each) for each in zip(sockets, descriptors, strict=True)]


def test_packets_go_to_the_rank_in_front_and_come_with_the_senders(
    sockets: list[PeerSocket], transports: list[PeerTransport]
) -> None:
    one, two, three = transports
    one.send([(b"\x01head", b"piece"), (b"\x02", b"other"), (b"\x00", b"itself"), (b"\x07", b"nobody")])
    assert received(two, one) == [b"\x00headpiece"]
    assert received(three, one) == [b"\x00other"]
    two.send([(b"\x02joined in one part",)])
    assert received(three, two) == [b"\x01joined in one part"]
    assert one.recv(0) == []
    assert three.fileno() == sockets[2].sock.fileno()
    two.close()
    assert (two.recv(None), two.fileno()) == ([], None)
    with pytest.raises(OSError, match="closed"):
        two.send([(b"\x00late",)])


def overheard(sockets: list[PeerSocket], transports: list[PeerTransport]) -> bytes:
    """A datagram of rank 1 to rank 0, as it passes."""
    transports[1].send([(b"\x00", b"one")])
    assert received(transports[0], transports[1]) == [b"\x01one"]
    transports[1].send([(b"\x00", b"two")])
    readable = select.poll()
    readable.register(sockets[0].sock, select.POLLIN)
    assert readable.poll(1000)
    datagram = sockets[0].sock.recv(9000, socket.MSG_PEEK)
    assert received(transports[0]) == [b"\x01two"]
    return datagram


def test_the_key_never_travels(sockets: list[PeerSocket], transports: list[PeerTransport]) -> None:
    assert KEY not in overheard(sockets, transports)


def test_who_hears_everything_can_neither_say_nor_repeat_anything(
    sockets: list[PeerSocket], transports: list[PeerTransport]
) -> None:
    datagram = overheard(sockets, transports)
    other = bytearray(datagram)
    other[-1] ^= 1  # what a member says begins as before
    for each in (datagram, other, datagram[:-1], datagram + b"\0"):
        sockets[1].sock.sendto(each, sockets[0].sock.getsockname())
    assert received(transports[0]) == []
    assert transports[0].strangers == 4


def test_what_was_said_to_an_earlier_process_is_not_taken_by_a_later_one(
    sockets: list[PeerSocket], descriptors: list[Descriptor], transports: list[PeerTransport]
) -> None:
    datagram = overheard(sockets, transports)
    later = PeerTransport(sockets[0], descriptors[0])
    sockets[1].sock.sendto(datagram, sockets[0].sock.getsockname())
    assert received(later) == []
    transports[1].send([(b"\x00", b"to the earlier one")])
    assert received(later, transports[1]) == []
    assert later.strangers == 2


def test_strangers_are_dropped_and_counted(
    sockets: list[PeerSocket], descriptors: list[Descriptor], transports: list[PeerTransport]
) -> None:
    address = sockets[0].sock.getsockname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(KEY + b"\x01" + bytes(100), address)  # dropped by the kernel, uncounted
    for datagram in (b"", KEY, KEY[:7], bytes(41) + b"\x01", bytes(41) + b"\x02not mine", bytes(41) + b"\x09nobody"):
        sockets[1].sock.sendto(datagram, address)
    last = PeerTransport(sockets[1], replace(descriptors[1], peer_key="00" * 16))  # of another epoch
    last.send([(b"\x00", b"old")])
    assert received(transports[0]) == []
    transports[1].send([(b"\x00", b"good")])
    assert received(transports[0], transports[1]) == [b"\x01good"]
    assert transports[0].strangers == 7


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
