"""One end of a wire shared by several members of this process: those of two jobs, or of a job's groups, on a rootless host. It is
one UDP socket; whoever receives passes the others' frames on to them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Final

from netsum.fork_guard import in_child
from netsum.frames import FrameFormat
from netsum.packet_batch import ReceiveBatch, congested
from netsum.transports.base import Packet
from netsum.transports.peer_filter import Address
from netsum.transports.sockets import Datagrams

_SLICE: Final = 0.001
"""Seconds that a member waits while another one receives, before it checks whether to receive itself."""


class Inbox:
    """What arrived for one member while another one was receiving."""

    def __init__(self, frame_format: FrameFormat) -> None:
        self.format = frame_format
        self.packets: deque[bytes] = deque()
        self.congested = 0
        self.filled = threading.Event()

    def drain(self) -> Sequence[memoryview]:
        self.filled.clear()
        drained = []
        while self.packets:
            drained.append(memoryview(self.packets.popleft()))
        marked, self.congested = self.congested, 0
        return ReceiveBatch.of(drained, marked) if marked else drained


class LoopbackWire:
    """A socket between ``local`` and ``remote``, and its users. Made by :meth:`attach`."""

    _open: ClassVar[dict[tuple[Address, Address], LoopbackWire]] = {}
    _guard: ClassVar = threading.Lock()

    def __init__(self, ends: tuple[Address, Address]) -> None:
        self._ends = ends
        self.batch = Datagrams(*ends)
        self._users: tuple[Inbox, ...] = ()
        self._receiving = threading.Lock()
        self._sending = threading.Lock()

    @classmethod
    def attach(cls, local: Address, remote: Address, inbox: Inbox) -> LoopbackWire:
        """The wire between these ends, opened if nobody in this process has it yet. OSError if another process has it."""
        with cls._guard:
            wire = cls._open.get((local, remote)) or cls((local, remote))
            cls._open[local, remote] = wire
            wire._users += (inbox,)
            return wire

    @classmethod
    def forget(cls) -> None:
        """In a forked child: its parent's wires are not its own."""
        cls._open, cls._guard = {}, threading.Lock()

    def detach(self, inbox: Inbox) -> None:
        """Stop using the wire; the last user closes it. May be called twice."""
        with self._guard:
            if inbox not in self._users:
                return
            self._users = tuple(user for user in self._users if user is not inbox)
            if not self._users:
                del self._open[self._ends]
                self.batch.close()

    def send(self, packets: Sequence[Packet], frame_format: FrameFormat) -> None:
        with self._sending:
            self.batch.send(packets, frame_format)

    def recv(self, inbox: Inbox, timeout: float | None) -> Sequence[memoryview]:
        """Packets for this member, as :meth:`netsum.transports.base.Transport.recv`."""
        if inbox.packets:
            return inbox.drain()
        if not self._receiving.acquire(blocking=False):
            inbox.filled.wait(_SLICE if timeout is None else min(timeout, _SLICE))
            return inbox.drain()
        try:
            if len(self._users) == 1:
                return inbox.format.payloads(self.batch.recv(timeout))
            return self._sort(inbox, timeout)
        finally:
            self._receiving.release()

    def _sort(self, inbox: Inbox, timeout: float | None) -> Sequence[memoryview]:
        # Only briefly, because the others wait for us; and copies, because the next to receive reuses the buffers.
        frames = self.batch.recv(_SLICE if timeout is None else min(timeout, _SLICE))
        for user in self._users:
            packets = user.format.payloads(frames)
            user.congested += congested(packets)
            for packet in packets:
                user.packets.append(bytes(packet))
                user.filled.set()
        return inbox.drain()


in_child(LoopbackWire.forget)
