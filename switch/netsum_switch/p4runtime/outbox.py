"""The messages to one controller, passed from the threads that make them to the thread that writes the stream."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from netsum_switch.p4runtime.status import RpcError

# PacketIns and digests that may wait for a slow controller; more are dropped rather than fill the memory.
CAPACITY = 8192


class Outbox:
    """A bounded queue that can be closed. Thread-safe."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._messages: deque[Any] = deque()
        self._closed = False
        self._error: RpcError | None = None
        self.dropped = 0

    def put(self, message: Any) -> None:
        """Queue a PacketIn or a digest; it is dropped and counted if the controller is too far behind."""
        with self._condition:
            if len(self._messages) >= CAPACITY:
                self.dropped += 1
                return
            self._messages.append(message)
            self._condition.notify()

    def put_control(self, message: Any) -> None:
        """Queue an arbitration update. It is never dropped: there are only as many as changes of the primary."""
        with self._condition:
            self._messages.append(message)
            self._condition.notify()

    def close(self, error: RpcError | None = None) -> None:
        """Take no more messages: those queued are still sent, then the stream ends, with `error` if there is one."""
        with self._condition:
            if not self._closed:
                self._closed = True
                self._error = error
            self._condition.notify()

    def drain(self) -> Iterator[Any]:
        """Yield the messages until the outbox is closed. Raises the RpcError that it was closed with."""
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._messages or self._closed)
                if not self._messages:
                    if self._error is not None:
                        raise self._error
                    return
                message = self._messages.popleft()
            yield message
