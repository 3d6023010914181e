"""Packets handed over inside one process: for tests, and for driving a pure model of the switch."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from netsum.packet_batch import ReceiveBatch
from netsum.transports.base import Packet
from netsum.transports.peer_filter import Address
from netsum.transports.sockets import BATCH


class InMemoryTransport:
    """One end. Packets are passed to ``deliver`` as bytes, in the sender's thread; :meth:`put` fills the inbox."""

    def __init__(self, deliver: Callable[[bytes], None] | None = None) -> None:
        self.deliver = deliver
        self._inbox: deque[bytes] = deque()
        self._arrived = threading.Condition()
        self._closed = False
        self.groups: set[Address] = set()

    def join(self, group: Address) -> None:
        """See :class:`netsum.transports.multicast.Joins`. Whoever fills the inbox looks at ``groups``."""
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
