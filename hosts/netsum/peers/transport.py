# SPDX-License-Identifier: MIT
"""The network between members: TCP connections that carry the frames of the job's members alone, and UDP for packets of memory,
which prove themselves (:mod:`netsum.peers.chains`)."""

from __future__ import annotations

import errno
import selectors
import socket
import time
import urllib.parse
from collections.abc import Sequence
from functools import partial
from typing import Final

from netsum.descriptor import MULTICAST, Descriptor, is_chain
from netsum.errors import JoinError
from netsum.fork_guard import fork_guarded
from netsum.peers.connections import PATIENCE, Clock, Incoming, Outgoing
from netsum.peers.wire import (
    DATAGRAM,
    DATAGRAM_HEAD,
    HEAD,
    RANK,
    RECORD,
    BrokenError,
    Identity,
    is_datagram,
    message_bytes,
    rank_of,
)
from netsum.transports.base import Packet
from netsum.transports.peer_filter import accept_only
from netsum.transports.sockets import BATCH, SocketBatch, parse_address
from netsum.transports.udp import group_of, join_group, send_from
from netsum.wire.schema import EVERYONE

UNPROVEN: Final = 64
"""Most connections that have not yet proven to be a member's, besides one for each member; the oldest makes room."""
_BACKLOG: Final = 1024
_ATTEMPTS: Final = 8
"""Attempts to find a port that is free in both TCP and UDP."""
_LOOK: Final = 0.005
"""Seconds between two checks for connections to open or abandon."""


class PeerSocket:
    """The address at which a member accepts connections, in all its epochs. It tells the controller this address when it
    joins. ``datagrams`` is a UDP socket with the same port."""

    def __init__(self, address: str) -> None:
        """``address`` is one of this host's, HOST or HOST:PORT; JoinError if it cannot be bound."""
        try:
            host, port = parse_address(address) if ":" in address else (address, 0)
        except ValueError as error:
            raise JoinError(f"this host's address for the other members: {error}") from None
        for left in reversed(range(_ATTEMPTS)):
            self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            fork_guarded(self.sock)
            fork_guarded(self.datagrams)
            try:
                self.sock.setblocking(False)
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self.sock.bind((host, port))
                self.sock.listen(_BACKLOG)
                accept_only(self.datagrams, [])  # until there are members that send any
                self.datagrams.bind(self.sock.getsockname())
            except OSError as error:
                self.close()
                if port or error.errno != errno.EADDRINUSE or not left:
                    raise JoinError(
                        f"cannot open the sockets for the other members at {address} (TCP and UDP): {error.strerror}"
                    ) from error
            else:
                return

    @property
    def address(self) -> str:
        host, port = self.sock.getsockname()
        return f"{host}:{port}"

    def close(self) -> None:
        self.sock.close()
        self.datagrams.close()


