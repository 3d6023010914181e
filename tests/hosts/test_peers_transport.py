# SPDX-License-Identifier: MIT
"""The members' connections: who is heard, who is not, and what happens when they break."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import netsum
import numpy as np
import pytest
from netsum import Communicator, Descriptor, JoinError
from netsum.core.endpoint_factory import open_transport
from netsum.peers.transport import PeerSocket, PeerTransport, own_address
from netsum.peers.wire import FRAME, GREETING, SIZE, Identity, framed

from tests.hosts.calls import good, on_each
from tests.hosts.peers import KEY, peer_descriptor
from tests.hosts.real_peers import LOST, received, until
from tests.threads import PATIENCE


@pytest.fixture
def sockets() -> Iterator[list[PeerSocket]]:
    opened = [PeerSocket("127.0.0.1") for _ in range(3)]
    yield opened
    for each in opened:
        each.close()


@pytest.fixture
def descriptors(sockets: list[PeerSocket]) -> list[Descriptor]:
    addresses = tuple(each.address for each in sockets)
    return [peer_descriptor(rank, 3, window=64, peers=addresses) for rank in range(3)]


@pytest.fixture
def transports(sockets: list[PeerSocket], descriptors: list[Descriptor]) -> Iterator[list[PeerTransport]]:
    opened = [PeerTransport(*each) for each in zip(sockets, descriptors, strict=True)]
    yield opened
    for each in opened:
        each.close()


class Outsider:
    """A peer that connects to a member, with any key."""

    def __init__(self, transport: PeerTransport, sock: PeerSocket, key: bytes = bytes(16), rank: int = 1) -> None:
        self._transport = transport
        self.sock = socket.create_connection(sock.sock.getsockname(), timeout=PATIENCE)
        self.sock.setblocking(False)
        self.greeting = self.read(GREETING.size)
        answer = Identity(key, rank).answer(self.greeting, 0)
        assert answer is not None
        self.hello, self.auth = answer

    def read(self, size: int) -> bytes:
        """Bytes that the member sends; b"": it has closed the connection."""
        for _ in range(100):
            assert self._transport.recv(0.01) == [], "something of an untrusted sender's is taken"
            try:
                return self.sock.recv(size)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                return b""
        raise AssertionError("the member neither speaks nor closes the connection")

    def is_refused(self) -> bool:
        refused = self.read(1) == b""
        self.sock.close()
        return refused


Knock = Callable[..., Outsider]


@pytest.fixture
def knock(transports: list[PeerTransport], sockets: list[PeerSocket]) -> Knock:
    """``knock(key, rank)``: an untrusted sender who connects to rank 0."""
    return partial(Outsider, transports[0], sockets[0])


def test_packets_go_to_the_rank_in_front_and_come_with_the_senders(transports: list[PeerTransport]) -> None:
    one, two, three = transports
    one.send([(b"\0\x01head", b"piece"), (b"\0\x02", b"other"), (b"\0\x00", b"itself"), (b"\0\x07", b"nowhere")])
    assert received(two, one) == [b"\0\x00headpiece"]
    assert received(three, one) == [b"\0\x00other"]
    two.send([(b"\0\x02joined in one part",)])
    assert received(three, two) == [b"\0\x01joined in one part"]
    assert one.recv(0) == []
    assert [each.rejected_connections for each in transports] == [0] * 3
    two.close()
    assert (two.recv(None), two.fileno()) == ([], None)
    with pytest.raises(OSError, match="closed"):
        two.send([(b"\0\x00late",)])


def test_packets_of_any_size_come_whole_and_in_order(transports: list[PeerTransport]) -> None:
    """Far more than a socket's buffers hold: what waits is bounded by two windows of blocks."""
    one, two, _ = transports
    rng = np.random.default_rng(1)
    packets = [rng.bytes(size) for size in (0, 1, 60_000, 65_000, 3, 60_000, 1000)]
    for turn in range(4):
        one.send([(b"\0\x01", packet) for packet in packets])
        assert received(two, one, number=len(packets)) == [b"\0\x00" + packet for packet in packets], f"turn {turn}"


def test_untaken_data_is_not_kept_without_bound(transports: list[PeerTransport]) -> None:
    one, two, _ = transports
    for _ in range(2000):
        one.send([(b"\0\x01", bytes(60_000))])
        one.recv(0)
    assert one._outgoing[1]._waiting_bytes < 400_000
    assert bytes(60_000) == received(two, one)[0][2:]


def test_what_is_sent_before_the_other_is_there_comes(sockets: list[PeerSocket], descriptors: list[Descriptor]) -> None:
    one = PeerTransport(sockets[0], descriptors[0])
    one.send([(b"\0\x01", b"early")])
    one.recv(0.05)
    two = PeerTransport(sockets[1], descriptors[1])
    assert received(two, one) == [b"\0\x00early"]
    one.close()
    two.close()


def test_a_connection_that_breaks_is_made_again_and_what_may_be_lost_is_said(transports: list[PeerTransport]) -> None:
    one, two, _ = transports
    for number in range(3):
        two.send([(b"\0\x00", b"%d" % number)])
        assert received(one, two) == [b"\0\x01%d" % number]
        one._close(one._incoming[1])
        assert received(one, two) == [LOST], "it has nothing new to say, and says that"
    assert one.rejected_connections == 0
    assert len(one._incoming) == 1


def test_an_intruder_breaks_the_connection_alone(transports: list[PeerTransport]) -> None:
    one, two, _ = transports
    two.send([(b"\0\x00", b"before")])
    assert received(one, two) == [b"\0\x01before"]
    way = two._outgoing[0]
    assert way._sock is not None
    way._sock.send(FRAME.pack(5, bytes(16), bytes(16)) + b"wrong")
    assert received(one, two) == [LOST]
    two.send([(b"\0\x00", b"after")])
    assert received(one, two) == [b"\0\x01after"]
    assert one.rejected_connections == 1


