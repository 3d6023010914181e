# SPDX-License-Identifier: MIT
"""UDP."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, Protocol, runtime_checkable

from netsum.fork_guard import fork_guarded
from netsum.frames import ECT
from netsum.packet_batch import ReceiveBatch, congested
from netsum.transports.peer_filter import Address, accept_only
from netsum.transports.sockets import Datagrams, SocketBatch

# IP multicast: the network copies a datagram to all members of a group. A switch without IGMP floods it to all its
# ports.


_FIRST_PORT: Final = 49152
_PORTS: Final = 1 << 14


@runtime_checkable
class Joins(Protocol):
    """A transport that can also receive what the switch's side sends to a group."""

    def join(self, group: Address) -> None:
        """From now on :meth:`recv` brings this, too. OSError if it cannot be."""


def group_of(key: bytes) -> Address:
    """A group of the range for private use (RFC 2365), and a port: the same for all who have the key."""
    digest = blake2b(key, digest_size=5, person=b"netsum group").digest()
    return f"239.{digest[0] & 127}.{digest[1]}.{digest[2]}", _FIRST_PORT + int.from_bytes(digest[3:]) % _PORTS


def region_group(region: int) -> Address:
    """The multicast group to which devices send what many clients of a region wait for."""
    return group_of(b"memory" + region.to_bytes(8))


def send_from(sock: socket.socket, host: str) -> None:
    """Have the socket's multicasts leave by the interface with this address."""
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(host))


def add_membership(sock: socket.socket, group: Address, host: str) -> None:
    """Have the socket receive what comes for the group on the interface with this address. Raises OSError."""
    membership = socket.inet_aton(group[0]) + socket.inet_aton(host)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)


def _own_address(remote: Address) -> str:
    """This host's address on the way to another."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(remote)
        return str(probe.getsockname()[0])


def join_group(group: Address, host: str, members: Iterable[Address]) -> SocketBatch:
    """A socket that receives what these members send to the group, on the interface with the address ``host``. Raises OSError."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fork_guarded(sock)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # several members may be on a host
        accept_only(sock, members)
        sock.bind(group)
        add_membership(sock, group, host)
        return SocketBatch(sock)
    except OSError:
        sock.close()
        raise


# The kernel's UDP socket: how a member reaches a switch on a real network.


_SO_NO_CHECK = 11
_IP_MTU_DISCOVER = 10
_IP_PMTUDISC_PROBE = 3


class UdpTransport(Datagrams):
    """A UDP socket bound to the member's own port that receives only from the switch."""

    def __init__(self, local: Address, remote: Address, others: Sequence[Address] = ()) -> None:
        super().__init__(local, remote, others=others, tos=True)
        if self.carries_segments:  # whose checksums the device computes, or none
            self.sock.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 0)
        self._senders = [(socket.gethostbyname(remote[0]), remote[1]), *others]
        self._group: SocketBatch | None = None
        self._either = select.poll()
        self._readable_fd: select.epoll | None = None

    def carry_singly(self) -> None:
        super().carry_singly()
        self.sock.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)

    def join(self, group: Address) -> None:
        """See :class:`Joins`."""
        own = dict.fromkeys(map(_own_address, self._senders))  # several if the switches are reached by several interfaces
        # What a sender on this host sends does not come past the switch.
        senders = dict.fromkeys((address, port) for host, port in self._senders for address in (host, *own))
        first, *others = own
        joined = join_group(group, first, senders)
        try:
            for host in others:
                add_membership(joined.sock, group, host)
            joined.read_marks()
        except OSError:
            joined.close()
            raise
        self._group = joined
        if self.carries_segments:
            joined.carry_segments()
        if sys.platform == "linux":
            self._readable_fd = select.epoll()
        for sock in (self.sock, joined.sock):
            self._either.register(sock, select.POLLIN)
            if self._readable_fd is not None:
                self._readable_fd.register(sock, select.EPOLLIN)

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        group = self._group
        if group is None:
            return super().recv(timeout)
        for wait in (False, True):
            if wait:
                self._either.poll(None if timeout is None else int(timeout * 1000) + 1)
            own, shared = super().recv(0), group.recv(0)
            if own or shared or timeout == 0:
                break
        if not own or not shared:
            return own or shared
        both, marked = [*own, *shared], congested(own) + congested(shared)
        return ReceiveBatch.of(both, marked) if marked else both

    def fileno(self) -> int:
        return super().fileno() if self._readable_fd is None else self._readable_fd.fileno()

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
        if self._readable_fd is not None:
            self._readable_fd.close()
        super().close()

    def prepare(self, sock: socket.socket) -> None:
        prepare_udp(sock)


def prepare_udp(sock: socket.socket) -> None:
    """Set the options of every socket whose packets a switch computes with."""
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT)
    if sys.platform == "linux":
        # The switch compares whole contributions; a checksum over 4096 bytes would only cost time.
        sock.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
        # The switch takes no fragments, so a packet too big for the interface must be an error, not be lost silently.
        # ICMP messages about the path are ignored: it has no router, and any sender can send them.
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
