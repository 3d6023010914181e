"""The kernel's UDP socket: how a member reaches a switch on a real network."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence

from netsum.transports.base import Packet
from netsum.transports.sockets import open_datagrams

_SO_NO_CHECK = 11
_IP_MTU_DISCOVER = 10
_IP_PMTUDISC_PROBE = 3


class UdpTransport:
    """A UDP socket bound to the member's own port that receives only from the switch."""

    def __init__(self, local: tuple[str, int], remote: tuple[str, int]) -> None:
        """``local`` and ``remote`` are (IPv4 address, port). Raises OSError if the port is taken or the address not ours."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            if sys.platform == "linux":
                # The switch compares whole contributions; a checksum over 4096 bytes would only cost time.
                sock.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
                # The switch takes no fragments, so a packet too big for the interface must be an error, not be lost silently.
                # ICMP messages about the path are ignored: it has no router, and any stranger can send them.
                sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
            self._batch = open_datagrams(sock, local, remote)
        except BaseException:
            sock.close()
            raise

    @property
    def last_error(self) -> str | None:
        return self._batch.last_error

    def send(self, packets: Sequence[Packet]) -> None:
        self._batch.send(packets)

    def recv(self, timeout: float | None) -> list[memoryview]:
        return self._batch.recv(timeout)

    def fileno(self) -> int:
        return self._batch.fileno()

    def close(self) -> None:
        self._batch.close()
