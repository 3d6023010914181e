"""The kernel's UDP socket: how a member reaches a switch on a real network."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Sequence

from netsum.transports.base import Packet
from netsum.transports.sockets import SocketBatch

_SO_NO_CHECK = 11
_IP_MTU_DISCOVER = 10
_IP_PMTUDISC_DO = 2


class UdpTransport:
    """A UDP socket bound to the member's own port and connected to the switch, so that the kernel drops all else."""

    def __init__(self, local: tuple[str, int], remote: tuple[str, int]) -> None:
        """``local`` and ``remote`` are (IPv4 address, port). Raises OSError when the port is taken or not ours."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            if sys.platform == "linux":
                # The switch compares whole contributions; a checksum over 4096 bytes would only cost time.
                sock.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
                # The switch takes no fragments: too big is an error here, not a silence there.
                sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
            sock.bind(local)
            with contextlib.suppress(ConnectionRefusedError):
                sock.connect(remote)
            self._batch = SocketBatch(sock)
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