def test_the_key_never_travels(transports: list[PeerTransport], sockets: list[PeerSocket]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        there = "{}:{}".format(*listening.getsockname())
        spied = PeerTransport(sockets[0], peer_descriptor(0, 2, peers=(sockets[0].address, there)))
        spied.send([(b"\0\x01", b"message")])
        passing, _ = listening.accept()
        with passing:
            passing.send(Identity(KEY, 1).greet())
            heard = b""
            for _ in range(100):
                assert spied.recv(0.01) == []
                with suppress(BlockingIOError):
                    heard += passing.recv(9000, socket.MSG_DONTWAIT)
        spied.close()
    assert heard.endswith(b"message")
    assert KEY not in heard
    assert transports[0].rejected_connections == 0


@pytest.mark.parametrize("rank", [0, 1, 9])
def test_who_lacks_the_key_or_is_no_other_rank_is_refused(rank: int, transports: list[PeerTransport], knock: Knock) -> None:
    outsider = knock(KEY if rank != 1 else bytes(16), rank)
    outsider.sock.send(outsider.hello + framed(outsider.auth, (b"evil",)))
    assert outsider.is_refused()
    assert transports[0].rejected_connections == 1


def test_a_member_of_another_epoch_is_refused_and_goes_on_trying(
    transports: list[PeerTransport], descriptors: list[Descriptor], sockets: list[PeerSocket]
) -> None:
    transports[1].close()
    ahead = PeerTransport(sockets[1], replace(descriptors[1], peer_key="00" * 16))
    ahead.send([(b"\0\x00", b"new")])
    until(lambda: transports[0].rejected_connections > 2, transports[0], ahead)
    assert ahead.last_error in ("a member has closed the connection", "Connection reset by peer")
    transports[0].close()
    following = PeerTransport(sockets[0], replace(descriptors[0], peer_key="00" * 16))
    assert received(following, ahead) == [LOST]
    ahead.close()
    following.close()


def test_what_an_untrusted_sender_sends_without_end_is_not_kept(knock: Knock) -> None:
    outsider = knock()
    outsider.sock.send(bytes(100_000))
    assert outsider.is_refused()


def test_a_member_that_claims_a_frame_too_large_is_not_listened_to(transports: list[PeerTransport], knock: Knock) -> None:
    outsider = knock(KEY)
    size = SIZE.pack(1 << 31)
    outsider.sock.send(outsider.hello + size + outsider.auth.tag((size,)) + bytes(16))
    assert outsider.is_refused()
    assert transports[0].rejected_connections == 1


def test_who_connects_from_elsewhere_is_refused_unread(transports: list[PeerTransport], sockets: list[PeerSocket]) -> None:
    with socket.socket() as outsider:
        outsider.bind(("127.0.0.2", 0))
        outsider.connect(sockets[0].sock.getsockname())
        outsider.settimeout(PATIENCE)
        until(lambda: transports[0].rejected_connections == 1, transports[0])
        assert outsider.recv(100) == b""


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
    with pytest.raises(JoinError, match=r"not all IPv4: .*somewhere"):
        PeerTransport(sock, peer_descriptor(0, 2, peers=("127.0.0.1:1", "somewhere:9")))
    sock.close()
    with pytest.raises(JoinError, match="at which the other members reach rank 0"):
        open_transport(peer_descriptor(0, 2, peers=("", "127.0.0.1:9")))


@pytest.fixture
def communicators(sockets: list[PeerSocket], descriptors: list[Descriptor]) -> Iterator[list[Communicator]]:
    """The transports of a job over real sockets."""
    for each in sockets:
        each.close()
    joined = [netsum.join(descriptor=each, call_timeout=PATIENCE) for each in descriptors]
    yield joined
    on_each(joined, Communicator.close)


def test_a_job_over_real_sockets_from_descriptors(communicators: list[Communicator]) -> None:
    arrays = [np.random.default_rng(rank).standard_normal(40_000).astype(np.float32) for rank in range(3)]
    total = good(on_each(communicators, lambda comm: comm.allreduce(arrays[comm.rank])))
    np.testing.assert_allclose(total, sum(arrays), rtol=0, atol=1e-6)
    good(on_each(communicators, lambda comm: comm.broadcast(arrays[comm.rank], root=2)))
    assert sum(comm.stats.retransmissions for comm in communicators) == 0, "no connection broke"


def test_connections_that_break_in_the_middle_of_calls_change_no_bit(communicators: list[Communicator]) -> None:
    arrays = [np.random.default_rng(rank).standard_normal(20_000).astype(np.float32) for rank in range(3)]

    def calls(comm: Communicator) -> list[bytes]:
        results = []
        for number in range(10):
            work = comm.allreduce_async(arrays[comm.rank] * number)
            transport = comm._session._transport
            assert isinstance(transport, PeerTransport)
            for incoming in list(transport._incoming.values())[: number % 3]:
                incoming._sock.shutdown(socket.SHUT_RDWR)
            results.append(work.wait().tobytes())
        return results

    def broke() -> bool:
        first, *others = on_each(communicators, calls)
        assert others == [first] * 2
        expected = sum(array.astype(np.float64) for array in arrays) * 9
        np.testing.assert_allclose(np.frombuffer(first[-1], np.float32), expected, atol=1e-5)
        return sum(comm.stats.retransmissions for comm in communicators) > 0

    until(broke)  # a call may be over before its connection breaks
