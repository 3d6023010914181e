"""The kernel's UDP socket: how a member reaches a switch on a real network."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Sequence

from netsum.frames import ECT
from netsum.packet_batch import ReceiveBatch, congested
from netsum.transports.multicast import join_group
from netsum.transports.peer_filter import Address
from netsum.transports.sockets import Datagrams, SocketBatch

_SO_NO_CHECK = 11
_IP_RECVTOS = 13
_IP_MTU_DISCOVER = 10
_IP_PMTUDISC_PROBE = 3


class UdpTransport(Datagrams):
    """A UDP socket bound to the member's own port that receives only from the switch."""

    def __init__(self, local: Address, remote: Address) -> None:
        super().__init__(local, remote)
        self._incoming.ask_for_tos()
        self._from = socket.gethostbyname(remote[0]), remote[1]
        self._group: SocketBatch | None = None
        self._either = select.poll()

    def join(self, group: Address) -> None:
        """See :class:`netsum.transports.multicast.Joins`."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(self._from)
            own = probe.getsockname()[0]
        # What a sender on this host sends does not come past the switch.
        self._group = join_group(group, own, [self._from, (own, self._from[1])])
        for sock in (self.sock, self._group.sock):
            self._either.register(sock, select.POLLIN)

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
        both = [*own, *shared]
        return ReceiveBatch.of(both, congested(own)) if congested(own) else both

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
        super().close()

    def prepare(self, sock: socket.socket) -> None:
        prepare_udp(sock)
        if sys.platform == "linux":
            sock.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)


def prepare_udp(sock: socket.socket) -> None:
    """Set the options of every socket whose packets a switch computes with."""
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT)
    if sys.platform == "linux":
        # The switch compares whole contributions; a checksum over 4096 bytes would only cost time.
        sock.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
        # The switch takes no fragments, so a packet too big for the interface must be an error, not be lost silently.
        # ICMP messages about the path are ignored: it has no router, and any stranger can send them.
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
