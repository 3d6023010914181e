# SPDX-License-Identifier: MIT
"""Arbitration: the controllers connected to one device and their election ids."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2

from netsum_switch.p4runtime.status import RpcError, invalid

# The messages to one controller, passed from the threads that make them to the thread that writes the stream.


# Messages that may wait for a slow controller, and their bytes; more are dropped rather than fill the memory.
CAPACITY, CAPACITY_BYTES = 8192, 64 << 20


class Outbox:
    """A bounded queue that can be closed. Thread-safe."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._messages: deque[tuple[Any, int]] = deque()  # each with its size
        self._bytes = 0
        self._closed = False
        self._error: RpcError | None = None
        self.dropped = 0

    def put(self, message: Any) -> None:
        """Queue a PacketIn, a notification or an error; it is dropped and counted if the controller is too far behind."""
        size = message.ByteSize()
        with self._condition:
            if len(self._messages) >= CAPACITY or self._bytes + size > CAPACITY_BYTES:
                self.dropped += 1
                return
            self._append(message, size)

    def put_control(self, message: Any) -> None:
        """Queue an arbitration update. It is never dropped: there are only as many as changes of the primary."""
        with self._condition:
            self._append(message, message.ByteSize())

    def _append(self, message: Any, size: int) -> None:
        self._messages.append((message, size))
        self._bytes += size
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
                message, size = self._messages.popleft()
                self._bytes -= size
            yield message


# As in the reference, of all roles together.
MAX_CONNECTIONS = 16


def election_value(message: Any) -> int:
    """A Uint128 message as an integer."""
    return int(message.high) << 64 | int(message.low)


class Connection:
    """One controller's stream that has sent a MasterArbitrationUpdate; without an election id it is never primary."""

    def __init__(self, role: str, election_id: int | None, outbox: Outbox) -> None:
        self.role = role
        self.election_id = election_id
        self.outbox = outbox

    @property
    def rank(self) -> int:
        """The election id, or -1: less than any."""
        return -1 if self.election_id is None else self.election_id


@dataclass(slots=True)
class _Role:
    """The controllers of a role, the highest election id first. ``highest``: the primary's election id or, if the primary has
    taken a lower one, the one that it had: then ``is_vacant``, until a controller comes with that or a higher one."""

    connections: list[Connection] = field(default_factory=list)
    highest: int = -1
    is_vacant: bool = True

    @property
    def primary(self) -> Connection | None:
        return None if self.is_vacant else self.connections[0]

    def place(self, connection: Connection, *, was_primary: bool = False) -> bool:
        """Take a controller's new election id; True if that is news for all."""
        self.connections.sort(key=lambda each: -each.rank)
        if connection.rank >= max(self.highest, 0):
            self.highest, self.is_vacant = connection.rank, False
            return True
        self.is_vacant = self.is_vacant or was_primary
        return was_primary

    def leave(self, connection: Connection) -> bool:
        """Remove a controller; True if it was the primary."""
        was_primary = connection is self.primary
        self.connections.remove(connection)
        if was_primary:
            first = next(iter(self.connections), None)
            self.is_vacant = first is None or first.election_id is None
            if first is not None and not self.is_vacant:
                self.highest = first.rank
        return was_primary


class Arbitration:
    """The election of one device, for each role on its own. The highest election id is primary; all controllers of the role are
    told when the primary changes.

    Roles exist while controllers have them, the default one always; each has access to everything. As in the reference, the
    next highest takes over from a primary that leaves. The specification would have all controllers wait for an update with the
    highest election id so far; p4runtime-shell sends none, and every command with a higher id would lock it out. Thread-safe.
    """

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._lock = threading.Lock()
        self._roles: dict[str, _Role] = {}

    def add(self, connection: Connection) -> None:
        """Take a controller's first arbitration update. Raises RpcError: RESOURCE_EXHAUSTED with too many controllers,
        INVALID_ARGUMENT for an election id that is taken."""
        with self._lock:
            if sum(len(role.connections) for role in self._roles.values()) >= MAX_CONNECTIONS:
                raise RpcError(code_pb2.RESOURCE_EXHAUSTED, "Too many connections")
            if self._taken(connection, connection.election_id):
                raise invalid("Election id already exists")
            role = self._roles.setdefault(connection.role, _Role())
            role.connections.append(connection)
            self._notify(role, None if role.place(connection) else connection)

    def update(self, connection: Connection, election_id: int | None) -> None:
        """Take a later arbitration update of the same stream, and answer it. A primary that takes a lower id leaves the role
        without one. Raises RpcError (INVALID_ARGUMENT) for an election id that another has; the caller then closes the stream."""
        with self._lock:
            if self._taken(connection, election_id):
                raise invalid("New election id already exists")
            role = self._roles[connection.role]
            was_primary = connection is role.primary
            connection.election_id = election_id
            self._notify(role, None if role.place(connection, was_primary=was_primary) else connection)

    def remove(self, connection: Connection) -> None:
        """Remove a closed stream. If it was the primary's, the next controller takes over."""
        with self._lock:
            role = self._roles[connection.role]
            was_primary = role.leave(connection)
            if not role.connections:
                del self._roles[connection.role]
            elif was_primary:
                self._notify(role, None)

    def check_writer(self, request: Any) -> None:
        """Check that a Write or SetForwardingPipelineConfig request is the primary's. Raises RpcError: NOT_FOUND for a role that
        no controller has, PERMISSION_DENIED for the request of another."""
        with self._lock:
            if request.role and request.role not in self._roles:
                raise RpcError(code_pb2.NOT_FOUND, f"No controller has the role {request.role}")
            primary = self._roles.get(request.role, _Role()).primary
        if primary is None or not request.HasField("election_id") or primary.rank != election_value(request.election_id):
            raise RpcError(code_pb2.PERMISSION_DENIED, "Not primary")

    def is_primary(self, connection: Connection) -> bool:
        with self._lock:
            return connection is self._roles[connection.role].primary

    def send_to_primary(self, message: Any) -> None:
        """Send a StreamMessageResponse to the primary of each role."""
        with self._lock:
            primaries = [role.primary for role in self._roles.values()]
        for primary in primaries:
            if primary is not None:
                primary.outbox.put(message)

    def _taken(self, connection: Connection, election_id: int | None) -> bool:
        others = self._roles.get(connection.role, _Role()).connections
        return election_id is not None and any(each.election_id == election_id for each in others if each is not connection)

    def _notify(self, role: _Role, only: Connection | None) -> None:
        """Tell one controller of a role, or all, who is primary."""
        for each in role.connections if only is None else [only]:
            self._send(role, each)

    def _send(self, role: _Role, connection: Connection) -> None:
        primary = role.primary
        response = p4runtime_pb2.StreamMessageResponse()
        arbitration = response.arbitration
        arbitration.device_id = self._device_id
        if connection.role:
            arbitration.role.name = connection.role
        if role.highest >= 0:
            arbitration.election_id.high = role.highest >> 64
            arbitration.election_id.low = role.highest & (1 << 64) - 1
        if primary is None:
            arbitration.status.code = code_pb2.NOT_FOUND
            arbitration.status.message = "There is no primary"
        elif connection is primary:
            arbitration.status.code = code_pb2.OK
            arbitration.status.message = "Is primary"
        else:
            arbitration.status.code = code_pb2.ALREADY_EXISTS
            arbitration.status.message = "Is backup"
        connection.outbox.put_control(response)
