"""How members reach each other: a UDP socket that hears from the job's members alone."""

from __future__ import annotations

import select
import socket
import sys
import urllib.parse
from collections.abc import Sequence
from typing import Final

from netsum.descriptor import Descriptor
from netsum.errors import JoinError
from netsum.home import stays_home
from netsum.peers.seal import Seal
from netsum.peers.wire import RANK, SEAL
from netsum.transports.base import Packet
from netsum.transports.only_from import hear_only
from netsum.transports.sockets import BATCH, LOST, enlarge_buffers, parse_address

_SLOT_BYTES: Final = 9216  # the largest datagram over a link with jumbo frames
_SEND_PATIENCE_MS: Final = 100
_IP_MTU_DISCOVER: Final = 10
_IP_PMTUDISC_OMIT: Final = 5


class PeerSocket:
    """A member's socket, the same for all its epochs: its address is what it tells the controller when it joins."""

    def __init__(self, address: str) -> None:
        """Bound to an address of this host, HOST or HOST:PORT; JoinError if that does not go."""
        host, port = parse_address(address) if ":" in address else (address, 0)
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        stays_home(self.sock)
        try:
            self.sock.setblocking(False)
            if sys.platform == "linux":
                # Fragments where the way is narrower than the one to a switch; how narrow, no ICMP message tells us.
                self.sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_OMIT)
            enlarge_buffers(self.sock)
            self.sock.bind((host, port))
        except OSError as error:
            self.sock.close()
            raise JoinError(f"cannot open the socket for the other members at {address}: {error.strerror}") from error

    @property
    def address(self) -> str:
        """HOST:PORT."""
        host, port = self.sock.getsockname()
        return f"{host}:{port}"

    def close(self) -> None:
        """Give it back. May be called twice."""
        self.sock.close()


def own_address(controller: str) -> str | None:
    """The IPv4 address of this host from which the controller at this URL is reached; None if there is none."""
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
    """A transport to all other members of one epoch. The first byte of a packet is the rank at the other end.

    What does not bear a member's seal, or is from an address that is not the rank's, is dropped and counted in ``strangers``.
    """

    def __init__(self, sock: PeerSocket, descriptor: Descriptor, *, owns: bool = False) -> None:
        """``descriptor`` has the peers and the key. ``owns``: closing the transport closes the socket."""
        self._owned = sock if owns else None
        self.strangers = 0
        self.last_error: str | None = None
        self._sock = sock.sock
        self._peers = {
            rank: parse_address(address)
            for rank, address in enumerate(descriptor.peers)
            if address and rank not in (descriptor.rank, *descriptor.evicted)
        }
        self._seal = Seal(bytes.fromhex(descriptor.peer_key), descriptor.rank, self._peers)
        try:
            hear_only(self._sock, self._peers.values())
        except OSError as error:
            raise JoinError(f"the other members' addresses are not all IPv4: {', '.join(descriptor.peers)}") from error
        pool = memoryview(bytearray(BATCH * _SLOT_BYTES))
        self._slots = [pool[start : start + _SLOT_BYTES] for start in range(0, len(pool), _SLOT_BYTES)]
        self._readable = select.poll()
        self._readable.register(self._sock, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(self._sock, select.POLLOUT)
        self._closed = False

    def send(self, packets: Sequence[Packet]) -> None:
        if self._closed:
            raise OSError("the transport is closed")
        for packet in packets:
            first = memoryview(packet[0])
            if first[0] in self._peers:
                self._send_to(first[0], self._seal.close(first[0], (first[RANK.size :], *packet[1:])))

    def _send_to(self, rank: int, parts: Packet) -> None:
        try:
            self._send_one(parts, self._peers[rank])
        except OSError as error:
            if error.errno not in LOST:
                raise
            self.last_error = error.strerror

    def _send_one(self, parts: Packet, address: tuple[str, int]) -> None:
        try:
            self._sock.sendmsg(parts, (), 0, address)
        except BlockingIOError:
            self._writable.poll(_SEND_PATIENCE_MS)
            try:
                self._sock.sendmsg(parts, (), 0, address)
            except BlockingIOError:
                self.last_error = "the socket's send buffer stays full"

    def recv(self, timeout: float | None) -> list[memoryview]:
        received: list[memoryview] = []
        waited = timeout == 0 or self._closed
        for _ in range(BATCH + 1):  # strangers' count, too: a flood does not keep us here
            if self._closed or len(received) == BATCH:
                break
            slot = self._slots[len(received)]
            try:
                size, address = self._sock.recvfrom_into(slot)
            except BlockingIOError:
                if received or waited:
                    break
                waited = True
                # Rounded up: a timeout of less than a millisecond must not become a busy loop.
                self._readable.poll(None if timeout is None else int(timeout * 1000) + 1)
                continue
            except OSError as error:
                if error.errno not in LOST:
                    raise
                self.last_error = error.strerror
                continue
            if self._take(slot[:size], address):
                received.append(slot[SEAL.size : size])
        return received

    def _take(self, datagram: memoryview, address: tuple[str, int]) -> bool:
        """Answer what is to be answered; whether it is for the window."""
        rank = datagram[SEAL.size] if len(datagram) > SEAL.size else None
        opened = self._seal.open(datagram) if rank is not None and self._peers.get(rank) == address else None
        if rank is None or opened is None:
            self.strangers += 1
            return False
        for answer in opened.answers:
            self._send_to(rank, answer)
        return opened.says

    def fileno(self) -> int | None:
        return None if self._closed else self._sock.fileno()

    def close(self) -> None:
        self._closed = True
        if self._owned is not None:
            self._owned.close()
