# SPDX-License-Identifier: MIT
"""Packets of untrusted senders at a member's sockets cost the member no more than looking at them."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from netsum.communicator import Communicator
from netsum.frames import FrameFormat, internet_checksum
from netsum.peers.transport import PeerSocket, PeerTransport
from netsum.transports import FramesTransport, InMemoryTransport, Transport, UdpTransport
from netsum.transports.mmsg import MessageArray
from netsum.transports.sockets import BATCH, SocketBatch
from netsum_testbed.netns import NetworkNamespace

from tests.hosts.network import descriptor
from tests.hosts.peers import peer_descriptor

HERE, THERE = ("127.0.0.1", 20001), ("127.0.0.2", 12000)
LARGE = b"\0\x01" + bytes(4000)
UNREACHABLE, TIME_EXCEEDED, PARAMETER_PROBLEM = 3, 11, 12
KINDS = [(UNREACHABLE, code) for code in range(16)] + [(TIME_EXCEEDED, 0), (PARAMETER_PROBLEM, 0)]
PATIENCE = 100_000
"""Packets that a loop is fed before the test decides that it does not end."""


def icmp_error(kind: int, code: int, protocol: int = socket.IPPROTO_UDP, port: int = HERE[1]) -> bytes:
    """An ICMP message about a packet from HERE to THERE; "fragmentation needed" asks for packets of 600 bytes."""
    addresses = socket.inet_aton(HERE[0]) + socket.inet_aton(THERE[0])
    about = struct.pack(">BBHHHBBH", 0x45, 0, 4028, 0, 0x4000, 64, protocol, 0) + addresses
    about += struct.pack(">HHHH", port, THERE[1], 4008, 0)  # of TCP: ports and a sequence number, which is not known
    bare = struct.pack(">BBHHH", kind, code, 0, 0, 600 if (kind, code) == (UNREACHABLE, 4) else 0) + about
    return bare[:2] + struct.pack(">H", internet_checksum(bare)) + bare[4:]


@pytest.fixture
def namespace() -> Iterator[NetworkNamespace]:
    """The test's own network, in which the effects of ICMP messages on routes stay."""
    made = NetworkNamespace([], 9000)
    yield made
    made.close()


def udp() -> tuple[Transport, Transport]:
    return UdpTransport(HERE, THERE), UdpTransport(THERE, HERE)


def frames() -> tuple[Transport, Transport]:
    host, switch = ("02:00:00:00:00:01", "10.9.0.1", 20001), ("02:00:00:00:00:fe", "10.9.0.254", 12000)
    there, here = FrameFormat(switch, host), FrameFormat(host, switch)
    return FramesTransport(here, HERE, THERE), FramesTransport(there, THERE, HERE)


@pytest.mark.root
@pytest.mark.parametrize("open_pair", [udp, frames])
def test_no_icmp_message_is_an_error_or_makes_packets_smaller(
    namespace: NetworkNamespace, open_pair: Callable[[], tuple[Transport, Transport]]
) -> None:
    def attacked() -> list[int]:
        ours, theirs = open_pair()
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as outsider:
            arrived = []
            for kind, code in KINDS:
                for meets in (lambda: ours.send([(LARGE,)]), lambda: ours.recv(0.0)):
                    outsider.sendto(icmp_error(kind, code), (HERE[0], 0))
                    meets()
                ours.send([(LARGE,)])
                arrived.append(sum(len(packet) == len(LARGE) for packet in [*theirs.recv(1.0), *theirs.recv(0.0)]))
        for each in (ours, theirs):
            each.close()
        return arrived

    assert namespace.call(attacked) == [2] * len(KINDS)


@pytest.mark.root
def test_no_icmp_message_breaks_a_connection_between_members(namespace: NetworkNamespace) -> None:
    addresses = tuple(f"{host}:{port}" for host, port in (HERE, THERE))

    def attacked() -> list[list[int]]:
        ours, theirs = (
            PeerTransport(PeerSocket(addresses[rank]), peer_descriptor(rank, 2, peers=addresses), owns=True) for rank in range(2)
        )
        arrived = []
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as outsider:
            for kind, code in KINDS:
                sizes: list[int] = []
                ours.send([(LARGE,)])
                for _ in range(100):
                    ours.recv(0.001)
                    sizes += map(len, theirs.recv(0.001))
                    if sizes:
                        break
                arrived.append(sizes)
                way = ours._outgoing[1]._sock
                assert way is not None
                port = way.getsockname()[1]
                outsider.sendto(icmp_error(kind, code, socket.IPPROTO_TCP, port), (HERE[0], 0))
        for each in (ours, theirs):
            each.close()
        return arrived

    assert namespace.call(attacked) == [[len(LARGE)]] * len(KINDS), "nothing may be lost"


class Flooded:
    """A socket to which an untrusted sender has always just connected."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner
        self.looked_at = 0

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        self.looked_at += 1
        assert self.looked_at < PATIENCE, "the loop does not end as long as an untrusted sender connects"
        return socket.socket(), ("127.0.0.1", 9)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("timeout", [0.0, 0.01, None])
def test_receiving_from_peers_ends_while_an_untrusted_sender_connects(timeout: float | None) -> None:
    sock = PeerSocket("127.0.0.1")
    addresses = (sock.address, "127.0.0.1:9")
    flooded = Flooded(sock.sock)
    sock.sock = flooded  # type: ignore[assignment]
    transport = PeerTransport(sock, peer_descriptor(0, 2, peers=addresses), owns=True)
    with socket.create_connection(flooded.getsockname()):
        assert transport.recv(timeout) == []
    assert transport.rejected_connections == flooded.looked_at == BATCH
    transport.close()


def test_receiving_ends_while_the_network_reports_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = itertools.count()

    def fail(*_: object) -> int:
        assert next(errors) < PATIENCE, "the loop does not end as long as errors come"
        raise OSError(errno.EHOSTUNREACH, "No route to host")

    monkeypatch.setattr(MessageArray, "receive", fail)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        batch = SocketBatch(sock)
        assert not batch.recv(0.0)
        assert batch.last_error == "No route to host"


def test_listening_between_calls_ends_while_an_untrusted_sender_sends() -> None:
    class Endless(InMemoryTransport):
        came = 0

        def recv(self, timeout: float | None) -> list[memoryview]:  # noqa: ARG002 - a transport's
            self.came += BATCH
            assert self.came < PATIENCE, "the loop does not end as long as an untrusted sender sends"
            return [memoryview(b"nonsense")] * BATCH

    with Communicator(descriptor(0, 2, block_exp_ms=50.0), Endless()) as comm:
        assert comm.lag() == 0


@pytest.mark.parametrize("open_end", [udp, frames])
def test_what_others_send_to_the_socket_never_reaches_it(open_end: Callable[[], tuple[Transport, Transport]]) -> None:
    ours, theirs = open_end()
    waiting = ours.fileno()
    assert waiting is not None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outsider:
        for _ in range(10):
            outsider.sendto(b"nonsense", HERE)
    received = socket.socket(fileno=os.dup(waiting))
    with received, pytest.raises(BlockingIOError):
        received.recv(1)
    for each in (ours, theirs):
        each.close()
