# SPDX-License-Identifier: MIT
"""A P4Runtime client for one switch: pipeline, batched writes, reads, counters, block records.

Callers pass and get names and ints (:mod:`netsum_controller.entries`). It uses only what simple_switch_grpc serves: no registers
and no atomic batches ("Support for atomic write modes has not been implemented yet").
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Self, TypeVar

import grpc
from netsum.wire.schema import PacketOutKind
from netsum_p4runtime import p4runtime_pb2 as p4
from netsum_p4runtime import p4runtime_pb2_grpc

from netsum_controller.config.topology import Switch
from netsum_controller.entries import (
    TABLES,
    AnyMemberEntry,
    BlockRecord,
    Item,
    KeyedMemberEntry,
    MemberEntry,
    RegionEntry,
    TableEntry,
    aggregation,
)
from netsum_controller.entries.aggregation import DROPPED_COUNTER, PORTS_COUNTER, PortCounts
from netsum_controller.entries.memory import RegionCounts
from netsum_controller.entries.packet_out import claim_fields, claimed_before, query_fields, scan_fields
from netsum_controller.errors import EntryNotFoundError, InputError, SwitchError
from netsum_controller.p4runtime.channel import (
    BATCH,
    Silence,
    close_channel,
    no_connection,
    open_channel,
    read_cookie,
    switch_error,
    taken_over,
    unreachable,
    write_error,
)
from netsum_controller.p4runtime.p4info import CompiledProgram
from netsum_controller.p4runtime.stream import Stream

CONNECT_TIMEOUT = 5.0
CALL_TIMEOUT = 15.0
PIPELINE_TIMEOUT = 120.0
"""Seconds. Loading the program takes well under a second on simple_switch_grpc, and a few on the embedded switch."""

QUERIES_IN_FLIGHT = 32
QUERY_PATIENCE = 0.5
"""Seconds after which an unanswered query is repeated: a switch under load may drop a PacketIn."""

SCAN_PATIENCE = 1.0
"""The same for a scan, which goes through all slots of a job before it is answered."""

REQUEST_TIMEOUT = 5.0
"""Seconds for all attempts of a scan or a claim."""

EntryKind = TypeVar("EntryKind", bound=TableEntry)


class UpdateKind(IntEnum):
    """Kind of an update, with P4Runtime's numbers."""

    INSERT = 1
    MODIFY = 2
    DELETE = 3


@dataclass(frozen=True)
class Update:
    kind: UpdateKind
    item: Item

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.item}"


