# SPDX-License-Identifier: MIT
"""Transports without a network, for tests."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from netsum.fork_guard import in_child
from netsum.frames import FrameFormat
from netsum.packet_batch import ReceiveBatch, congested
from netsum.transports.base import Packet
from netsum.transports.peer_filter import Address
from netsum.transports.sockets import BATCH, Datagrams

# Packets handed over inside one process: for tests, and for driving a pure model of the switch.


class InMemoryTransport:
    """One end. Packets are passed to ``deliver`` as bytes, in the sender's thread; :meth:`put` fills the inbox."""

    def __init__(self, deliver: Callable[[bytes], None] | None = None) -> None:
        self.deliver = deliver
        self._inbox: deque[bytes] = deque()
        self._arrived = threading.Condition()
        self._closed = False
        self.groups: set[Address] = set()

    def join(self, group: Address) -> None:
        """See :class:`netsum.transports.udp.Joins`. The sender looks at ``groups``."""
        self.groups.add(group)

    def put(self, packet: bytes) -> None:
        """Give this end a packet to receive; may be called from any thread."""
        with self._arrived:
            self._inbox.append(packet)
            self._arrived.notify()

    def send(self, packets: Sequence[Packet]) -> None:
        if self._closed:
            raise OSError("the transport is closed")
        if self.deliver is not None:
            for packet in packets:
                self.deliver(b"".join(packet))

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._arrived:
            while not self._inbox:
                left = None if deadline is None else deadline - time.monotonic()
                if (left is not None and left <= 0) or self._closed:
                    return []
                self._arrived.wait(left)
            count = min(len(self._inbox), BATCH)
            return ReceiveBatch.of([self._inbox.popleft() for _ in range(count)])

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()


def in_memory_pair() -> tuple[InMemoryTransport, InMemoryTransport]:
    """Two connected ends."""
    left, right = InMemoryTransport(), InMemoryTransport()
    left.deliver, right.deliver = right.put, left.put
    return left, right


# One end of a wire shared by several members of this process: those of two jobs, or of a job's groups, on a rootless
# host. It is one UDP socket; the thread that receives passes the others' frames on to them.


_SLICE: Final = 0.001
"""Seconds that a member waits while another one receives, before it checks whether to receive itself."""


class Inbox:
    """Packets that arrived for one member while another one was receiving."""

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
        """The wire between these ends, opened if no thread of this process has it yet. OSError if another process has it."""
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
