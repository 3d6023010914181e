"""A socket that carries whole frames: what the transports over UDP-carried and over raw frames share."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from netsum.frames import FrameFormat
from netsum.transports.base import Packet
from netsum.transports.sockets import SocketBatch


class FrameSocket:
    """Puts a member's packets into frames and takes them out of frames. Owns the socket."""

    def __init__(self, frame_format: FrameFormat, sock: socket.socket) -> None:
        """``sock`` is bound; one of its datagrams is one frame."""
        self._batch = SocketBatch(sock)
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
