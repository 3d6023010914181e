# SPDX-License-Identifier: MIT
"""PacketReplicationEngineEntry: multicast groups and clone sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2

from netsum_switch.native.layout import PORT_NUMBERS
from netsum_switch.p4runtime.status import RpcError, check_type, encode, invalid
from netsum_switch.replication import ReplicationEngine

# The reference uses group ids from here on for its clone sessions.
FIRST_RESERVED_GROUP = 1 << 15
MAX_SESSION = 1 << 15

_HIGHEST_INSTANCE = (1 << 16) - 1  # of egress_rid

# Limits of simple_switch_grpc, clone sessions included: groups, and (group, replica id) pairs.
MAX_GROUPS = 4096
MAX_NODES = 4096


@dataclass(frozen=True, slots=True, order=True)
class ReplicaPort:
    """A replica's port. `is_bytes`: it was written to the field `port`, not to the old `egress_port`."""

    number: int
    is_bytes: bool


@dataclass(slots=True)
class ReplicationGroup:
    """Ports by replica id, and what a controller attached to a multicast group."""

    ports: dict[int, set[ReplicaPort]]
    metadata: bytes = b""

    def replicas(self) -> list[tuple[int, int]]:
        """(port, replica id) in the order in which copies are made, which is unspecified."""
        return [  # of the ports that BMv2's replication engine has: it silently ignores others
            (number, rid)
            for rid in sorted(self.ports)
            for number in sorted(port.number for port in self.ports[rid] if port.number < PORT_NUMBERS)
        ]


@dataclass(slots=True)
class Session:
    """A clone session: its replicas and the settings that are read back."""

    group: ReplicationGroup
    packet_length_bytes: int
    class_of_service: int


