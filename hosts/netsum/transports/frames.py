"""Ethernet frames carried in UDP datagrams on loopback: a link to a switch without root and without interfaces."""

from __future__ import annotations

import socket

from netsum.frames import FrameFormat
from netsum.transports.frame_socket import FrameSocket


class FramesTransport(FrameSocket):
    """One datagram is one frame, between ``local`` and the switch port's ``remote``."""

    def __init__(self, frame_format: FrameFormat, local: tuple[str, int], remote: tuple[str, int]) -> None:
        """``local`` and ``remote`` are (address, UDP port) of the link's ends. Raises OSError when ``local`` is taken."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            sock.bind(local)
            sock.connect(remote)
            super().__init__(frame_format, sock)
        except BaseException:
            sock.close()
            raise
