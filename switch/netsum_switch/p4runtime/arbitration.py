"""Arbitration: the controllers connected to one device and their election ids."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2

from netsum_switch.p4runtime.status import RpcError, invalid

# The messages to one controller, passed from the threads that make them to the thread that writes the stream.


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


# As in the reference.
MAX_CONNECTIONS = 16


def election_value(message: Any) -> int:
    """A Uint128 message as an integer."""
    return int(message.high) << 64 | int(message.low)


class Connection:
    """One controller's stream that has sent a MasterArbitrationUpdate."""

    def __init__(self, election_id: int, outbox: Outbox) -> None:
        self.election_id = election_id
        self.outbox = outbox


class Arbitration:
    """The election of one device. The highest election id is primary; all controllers are told when the primary changes.

    As in the reference, roles are ignored (every controller is in the default role), and an election id may be 0 or
    missing. Thread-safe.
    """

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._lock = threading.Lock()
        self._connections: list[Connection] = []

    def add(self, connection: Connection) -> None:
        """Take a controller's first arbitration update. Raises RpcError: RESOURCE_EXHAUSTED with too many controllers,
        INVALID_ARGUMENT for an election id that is taken."""
        with self._lock:
            if len(self._connections) >= MAX_CONNECTIONS:
                raise RpcError(code_pb2.RESOURCE_EXHAUSTED, "Too many connections")
            if self._taken(connection.election_id):
                raise invalid("Election id already exists")
            self._connections.append(connection)
            self._sort()
            self._notify(connection, everyone=connection is self._primary())

    def update(self, connection: Connection, election_id: int) -> None:
        """Take a later arbitration update of the same stream. The same id changes nothing and gets no answer. Raises
        RpcError (INVALID_ARGUMENT) for an election id that another has; the caller then closes the stream."""
        with self._lock:
            if connection.election_id == election_id:
                return
            if self._taken(election_id):
                raise invalid("New election id already exists")
            was_primary = connection is self._primary()
            connection.election_id = election_id
            self._sort()
            self._notify(connection, everyone=was_primary != (connection is self._primary()))

    def remove(self, connection: Connection) -> None:
        """Remove a closed stream. If it was the primary's, the next controller takes over."""
        with self._lock:
            was_primary = connection is self._primary()
            self._connections.remove(connection)
            if was_primary:
                for other in self._connections:
                    self._send(other)

    def may_write(self, request: Any) -> bool:
        """True if a Write or SetForwardingPipelineConfig request comes from the primary.

        While no controller is connected, a request without an election id is served, as by the reference.
        """
        with self._lock:
            primary = self._primary()
            if primary is None:
                return not request.HasField("election_id")
            return primary.election_id == election_value(request.election_id)

    def is_empty(self) -> bool:
        """True if no controller is connected."""
        with self._lock:
            return not self._connections

    def is_primary(self, connection: Connection) -> bool:
        with self._lock:
            return connection is self._primary()

    def send_to_primary(self, message: Any) -> None:
        """Send a StreamMessageResponse to the primary, if there is one."""
        with self._lock:
            primary = self._primary()
        if primary is not None:
            primary.outbox.put(message)

    def _taken(self, election_id: int) -> bool:
        return any(other.election_id == election_id for other in self._connections)

    def _sort(self) -> None:
        self._connections.sort(key=lambda connection: -connection.election_id)

    def _primary(self) -> Connection | None:
        return self._connections[0] if self._connections else None

    def _notify(self, connection: Connection, *, everyone: bool) -> None:
        for other in self._connections if everyone else [connection]:
            self._send(other)

    def _send(self, connection: Connection) -> None:
        primary = self._connections[0]
        response = p4runtime_pb2.StreamMessageResponse()
        arbitration = response.arbitration
        arbitration.device_id = self._device_id
        arbitration.election_id.high = primary.election_id >> 64
        arbitration.election_id.low = primary.election_id & (1 << 64) - 1
        if connection is primary:
            arbitration.status.code = code_pb2.OK
            arbitration.status.message = "Is primary"
        else:
            arbitration.status.code = code_pb2.ALREADY_EXISTS
            arbitration.status.message = "Is backup"
        connection.outbox.put_control(response)