class Replication:
    """The replication engine of one pipeline as controllers see it.

    The caller serializes calls, and writes while the pipeline is `changing`.
    """

    def __init__(self, engine: ReplicationEngine, classes: int = 1) -> None:
        """``classes``: of service, which are the priority queues of a port."""
        self._engine = engine
        self._classes = classes
        self._groups: dict[int, ReplicationGroup] = {}
        self._sessions: dict[int, Session] = {}

    def write(self, update_type: int, entry: Any) -> None:
        """Carry out one update of a PacketReplicationEngineEntry. Raises RpcError if it is refused."""
        kind = entry.WhichOneof("type")
        if kind == "multicast_group_entry":
            self._write_group(update_type, entry.multicast_group_entry)
        elif kind == "clone_session_entry":
            self._write_session(update_type, entry.clone_session_entry)
        else:
            raise invalid("Invalid PRE operation")

    def read(self, entry: Any, response: Any) -> None:
        """Append one group or session, or all if the id is 0. Raises RpcError: NOT_FOUND, OUT_OF_RANGE or INVALID_ARGUMENT."""
        kind = entry.WhichOneof("type")
        if kind == "multicast_group_entry":
            self._read_groups(entry.multicast_group_entry.multicast_group_id, response)
        elif kind == "clone_session_entry":
            self._read_sessions(entry.clone_session_entry.session_id, response)
        else:
            raise invalid("Invalid PRE operation")

    def _write_group(self, update_type: int, entry: Any) -> None:
        group_id = entry.multicast_group_id
        if group_id == 0:
            raise invalid("0 is not a valid group id")
        if group_id >= FIRST_RESERVED_GROUP:
            raise RpcError(code_pb2.OUT_OF_RANGE, "Group id value is too high")
        check_type(update_type)
        if update_type == p4runtime_pb2.Update.INSERT:
            if group_id in self._groups:
                raise RpcError(code_pb2.ALREADY_EXISTS, "Multicast group already exists")
            self._groups[group_id] = self._new_group(entry)
        elif group_id not in self._groups:
            raise RpcError(code_pb2.NOT_FOUND, "Multicast group does not exist")
        elif update_type == p4runtime_pb2.Update.MODIFY:
            self._groups[group_id] = self._new_group(entry, self._groups[group_id])
        else:
            del self._groups[group_id]
            self._engine.delete_group(group_id)
            return
        self._engine.set_group(group_id, self._groups[group_id].replicas())

    def _write_session(self, update_type: int, entry: Any) -> None:
        session_id = entry.session_id
        if session_id == 0:
            raise invalid("0 is not a valid session id")
        check_type(update_type)
        if session_id >= MAX_SESSION:
            raise invalid("Clone session id out-of-range")
        old = self._sessions.get(session_id)
        if update_type == p4runtime_pb2.Update.INSERT:
            if old is not None:
                raise RpcError(code_pb2.ALREADY_EXISTS, "Clone session id already exists")
        elif old is None:
            raise RpcError(code_pb2.NOT_FOUND, "Clone session id does not exist")
        if update_type == p4runtime_pb2.Update.DELETE:
            del self._sessions[session_id]
            self._engine.delete_clone_session(session_id)
            return
        if entry.class_of_service >= self._classes:
            raise invalid(f"class_of_service {entry.class_of_service}: clones have {self._classes}, one for each priority queue")
        if entry.packet_length_bytes < 0:
            raise invalid("packet_length_bytes cannot be negative")
        group = self._new_group(entry, None if old is None else old.group)
        self._sessions[session_id] = Session(group, entry.packet_length_bytes, entry.class_of_service)
        self._engine.set_clone_session(session_id, group.replicas(), entry.packet_length_bytes, entry.class_of_service)

    def _new_group(self, entry: Any, old: ReplicationGroup | None = None) -> ReplicationGroup:
        """The group that a message's replicas describe, which replaces `old`. Raises RpcError: INVALID_ARGUMENT or OUT_OF_RANGE
        for a port or an instance that cannot be, or a duplicate replica; UNIMPLEMENTED for backup replicas; RESOURCE_EXHAUSTED if
        there is no room."""
        ports: dict[int, set[ReplicaPort]] = {}
        for replica in entry.replicas:
            port = _read_port(replica)
            if replica.instance > _HIGHEST_INSTANCE:
                raise invalid(f"The instance of a replica is at most {_HIGHEST_INSTANCE}, not {replica.instance}")
            of_rid = ports.setdefault(replica.instance, set())
            if any(each.number == port.number for each in of_rid):
                raise invalid("Duplicate replica in multicast group")
            of_rid.add(port)
            _check_backups(replica)
        others = [*self._groups.values(), *(session.group for session in self._sessions.values())]
        if old is None and len(others) >= MAX_GROUPS:
            raise RpcError(code_pb2.RESOURCE_EXHAUSTED, f"There is room for {MAX_GROUPS} groups and clone sessions together")
        nodes = sum(len(group.ports) for group in others if group is not old)
        if nodes + len(ports) > MAX_NODES:
            raise RpcError(code_pb2.RESOURCE_EXHAUSTED, f"There is room for {MAX_NODES} pairs of a group and an instance")
        return ReplicationGroup(ports, getattr(entry, "metadata", b""))

    def _read_groups(self, group_id: int, response: Any) -> None:
        if group_id >= FIRST_RESERVED_GROUP:
            raise RpcError(code_pb2.OUT_OF_RANGE, "Group id value is too high")
        if group_id and group_id not in self._groups:
            raise RpcError(code_pb2.NOT_FOUND, "Multicast group does not exist")
        for each in [group_id] if group_id else sorted(self._groups):
            message = response.entities.add().packet_replication_engine_entry.multicast_group_entry
            message.multicast_group_id = each
            message.metadata = self._groups[each].metadata
            _write_replicas(self._groups[each], message.replicas)

    def _read_sessions(self, session_id: int, response: Any) -> None:
        if session_id and session_id not in self._sessions:
            raise RpcError(code_pb2.NOT_FOUND, "Clone session id does not exist")
        for each in [session_id] if session_id else sorted(self._sessions):
            session = self._sessions[each]
            message = response.entities.add().packet_replication_engine_entry.clone_session_entry
            message.session_id = each
            message.packet_length_bytes = session.packet_length_bytes
            message.class_of_service = session.class_of_service
            _write_replicas(session.group, message.replicas)


def _read_port(replica: Any) -> ReplicaPort:
    kind = replica.WhichOneof("port_kind")
    if kind == "egress_port":
        return ReplicaPort(replica.egress_port, is_bytes=False)
    if kind != "port":
        raise invalid("Missing port in multicast group replica")
    if not replica.port:
        raise invalid("Port must not be the empty string")
    number = int.from_bytes(replica.port, "big")
    if number >> 32:
        raise RpcError(code_pb2.OUT_OF_RANGE, "A port has at most 32 bits")
    if number == 0 or number >> 31:  # those from there on are P4Runtime's own: the CPU, recirculation
        raise invalid("Port must be non-negative.")
    return ReplicaPort(number, is_bytes=True)


def _check_backups(replica: Any) -> None:
    """Refuse backup replicas (P4Runtime 1.5), which are unknown fields of this version's messages. Raises RpcError
    (UNIMPLEMENTED)."""
    known = p4runtime_pb2.Replica()
    known.CopyFrom(replica)
    known.DiscardUnknownFields()
    if known.SerializeToString() != replica.SerializeToString():
        raise RpcError(code_pb2.UNIMPLEMENTED, "Backup replicas are not supported")


def _write_replicas(group: ReplicationGroup, replicas: Any) -> None:
    for rid in sorted(group.ports):
        for port in sorted(group.ports[rid]):
            replica = replicas.add(instance=rid)
            if port.is_bytes:
                replica.port = encode(port.number)
            else:
                replica.egress_port = port.number