class SwitchClient:
    """A connection to one switch, as primary, and a context manager. Opening it takes only one round trip, so the controller
    holds it only while it works: between operations, others (p4runtime-shell) can be primary."""

    def __init__(
        self,
        name: str,
        switch: Switch,
        program: CompiledProgram,
        *,
        connect_timeout: float = CONNECT_TIMEOUT,
        silence: Silence | None = None,
    ) -> None:
        if switch.p4runtime is None:
            raise InputError(f"switch {name}: the topology gives no p4runtime address for it")
        self.name = name
        self.address: str = switch.p4runtime
        self.device_id = switch.device_id
        self.program = program
        self._tls = switch.tls
        self._connect_timeout = connect_timeout
        self._silence = silence or Silence()
        self._channel: grpc.Channel | None = None
        self._stub: Any = None
        self._stream: Stream | None = None
        self._highest: int | None = None
        self.all_ours = False
        """True if the caller has found all jobs of the switch to be its own. It ends when another controller claims a number."""
        # Not from 1: a late answer to an earlier client must not be taken for one to this.
        self._cookies = itertools.count(secrets.randbelow(1 << 16))

    def connect(self, *, primary: bool = True) -> Self:
        """Connect and become primary; :class:`SwitchError` if the server is not there. A client that is not primary disturbs
        no other and can read tables and counters."""
        self._channel = open_channel(self.address, self._tls)
        try:
            self._stub = p4runtime_pb2_grpc.P4RuntimeStub(self._channel)
            self._greet()
            if primary:
                self._stream = Stream(self._stub, self.name, self.address, self.device_id)
                self._stream.become_primary(CALL_TIMEOUT)
        except BaseException:
            self.close()
            raise
        return self

    def _greet(self) -> None:
        """Check that a server answers. (grpc.channel_ready_future would do, but polls every 200 ms.)"""
        patience = self._silence.patience(self.name, self._connect_timeout)
        if not patience:
            raise unreachable(self.name, self.address, "it did not answer a moment ago")
        try:
            self._stub.Capabilities(p4.CapabilitiesRequest(), timeout=patience)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                self._silence.begins(self.name)
                raise unreachable(self.name, self.address, f"gRPC: {error.details()}") from None
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                raise no_connection(self.name, self.address, error.details() or "", tls=self._tls is not None) from None
            if error.code() != grpc.StatusCode.UNIMPLEMENTED:
                raise switch_error(self.name, self.address, "Capabilities", error) from None
        self._silence.ends(self.name)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        if self._channel is not None:
            close_channel(self._channel)
        self._stream = self._channel = self._stub = None

    __enter__ = connect

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: str, request: Any, timeout: float = CALL_TIMEOUT) -> Any:
        try:
            return getattr(self._stub, method)(request, timeout=timeout)
        except grpc.RpcError as error:
            raise self._taken_over(method, error) or switch_error(self.name, self.address, method, error) from None

    def _taken_over(self, call: str, error: grpc.RpcError) -> SwitchError | None:
        stream = self._stream if error.code() == grpc.StatusCode.PERMISSION_DENIED else None
        return taken_over(self.name, call) if stream is not None and stream.is_netsums() else None

    def _authorize(self, request: Any) -> Any:
        assert self._stream is not None, "the client is not open"
        request.device_id = self.device_id
        request.election_id.high, request.election_id.low = self._stream.election_id
        return request

    def pipeline_cookie(self) -> int | None:
        """See :func:`~netsum_controller.p4runtime.channel.read_cookie`."""
        try:
            return read_cookie(self._stub, self.device_id, CALL_TIMEOUT)
        except grpc.RpcError as error:
            raise switch_error(self.name, self.address, "GetForwardingPipelineConfig", error) from None

    def push_pipeline(self) -> None:
        """Load the program; the switch forgets every entry, group, counter and register."""
        self._remove_groups()
        request = self._authorize(
            p4.SetForwardingPipelineConfigRequest(action=p4.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT)
        )
        request.config.p4info.CopyFrom(self.program.p4info)
        request.config.p4_device_config = self.program.device_config
        request.config.cookie.cookie = self.program.cookie
        self._call("SetForwardingPipelineConfig", request, PIPELINE_TIMEOUT)
        self._highest = None

    def _remove_groups(self) -> None:
        """Remove all multicast groups first: simple_switch_grpc keeps their replicas through a change of program, out of reach
        of any P4Runtime call, and a new group with the same id would then send every packet twice."""
        everything = p4.Entity()
        everything.packet_replication_engine_entry.multicast_group_entry.SetInParent()
        request = p4.ReadRequest(device_id=self.device_id, entities=[everything])
        try:
            answers = list(self._stub.Read(request, timeout=CALL_TIMEOUT))
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                return  # no program yet, so no groups
            raise switch_error(self.name, self.address, "Read", error) from None
        entities = [entity for answer in answers for entity in answer.entities]
        groups = [self.program.decode_group(e.packet_replication_engine_entry.multicast_group_entry) for e in entities]
        for start in range(0, len(groups), BATCH):
            self.write([Update(UpdateKind.DELETE, group) for group in groups[start : start + BATCH]])

    def write(self, updates: Sequence[Update]) -> None:
        """Apply at most ``BATCH`` updates in order. After an error the rest is still applied (the only mode of
        simple_switch_grpc), and :class:`WriteError` names the updates that failed. Raises :class:`UnknownOutcomeError` if the
        switch does not say which, any other :class:`SwitchError` if none was applied."""
        if not updates:
            return
        request = self._authorize(p4.WriteRequest())
        for update in updates:
            entity = self.program.encode(update.item, key_only=update.kind is UpdateKind.DELETE)
            request.updates.add(type=int(update.kind), entity=entity)
        self._write(request, [str(update) for update in updates])

    def _write(self, request: Any, labels: Sequence[str]) -> None:
        try:
            self._stub.Write(request, timeout=CALL_TIMEOUT)
        except grpc.RpcError as error:
            raise self._taken_over("Write", error) or write_error(self.name, self.address, labels, error) from None

    def _read(self, entities: Iterable[Any]) -> list[Any]:
        request = p4.ReadRequest(device_id=self.device_id, entities=entities)
        try:
            return [entity for answer in self._stub.Read(request, timeout=CALL_TIMEOUT) for entity in answer.entities]
        except grpc.RpcError as error:
            raise switch_error(self.name, self.address, "Read", error) from None

    def read_items(self, tables: Sequence[type[TableEntry]] = TABLES) -> list[Item]:
        """Everything installed in the tables we fill, or in those of these kinds of entries, and every multicast group."""
        groups = p4.Entity()
        groups.packet_replication_engine_entry.multicast_group_entry.SetInParent()
        return self._read_all(tables, groups)

    def _read_all(self, kinds: Iterable[type[TableEntry]], *more: Any) -> list[Item]:
        by_table = self._by_table(kinds)
        wildcards = [p4.Entity(table_entry=p4.TableEntry(table_id=table)) for table in by_table]
        return self._decode(self._read([*wildcards, *more]), by_table)

    def read_same(self, items: Iterable[Item]) -> list[Item]:
        """The items that are installed under the keys of these items: however much else is there, this takes no longer."""
        keys = {item.identity: self.program.encode(item, key_only=True) for item in items}
        rows = [entity for entity in keys.values() if entity.HasField("table_entry")]
        groups = [entity for entity in keys.values() if not entity.HasField("table_entry")]
        found = self._read(rows) if rows else []
        for group in groups:
            found += self._read_group(group)
        return self._decode(found, self._by_table(TABLES))

    def _read_group(self, entity: Any) -> list[Any]:
        """One group, in a Read of its own: one that is not there is an error, which ends the Read."""
        try:
            return self._read([entity])
        except EntryNotFoundError:
            return []

    def _by_table(self, kinds: Iterable[type[TableEntry]]) -> dict[int, list[type[TableEntry]]]:
        tables: dict[int, list[type[TableEntry]]] = {}
        for kind in kinds:
            tables.setdefault(self.program.object_id("tables", kind.TABLE), []).append(kind)
        return tables

    def _decode(self, entities: Iterable[Any], kinds: Mapping[int, Sequence[type[TableEntry]]]) -> list[Item]:
        items: list[Item] = []
        for entity in entities:
            if entity.HasField("table_entry"):
                row = entity.table_entry
                if not row.is_default_action and row.table_id in kinds:
                    items.append(self.program.decode_row(row, *kinds[row.table_id]))
            elif entity.HasField("packet_replication_engine_entry"):
                items.append(self.program.decode_group(entity.packet_replication_engine_entry.multicast_group_entry))
        return items

    def read_entries(self, *kinds: type[TableEntry]) -> list[TableEntry]:
        """All entries of these kinds, and of those derived from them."""
        derived = [each for kind in kinds for each in (kind, *kind.__subclasses__())]
        return [item for item in self._read_all(derived) if isinstance(item, TableEntry)]

    def read_outcomes(self, job_id: int) -> dict[str, int]:
        """Packets by outcome of a job, see :class:`netsum.wire.schema.Outcome`."""
        (counts,) = self._read_counters(aggregation.indices(job_id), aggregation.COUNTER)
        return aggregation.by_name(job_id, {index: data.packet_count for index, data in counts.items()})

    def clear_outcomes(self, job_id: int) -> None:
        """Set a job's outcome counters to zero: a new job must not show the counts of an earlier one with its id."""
        request = self._authorize(p4.WriteRequest())
        for index in aggregation.indices(job_id):
            entity = self._counter_entity(aggregation.COUNTER, index)
            entity.counter_entry.data.packet_count = 0
            request.updates.add(type=p4.Update.MODIFY, entity=entity)
        self._write(request, [f"clear outcome {number}" for number in range(len(request.updates))])

    def read_ports(self, ports: Iterable[int]) -> dict[int, PortCounts]:
        """The packets that came in at each of these ports since the program was loaded. What goes out is counted at the other
        end of the link, because BMv2 does not know its length."""
        came, dropped = self._read_counters(ports, PORTS_COUNTER, DROPPED_COUNTER)
        return {port: PortCounts(came[port].packet_count, came[port].byte_count, dropped[port].packet_count) for port in came}

    def _read_counters(self, indices: Iterable[int], *names: str) -> list[dict[int, Any]]:
        """For each counter, ``p4.v1.CounterData`` by index; in one Read."""
        found: dict[int, dict[int, Any]] = {self.program.object_id("counters", name): {} for name in names}
        for entity in self._read([self._counter_entity(name, index) for index in indices for name in names]):
            entry = entity.counter_entry
            found[entry.counter_id][entry.index.index] = entry.data
        return list(found.values())

    def _counter_entity(self, name: str, index: int) -> Any:
        entity = p4.Entity()
        entity.counter_entry.counter_id = self.program.object_id("counters", name)
        entity.counter_entry.index.index = index
        return entity

    def read_member_packets(self) -> dict[AnyMemberEntry, int]:
        """Packets that each member entry has let in since it was installed."""
        return {entry: packets for entry, (packets, _) in self.read_member_traffic().items()}

    def read_member_traffic(self) -> dict[AnyMemberEntry, tuple[int, int]]:
        """Packets and bytes (of whole frames) that each member entry has let in since it was installed."""
        return dict([*self._read_traffic(MemberEntry), *self._read_traffic(KeyedMemberEntry)])

    def read_region_traffic(self) -> dict[int, RegionCounts]:
        """The packets that came for each region of memory, by its id, since its entry was installed."""
        return {entry.region: RegionCounts(*counts) for entry, counts in self._read_traffic(RegionEntry)}

    def _read_traffic(self, kind: type[EntryKind]) -> Iterator[tuple[EntryKind, tuple[int, int]]]:
        """Packets and bytes that the direct counter of each entry of this kind has counted."""
        entity = p4.Entity()
        entity.table_entry.table_id = self.program.object_id("tables", kind.TABLE)
        entity.table_entry.counter_data.SetInParent()
        for answer in self._read([entity]):
            row = answer.table_entry
            entry = None if row.is_default_action else self.program.decode_row(row, kind)
            if isinstance(entry, kind):
                yield entry, (row.counter_data.packet_count, row.counter_data.byte_count)

    def query_records(self, slots: Iterable[int], timeout: float = 10.0) -> dict[int, BlockRecord]:
        """Block records of these slots, as they are after the call has begun: late answers to an earlier one are dropped.
        :class:`SwitchError` if ``timeout`` seconds pass without any: a busy switch answers slowly, and that is no fault."""
        assert self._stream is not None, "the client is not open"
        deadline = time.monotonic() + timeout
        cookie = next(self._cookies) & 0xFFFF  # by which an answer is known from one to an earlier call
        waiting = dict.fromkeys(slots, 0.0)
        records: dict[int, BlockRecord] = {}
        while waiting:
            now = time.monotonic()
            if now > deadline:
                raise SwitchError(
                    f"switch {self.name}: {len(waiting)} block records did not arrive in time; was it started with --cpu-port?"
                )
            window = list(waiting)[:QUERIES_IN_FLIGHT]
            for slot in window:
                if waiting[slot] <= now:
                    self._stream.send_packet(self.program.packet_out(b"", query_fields(slot, cookie)))
                    waiting[slot] = now + QUERY_PATIENCE
            packet = self._stream.next_packet(min(deadline, *(waiting[slot] for slot in window)) + 0.001)
            if packet is not None:
                answer = self.program.packet_in_metadata(packet.metadata)
                ours = (answer.get("kind"), answer.get("cookie")) == (PacketOutKind.QUERY, cookie)
                if ours and waiting.pop(slot := answer["slot"], None) is not None:
                    records[slot] = BlockRecord.parse(slot, packet.payload, answer["closed"])
                    deadline = time.monotonic() + timeout
        return records

    def scan(self, frame: bytes) -> int:
        """Send a scan (:func:`netsum_controller.entries.packet_out.scan_frame`) until one is answered; returns the number of
        blocks that it closed. :class:`SwitchError` if none is answered in time."""
        # The low byte is 0; in the scanner's it is a job id.
        return self._request("a scan", frame, lambda cookie: scan_fields((cookie & 0xFF) << 8), SCAN_PATIENCE)["closed"]

    def claim(self, number: int) -> int:
        """Take all epoch numbers up to ``number`` (0: none); returns the highest that had been taken since the switch started.
        If an answer is lost, that may have been by this very call; one that is late counts. :class:`SwitchError` if none comes
        in time."""
        answer = self._request("a claim", b"", lambda cookie: claim_fields(number, cookie), QUERY_PATIENCE)
        taken = claimed_before(answer)
        self.all_ours = self.all_ours and self._highest in (None, taken)
        self._highest = max(taken, number)
        return taken

    def claimed(self) -> int:
        """The highest epoch number that is taken, which the switch is asked for only once: who takes one later is another
        primary, and this client's next :meth:`claim` tells."""
        return self.claim(0) if self._highest is None else self._highest

    def _request(self, what: str, payload: bytes, fields: Callable[[int], dict[str, int]], patience: float) -> dict[str, int]:
        """Metadata of the first PacketIn that answers a PacketOut, which is repeated every ``patience`` seconds with the
        ``fields`` of another cookie."""
        assert self._stream is not None, "the client is not open"
        deadline = time.monotonic() + REQUEST_TIMEOUT
        sent = set()
        while time.monotonic() < deadline:
            request = fields(next(self._cookies) & 0xFFFF)
            sent.add((request["kind"], request["cookie"]))
            self._stream.send_packet(self.program.packet_out(payload, request))
            again = min(deadline, time.monotonic() + patience)
            while (packet := self._stream.next_packet(again)) is not None:
                answer = self.program.packet_in_metadata(packet.metadata)
                if (answer.get("kind"), answer.get("cookie")) in sent:
                    return answer
        raise SwitchError(f"switch {self.name}: {what} was not answered; was it started with --cpu-port?")
