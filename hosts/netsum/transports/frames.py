"""Ethernet frames carried in UDP datagrams on loopback: a link to a switch without root and without interfaces."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from netsum.frames import FrameFormat
from netsum.transports.base import Packet
from netsum.transports.sockets import SocketBatch


class FramesTransport:
    """One datagram is one frame, between ``local`` and the switch port's ``remote``."""

    def __init__(self, frame_format: FrameFormat, local: tuple[str, int], remote: tuple[str, int]) -> None:
        """``local`` and ``remote`` are (address, UDP port) of the link's ends. Raises OSError when ``local`` is taken."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            sock.bind(local)
            sock.connect(remote)
            self._batch = SocketBatch(sock)
        except BaseException:
            sock.close()
            raise
        self._format = frame_format

    @property
    def last_error(self) -> str | None:
        return self._batch.last_error

    def send(self, packets: Sequence[Packet]) -> None:
        prefix = self._format.prefix
        self._batch.send([(prefix(sum(map(len, packet))), *packet) for packet in packets])

    def recv(self, timeout: float | None) -> list[memoryview]:
        payload = self._format.payload
        return [packet for frame in self._batch.recv(timeout) if (packet := payload(frame)) is not None]

    def fileno(self) -> int:
        return self._batch.fileno()

    def close(self) -> None:
        self._batch.close()
