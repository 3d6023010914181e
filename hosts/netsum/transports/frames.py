"""Ethernet frames carried in UDP datagrams on loopback: a link to a switch without root and without interfaces."""

from __future__ import annotations

from collections.abc import Sequence

from netsum.frames import FrameFormat
from netsum.transports.base import Packet
from netsum.transports.loopback import Inbox, LoopbackWire
from netsum.transports.peer_filter import Address


class FramesTransport:
    """Each datagram is one frame between ``local`` and the switch port's ``remote``. Several members of one process may share the
    same wire."""

    def __init__(self, frame_format: FrameFormat, local: Address, remote: Address) -> None:
        """``local`` and ``remote`` are the link's ends as (address, UDP port). Raises OSError if another process has
        ``local``."""
        self._inbox = Inbox(frame_format)
        self._wire = LoopbackWire.attach(local, remote, self._inbox)

    @property
    def last_error(self) -> str | None:
        return self._wire.batch.last_error

    def join(self, group: Address) -> None:
        """See :class:`netsum.transports.multicast.Joins`."""
        self._inbox.format.join(group)

    def send(self, packets: Sequence[Packet]) -> None:
        self._wire.send(packets, self._inbox.format)

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        return self._wire.recv(self._inbox, timeout)

    def fileno(self) -> int:
        return self._wire.batch.fileno()

    def close(self) -> None:
        self._wire.detach(self._inbox)