def own_address(controller: str) -> str | None:
    """This host's IPv4 address towards the controller at this URL; None if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            parts = urllib.parse.urlsplit(controller)
            if parts.hostname is None:
                return None
            sock.connect((parts.hostname, parts.port or 80))  # sends nothing
        except (OSError, ValueError):
            return None
        return str(sock.getsockname()[0])


class PeerTransport:
    """A transport to all other members of one epoch. The first byte of a packet is the rank at the other end; a packet of only
    that byte says that earlier ones from there may be lost. Connections from an address that is no member's, or that cannot
    prove to be a member's, are closed and counted in ``rejected_connections``."""

    def __init__(self, sock: PeerSocket, descriptor: Descriptor, *, owns: bool = False, clock: Clock = time.monotonic) -> None:
        """``descriptor`` has the peers and the key. ``owns``: closing the transport closes the socket."""
        self._clock = clock
        self._owned = sock if owns else None
        self.rejected_connections = 0
        self._listener = sock.sock
        self._peers = {
            rank: parse_address(address)
            for rank, address in enumerate(descriptor.peers)
            if address and rank not in (descriptor.rank, *descriptor.evicted)
        }
        try:
            for host, _ in self._peers.values():
                socket.inet_aton(host)
        except OSError as error:
            raise JoinError(f"the other members' addresses are not all IPv4: {', '.join(descriptor.peers)}") from error
        self._identity = Identity(bytes.fromhex(descriptor.peer_key), descriptor.rank)
        self._largest = HEAD.size + message_bytes(descriptor.block_bytes)
        # No other member is more than two windows behind, and a block goes to it twice at most.
        room = 4 * descriptor.window * (RECORD.itemsize + descriptor.block_bytes)
        here = str(self._listener.getsockname()[0])
        self._outgoing = {
            rank: Outgoing(self._identity, rank, here, address, room, clock) for rank, address in self._peers.items()
        }
        self._unproven: dict[Incoming, None] = {}  # the oldest first
        self._incoming: dict[int, Incoming] = {}
        self._come: list[memoryview] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._datagrams: SocketBatch | None = None
        self._group: SocketBatch | None = None
        self._places = dict(self._peers)  # where datagrams go
        if is_chain(descriptor.algorithm):
            self._open_datagrams(sock.datagrams, descriptor)
        self._fileno = self._selector.fileno()  # kept, because another thread may ask while we close
        self._next_look = 0.0
        self._closed = False

    def _open_datagrams(self, sock: socket.socket, descriptor: Descriptor) -> None:
        accept_only(sock, self._peers.values())
        self._datagrams = SocketBatch(sock)
        self._selector.register(sock, selectors.EVENT_READ, partial(self._read_datagrams, self._datagrams))
        if descriptor.algorithm != MULTICAST:
            return
        host, group = str(sock.getsockname()[0]), group_of(bytes.fromhex(descriptor.peer_key))
        try:
            send_from(sock, host)
            self._group = join_group(group, host, self._peers.values())
        except OSError as error:
            self._selector.close()
            raise JoinError(f"cannot join the multicast group {group[0]} at {host}: {error.strerror}") from error
        self._places[EVERYONE] = group
        self._selector.register(self._group.sock, selectors.EVENT_READ, partial(self._read_datagrams, self._group))

    @property
    def last_error(self) -> str | None:
        """The reason why a connection last broke."""
        ends: list[Outgoing | SocketBatch] = [*self._outgoing.values(), *filter(None, [self._datagrams])]
        return next((each.last_error for each in ends if each.last_error), None)

    def send(self, packets: Sequence[Packet]) -> None:
        if self._closed:
            raise OSError("the transport is closed")
        for packet in packets:
            first = memoryview(packet[0])
            rank = rank_of(first)
            if is_datagram(first):
                if self._datagrams is not None and rank in self._places:
                    self._datagrams.send_to((first[DATAGRAM_HEAD:], *packet[1:]), self._places[rank])
            elif rank in self._outgoing:
                self._outgoing[rank].send((first[RANK.size :], *packet[1:]), self._selector)

    def recv(self, timeout: float | None) -> list[memoryview]:
        if self._closed:
            return []
        self._look(self._clock())
        for key, events in self._selector.select(timeout):
            key.data(self._selector, events)
        come, self._come = self._come, []
        return come

    def _look(self, now: float) -> None:
        """Now and then: open connections that are due, abandon those that are not answered, or that stall in the middle of a
        frame."""
        if now < self._next_look:
            return
        self._next_look = now + _LOOK
        for outgoing in self._outgoing.values():
            outgoing.look_after(now, self._selector)
        for incoming in [each for each in self._unproven if now - each.began > PATIENCE]:
            self._refuse(incoming)
        for incoming in [each for each in self._incoming.values() if each.stalled(now)]:
            self._read(incoming, self._selector, selectors.EVENT_READ)  # perhaps only this process has stood still
            if incoming.fileno() >= 0 and incoming.stalled(now):
                self._close(incoming)

    def _accept(self, _selector: selectors.BaseSelector, _events: int) -> None:
        for _ in range(BATCH):
            try:
                sock, (host, _port) = self._listener.accept()
            except OSError:  # none waits, or there is no room for more
                return
            ranks = [rank for rank, address in self._peers.items() if address[0] == host]
            try:
                if not ranks:
                    raise BrokenError
                incoming = Incoming(self._identity, sock, ranks, self._largest, self._clock())
            except OSError:
                self.rejected_connections += 1
                sock.close()
                continue
            if len(self._unproven) >= UNPROVEN + len(self._peers):
                self._refuse(next(iter(self._unproven)))
            self._unproven[incoming] = None
            self._selector.register(incoming, selectors.EVENT_READ, partial(self._read, incoming))

    def _read_datagrams(self, batch: SocketBatch, _selector: selectors.BaseSelector, _events: int) -> None:
        # The packet itself says whose it is, and proves it.
        head = RANK.pack(0) + DATAGRAM
        self._come += [memoryview(b"".join((head, packet))) for packet in batch.recv(0.0)]

    def _read(self, incoming: Incoming, _selector: selectors.BaseSelector, _events: int) -> None:
        if incoming.fileno() < 0:
            return  # closed after it was found readable
        known = incoming.rank
        try:
            bodies = incoming.read(self._clock())
        except BrokenError:
            self._refuse(incoming)
            return
        except OSError:
            self._close(incoming)
            return
        if incoming.rank is None:
            return
        if known is None:  # it has just proven itself, and replaces an earlier one
            if incoming.rank in self._incoming:
                self._close(self._incoming[incoming.rank])
            del self._unproven[incoming]
            self._incoming[incoming.rank] = incoming
        self._come += [memoryview(RANK.pack(incoming.rank) + body) for body in bodies]

    def _refuse(self, incoming: Incoming) -> None:
        self.rejected_connections += 1
        self._close(incoming)

    def _close(self, incoming: Incoming) -> None:
        self._unproven.pop(incoming, None)
        if incoming.rank is not None and self._incoming.get(incoming.rank) is incoming:
            del self._incoming[incoming.rank]
        self._selector.unregister(incoming)
        incoming.close()

    def fileno(self) -> int | None:
        # A forked process has no listener any more, and must not touch its parent's selector.
        return None if self._closed or self._listener.fileno() < 0 else self._fileno

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for incoming in (*self._unproven, *self._incoming.values()):
            incoming.close()
        for outgoing in self._outgoing.values():
            outgoing.close(self._selector)
        self._selector.close()
        if self._group is not None:
            self._group.close()
        if self._owned is not None:
            self._owned.close()
