# SPDX-License-Identifier: MIT
"""A small P4Runtime server that keeps entities as protobufs, and fails where a test wants it to.

It answers as simple_switch_grpc does where the controller can tell: the same codes and texts for arbitration and a
missing pipeline, batches that go on after an error, port numbers in replicas as they were given. It forwards nothing.
"""

# ruff: noqa: N802, ARG002 - gRPC calls the methods, by these names and with these arguments

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, status_pb2
from netsum.wire.schema import RECORD_BITS, RECORD_FIELDS
from netsum_controller.p4runtime.p4info import netsum_program
from netsum_p4runtime import p4runtime_pb2 as p4
from netsum_p4runtime import p4runtime_pb2_grpc

FailUpdate = Callable[[Any], str | None]
"""Looks at an Update; a text makes it fail."""


def pack_record(**values: int) -> bytes:
    """A block record as the switch keeps it; fields that are not given are 0."""
    raw = 0
    for field in RECORD_FIELDS:
        raw = raw << field.bits | values.pop(field.name, 0)
    assert not values, f"a record has no {values}"
    return raw.to_bytes(RECORD_BITS // 8, "big")


def touches(update: Any, table: str) -> bool:
    """True if an update is of a table; those of groups are of the ``multicast group``."""
    if table == "multicast group":
        return bool(update.entity.HasField("packet_replication_engine_entry"))
    return bool(update.entity.table_entry.table_id == netsum_program().object_id("tables", table))


class FakeSwitch(p4runtime_pb2_grpc.P4RuntimeServicer):  # type: ignore[misc]
    """Start it with :meth:`start`. Knobs: ``fail_update``, ``refuse_first_streams``, ``lose_packet_ins``, ``hold_packet_ins``."""

    def __init__(self, address: str, device_id: int = 1, credentials: grpc.ServerCredentials | None = None) -> None:
        self.address = address
        self.device_id = device_id
        self._credentials = credentials
        self._server: grpc.Server | None = None
        self._lock = threading.RLock()
        self.fail_update: FailUpdate = lambda _: None
        self.on_write: Callable[[Any], None] = lambda _: None
        """Called with every WriteRequest before it is carried out."""
        self.answering = threading.Event()
        """While it is not set the switch hangs: connections stay open, and nothing is answered."""
        self.answering.set()
        self.refuse_first_streams = 0
        self.lose_packet_ins = 0
        self.hold_packet_ins = 0
        """How many PacketIns are held back until just before the next one."""
        self._held: list[Any] = []
        self.cookies_read = 0
        self.entities_read = 0
        """How many entries and groups were returned, in all."""
        self.requests = 0
        """How many Reads and Writes came."""
        self.scans: list[bytes] = []
        """The frame of every scan that came from the primary."""
        self.scans_close = 0
        """How many blocks the next scan claims to have closed."""
        self.age = 0
        """The age of every block, as a query returns it."""
        self.writes: list[Any] = []
        """Every update that was carried out, in order."""
        self._streams: list[_FakeStream] = []
        self._forget()

    def _forget(self) -> None:
        self.config: Any = None
        self.rows: dict[tuple[Any, ...], Any] = {}
        self.groups: dict[int, Any] = {}
        self.counters: dict[tuple[int, int], int] = {}
        self.counted_bytes: dict[tuple[int, int], int] = {}
        self.packets_let_in: dict[tuple[Any, ...], int] = {}
        self.octets_let_in: dict[tuple[Any, ...], int] = {}
        self.records: dict[int, bytes] = {}
        self.claimed = 0

    def start(self) -> FakeSwitch:
        """Serve on the address."""
        options = [("grpc.max_receive_message_length", -1)]
        self._server = grpc.server(futures.ThreadPoolExecutor(16), interceptors=[_Hanging(self)], options=options)
        p4runtime_pb2_grpc.add_P4RuntimeServicer_to_server(self, self._server)
        if self._credentials is None:
            self._server.add_insecure_port(self.address)
        else:
            port = self._server.add_secure_port(self.address, self._credentials)
            self.address = f"{self.address.rpartition(':')[0]}:{port}"
        self._server.start()
        return self

    def stop(self) -> None:
        """Stop serving; what is installed stays until :meth:`restart`."""
        self.answering.set()
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None

    def restart(self) -> None:
        """Restart as a process would: everything is forgotten."""
        self.stop()
        self._streams.clear()
        self._forget()
        self.start()

    @property
    def is_up(self) -> bool:
        return self._server is not None

    @property
    def installed(self) -> set[bytes]:
        """Everything that is installed, for comparing before and after."""
        with self._lock:
            rows = {row.SerializeToString(deterministic=True) for row in self.rows.values()}
            return rows | {b"group" + group.SerializeToString(deterministic=True) for group in self.groups.values()}

    def let_in(self, packets: dict[int, int], octets: dict[int, int] | None = None) -> None:
        """Set what the member entries have counted, by source; entries that are not given have counted nothing."""
        table = netsum_program().object_id("tables", "member")
        source = netsum_program()._key("member")["src_id"].id
        for key in self.rows:
            if key[0] == table:
                of = int.from_bytes(dict(key[1:])[source], "big")
                self.packets_let_in[key], self.octets_let_in[key] = packets.get(of, 0), (octets or {}).get(of, 0)

    # -- RPCs

    def Capabilities(self, request: Any, context: grpc.ServicerContext) -> Any:
        return p4.CapabilitiesResponse(p4runtime_api_version="1.4.0")

    def StreamChannel(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        stream = _FakeStream(self, context)
        context.add_callback(stream.end)
        threading.Thread(target=stream.read, args=(requests,), daemon=True).start()
        yield from stream.answers()

    def _primary(self) -> _FakeStream | None:
        return max(self._streams, key=lambda stream: stream.election_id, default=None)

    def _require_primary(self, request: Any, context: grpc.ServicerContext) -> None:
        primary = self._primary()
        if primary is None or primary.election_id != (request.election_id.high, request.election_id.low):
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "Not primary")

    def _require_pipeline(self, context: grpc.ServicerContext) -> None:
        if self.config is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set for this device")

    def SetForwardingPipelineConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._lock:
            self._require_primary(request, context)
            self._forget()
            self.config = request.config
            return p4.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._require_pipeline(context)
        answer = p4.GetForwardingPipelineConfigResponse()
        if request.response_type == p4.GetForwardingPipelineConfigRequest.COOKIE_ONLY:
            self.cookies_read += 1
            answer.config.cookie.CopyFrom(self.config.cookie)
        else:
            answer.config.CopyFrom(self.config)
            if request.response_type == p4.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE:
                answer.config.ClearField("p4_device_config")
        return answer

    def Write(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.on_write(request)
        with self._lock:
            self.requests += 1
            self._require_primary(request, context)
            self._require_pipeline(context)
            errors = [self._update(update) for update in request.updates]
        if any(code for code, _ in errors):
            status = status_pb2.Status(code=code_pb2.UNKNOWN)
            for code, text in errors:
                detail = any_pb2.Any()
                detail.Pack(p4.Error(canonical_code=code, message=text))
                status.details.append(detail)
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(grpc.StatusCode.UNKNOWN, "")
        return p4.WriteResponse()

    def _update(self, update: Any) -> tuple[int, str]:
        failure = self.fail_update(update)
        if failure is not None:
            return code_pb2.RESOURCE_EXHAUSTED, failure
        entity = update.entity
        if entity.HasField("counter_entry"):
            entry = entity.counter_entry
            self.counters[entry.counter_id, entry.index.index] = entry.data.packet_count
            return code_pb2.OK, ""
        store: dict[Any, Any]
        key: Any
        if entity.HasField("table_entry"):
            store, key, value = self.rows, _row_key(entity.table_entry), entity.table_entry
        else:
            value = entity.packet_replication_engine_entry.multicast_group_entry
            store, key = self.groups, value.multicast_group_id
        if update.type == p4.Update.INSERT and key in store:
            return code_pb2.ALREADY_EXISTS, "Match entry exists, use MODIFY if you wish to change action"
        if update.type != p4.Update.INSERT and key not in store:
            return code_pb2.NOT_FOUND, "Cannot find match entry"
        if update.type == p4.Update.DELETE:
            del store[key]
        else:
            store[key] = value
        self.writes.append(update)
        return code_pb2.OK, ""

    def Read(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        with self._lock:
            self.requests += 1
            self._require_pipeline(context)
            answer = p4.ReadResponse()
            for entity in request.entities:
                answer.entities.extend(self._read(entity, context))
        yield answer

    def _read(self, entity: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        if entity.HasField("table_entry"):
            asked = entity.table_entry
            keys = [_row_key(asked)] if asked.match else [key for key in self.rows if key[0] == asked.table_id]
            for key in keys:
                if (row := self.rows.get(key)) is not None:
                    self.entities_read += 1
                    found = p4.Entity(table_entry=row)
                    if entity.table_entry.HasField("counter_data"):
                        found.table_entry.counter_data.packet_count = self.packets_let_in.get(key, 0)
                        found.table_entry.counter_data.byte_count = self.octets_let_in.get(key, 0)
                    yield found
        elif entity.HasField("counter_entry"):
            found = p4.Entity(counter_entry=entity.counter_entry)
            key = (entity.counter_entry.counter_id, entity.counter_entry.index.index)
            found.counter_entry.data.packet_count = self.counters.get(key, 0)
            found.counter_entry.data.byte_count = self.counted_bytes.get(key, 0)
            yield found
        elif entity.HasField("packet_replication_engine_entry"):
            group_id = entity.packet_replication_engine_entry.multicast_group_entry.multicast_group_id
            if group_id and group_id not in self.groups:
                context.abort(grpc.StatusCode.NOT_FOUND, "Multicast group does not exist")
            for group in [self.groups[group_id]] if group_id else self.groups.values():
                self.entities_read += 1
                found = p4.Entity()
                found.packet_replication_engine_entry.multicast_group_entry.CopyFrom(group)
                yield found
        else:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Register reads are not supported yet")


class _Hanging(grpc.ServerInterceptor):  # type: ignore[misc]
    """Lets no call in while the switch hangs."""

    def __init__(self, switch: FakeSwitch) -> None:
        self._switch = switch

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        self._switch.answering.wait()
        return continuation(handler_call_details)


def _row_key(row: Any) -> tuple[Any, ...]:
    return (
        row.table_id,
        *sorted((match.field_id, match.exact.value or match.lpm.SerializeToString()) for match in row.match),
    )


class _FakeStream:
    """One stream: arbitration, queries for records, and scans."""

    def __init__(self, switch: FakeSwitch, context: grpc.ServicerContext) -> None:
        self._switch = switch
        self._context = context
        self._ready = threading.Condition()
        self._outbox: list[Any] = []
        self._ended = False
        self._refusal: str | None = None
        self.election_id = (0, 0)

    def answers(self) -> Iterator[Any]:
        while True:
            with self._ready:
                self._ready.wait_for(lambda: self._outbox or self._ended)
                if not self._outbox:
                    break
                message = self._outbox.pop(0)
            yield message
        if self._refusal is not None:
            self._context.abort(grpc.StatusCode.INVALID_ARGUMENT, self._refusal)

    def say(self, message: Any) -> None:
        with self._ready:
            self._outbox.append(message)
            self._ready.notify()

    def end(self) -> None:
        with self._switch._lock:
            if self in self._switch._streams:
                self._switch._streams.remove(self)
                self._notify_all()
        with self._ready:
            self._ended = True
            self._ready.notify()

    def read(self, requests: Iterator[Any]) -> None:
        try:
            for message in requests:
                if message.HasField("arbitration"):
                    self._arbitrate(message.arbitration)
                elif message.HasField("packet"):
                    self._query(message.packet)
        except grpc.RpcError:
            pass  # the client left
        self.end()

    def _arbitrate(self, arbitration: Any) -> None:
        switch = self._switch
        election_id = (arbitration.election_id.high, arbitration.election_id.low)
        with switch._lock:
            taken = any(other.election_id == election_id for other in switch._streams if other is not self)
            if taken or switch.refuse_first_streams > 0:
                switch.refuse_first_streams -= 1
                self._refusal = "Election id already exists"
                self.end()
                return
            self.election_id = election_id
            if self not in switch._streams:
                switch._streams.append(self)
            self._notify_all()

    def _notify_all(self) -> None:
        primary = self._switch._primary()
        for stream in self._switch._streams:
            message = p4.StreamMessageResponse()
            message.arbitration.device_id = self._switch.device_id
            assert primary is not None
            message.arbitration.election_id.high, message.arbitration.election_id.low = primary.election_id
            message.arbitration.status.code = code_pb2.OK if stream is primary else code_pb2.ALREADY_EXISTS
            stream.say(message)

    def _query(self, packet: Any) -> None:
        switch = self._switch
        with switch._lock:
            if switch._primary() is not self or switch.config is None:
                return
            if switch.lose_packet_ins > 0:
                switch.lose_packet_ins -= 1
                return
            fields = {meta.preamble.name: meta.metadata for meta in switch.config.p4info.controller_packet_metadata}
            names = {field.id: field.name for field in fields["packet_out"]}
            given = {names[item.metadata_id]: item.value for item in packet.metadata}
            slot = int.from_bytes(given["slot"], "big")
            if given["kind"] == b"\x02":
                high, low = (switch.claimed.to_bytes(4, "big")[at : at + 2] for at in (0, 2))
                switch.claimed = max(switch.claimed, slot << 16 | int.from_bytes(given["closed"], "big"))
                given.update(slot=high, closed=low)
            elif given["kind"] == b"\x01":
                switch.scans.append(packet.payload)
                given["closed"] = switch.scans_close.to_bytes(2, "big")
                switch.scans_close = 0
            else:
                given["closed"] = switch.age.to_bytes(2, "big")
            answer = p4.StreamMessageResponse()
            answer.packet.payload = switch.records.get(slot, bytes(RECORD_BITS // 8)) + bytes(8)
            for field in fields["packet_in"]:
                answer.packet.metadata.add(metadata_id=field.id, value=given[field.name])
            switch._held.append(answer)
            if switch.hold_packet_ins > 0:
                switch.hold_packet_ins -= 1
                return
            answers, switch._held = switch._held, []
        for each in answers:
            self.say(each)
