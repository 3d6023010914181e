"""IP multicast: the network copies a datagram to all members of a group. A switch without IGMP floods it to all its ports."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, Protocol, runtime_checkable

from netsum.fork_guard import fork_guarded
from netsum.transports.peer_filter import Address, accept_only
from netsum.transports.sockets import SocketBatch

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
    """Where devices send what many clients of a region wait for."""
    return group_of(b"memory" + region.to_bytes(8))


def send_from(sock: socket.socket, host: str) -> None:
    """Have the socket's multicasts leave by the interface with this address."""
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(host))


def join_group(group: Address, host: str, members: Iterable[Address]) -> SocketBatch:
    """A socket that receives what these members send to the group, on the interface with the address ``host``. Raises OSError."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fork_guarded(sock)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # several members may be on a host
        accept_only(sock, members)
        sock.bind(group)
        membership = socket.inet_aton(group[0]) + socket.inet_aton(host)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        return SocketBatch(sock)
    except OSError:
        sock.close()
        raise
