# SPDX-License-Identifier: MIT
"""The specification's chapters on counters, registers, value sets, externs and replication, row by row."""

from __future__ import annotations

from typing import Any

import pytest
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness.contract import (
    Otherwise,
    Row,
    World,
    cases,
    delete,
    found,
    frame_in,
    frame_out,
    how_many,
    insert,
    modify,
    passed,
    read,
    refused,
)
from tests.switch.harness.controller import Program
from tests.switch.harness.frames import frame, source_of
from tests.switch.server.test_replication import group, session

P = Program("contract")
ENTRY = P.forwarding(1, 2)
KEY = P.entry("exact_table", {1: b"\x01"})
OF_NO_ENTRY = P.entry("exact_table", {1: b"\x09"})


def counter(name: str = "seen", index: int | None = None, data: tuple[int, int] | None = None, number: int | None = None) -> Any:
    """A CounterEntry; ``data``: packets and bytes."""
    entry = p4rt.CounterEntry(counter_id=(P.ids[name] if name else 0) if number is None else number)
    if index is not None:
        entry.index.index = index
    if data is not None:
        entry.data.packet_count, entry.data.byte_count = data
    return p4rt.Entity(counter_entry=entry)


def direct(of: Any = KEY, data: tuple[int, int] | None = None) -> Any:
    """A DirectCounterEntry."""
    entity = p4rt.Entity()
    entity.direct_counter_entry.table_entry.CopyFrom(of.table_entry)
    if data is not None:
        entity.direct_counter_entry.data.packet_count, entity.direct_counter_entry.data.byte_count = data
    return entity


NO_DIRECT = p4rt.Entity(direct_counter_entry={"data": {"packet_count": 1}})

S = "CounterEntry"
COUNTERS = [
    Row(S, "a cell is 0 at first", [read(counter(index=0))], found(counter(index=0, data=(0, 0)))),
    Row(S, "MODIFY sets a cell", [modify(counter(index=3, data=(5, 6))), read(counter(index=3))],
        found(counter(index=3, data=(5, 6)))),
    Row(S, "MODIFY without data changes nothing", [modify(counter(index=3, data=(5, 6))), modify(counter(index=3)),
        read(counter(index=3))], found(counter(index=3, data=(5, 6))), bmv2=Otherwise(1, "the counter becomes 0")),
    Row(S, "MODIFY without index sets all cells", [modify(counter("seen_packets", data=(5, 0))),
        read(counter("seen_packets"), seen=lambda all_: [each.counter_entry.data.packet_count for each in all_])], [5] * 8,
        bmv2="step 1: UNIMPLEMENTED"),
    Row(S, "INSERT is refused", [insert(counter(index=0, data=(1, 1)))], "INVALID_ARGUMENT"),
    Row(S, "DELETE is refused", [delete(counter(index=0))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "writing to a negative index", [modify(counter(index=-1, data=(1, 1)))], "INVALID_ARGUMENT"),
    Row(S, "writing beyond the last index", [modify(counter(index=16, data=(1, 1)))], "OUT_OF_RANGE", bmv2="UNKNOWN"),
    Row(S, "writing to id 0", [modify(counter("", index=0, data=(1, 1)))], "INVALID_ARGUMENT"),
    Row(S, "writing to an id that there is not", [modify(counter(number=77, index=0, data=(1, 1)))], "INVALID_ARGUMENT"),
    Row(S, "writing to a direct counter's id", [modify(counter("forwarded", index=0, data=(1, 1)))], "INVALID_ARGUMENT"),
    Row(S, "reading a negative index", [read(counter(index=-1))], "INVALID_ARGUMENT", bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "reading beyond the last index", [read(counter(index=16))], "OUT_OF_RANGE", bmv2="RPC UNKNOWN"),
    Row(S, "reading an id that there is not", [read(counter(number=77, index=0))], "INVALID_ARGUMENT",
        bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "reading all cells of a counter", [read(counter(), seen=how_many)], 16),
    Row(S, "reading all cells of all counters", [read(counter(""), seen=how_many)], 24),
    Row(S, "packets and bytes are counted", [insert(ENTRY), passed(frame(1), 2, lambda _: "OK"), read(counter(index=1))],
        found(counter(index=1, data=(1, 64)))),
]  # fmt: skip

S = "DirectCounterEntry"
DIRECT = [
    Row(S, "MODIFY sets the counter", [insert(ENTRY), modify(direct(data=(5, 6))), read(direct())], found(direct(data=(5, 6)))),
    Row(S, "MODIFY without data changes nothing", [insert(ENTRY), modify(direct(data=(5, 6))), modify(direct()), read(direct())],
        found(direct(data=(5, 6))), bmv2=Otherwise(1, "the counter becomes 0")),
    Row(S, "INSERT is refused", [insert(ENTRY), insert(direct(data=(1, 1)))], "INVALID_ARGUMENT"),
    Row(S, "DELETE is refused", [insert(ENTRY), delete(direct())], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "writing beside no entry", [modify(direct(OF_NO_ENTRY, (1, 1)))], "NOT_FOUND", bmv2="INVALID_ARGUMENT"),
    Row(S, "reading beside no entry", [read(direct(OF_NO_ENTRY))], "NOT_FOUND", bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "is gone with its entry", [insert(ENTRY), delete(KEY), read(direct())], "NOT_FOUND", bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "a table without a counter", [insert(P.marking("lpm_table", {}, 1)), modify(direct(P.entry("lpm_table", {}), (1, 1)))],
        "INVALID_ARGUMENT"),
    Row(S, "a table that there is not", [modify(p4rt.Entity(direct_counter_entry={"table_entry": {"table_id": 77},
        "data": {"packet_count": 1}}))], "INVALID_ARGUMENT"),
    Row(S, "writing without a table entry", [modify(NO_DIRECT)], "INVALID_ARGUMENT"),
    Row(S, "reading those of all entries of a table", [insert(ENTRY, P.forwarding(2)), read(direct(P.entry("exact_table", {})),
        seen=how_many)], 2),
    Row(S, "the same counter as in the TableEntry", [insert(ENTRY), modify(direct(data=(5, 6))),
        read(P.entry("exact_table", {}), seen=how_many)], 1),
    Row(S, "packets are counted", [insert(ENTRY), passed(frame(1), 2, lambda _: "OK"), read(direct())],
        found(direct(data=(1, 64)))),
]  # fmt: skip


def register(index: int | None = None, value: bytes | None = None, number: int | None = None) -> Any:
    entry = p4rt.RegisterEntry(register_id=P.ids["last"] if number is None else number)
    if index is not None:
        entry.index.index = index
    if value is not None:
        entry.data.bitstring = value
    return p4rt.Entity(register_entry=entry)


def other_data(**fields: Any) -> Any:
    """A RegisterEntry with data of another type."""
    entity = register(0)
    entity.register_entry.data.CopyFrom(p4rt.RegisterEntry(data=fields).data)
    return entity


S = "RegisterEntry"
REGISTERS = [
    Row(S, "a cell is 0 at first", [read(register(3))], found(register(3, b"\0")), bmv2="RPC UNIMPLEMENTED"),
    Row(S, "MODIFY sets a cell", [modify(register(3, b"\x01\x02")), read(register(3))], found(register(3, b"\x01\x02")),
        bmv2="step 1: UNIMPLEMENTED"),
    Row(S, "a value is read in canonical form", [modify(register(3, b"\0\0\0\x05")), read(register(3))],
        found(register(3, b"\x05")), bmv2="step 1: UNIMPLEMENTED"),
    Row(S, "MODIFY without index sets all cells", [modify(register(value=b"\x07")), read(register())],
        found(*(register(each, b"\x07") for each in range(4))), bmv2="step 1: UNIMPLEMENTED"),
    Row(S, "reading all cells of a register", [read(register(), seen=how_many)], 4, bmv2="RPC UNIMPLEMENTED"),
    Row(S, "reading all cells of all registers", [read(register(number=0), seen=how_many)], 4, bmv2="RPC UNIMPLEMENTED"),
    Row(S, "writing to a negative index", [modify(register(-1, b"\1"))], "INVALID_ARGUMENT", bmv2="UNIMPLEMENTED"),
    Row(S, "writing beyond the last index", [modify(register(4, b"\1"))], "OUT_OF_RANGE", bmv2="UNIMPLEMENTED"),
    Row(S, "reading a negative index", [read(register(-1))], "INVALID_ARGUMENT", bmv2="RPC UNIMPLEMENTED"),
    Row(S, "reading beyond the last index", [read(register(4))], "OUT_OF_RANGE", bmv2="RPC UNIMPLEMENTED"),
    Row(S, "writing to id 0", [modify(register(0, b"\1", number=0))], "INVALID_ARGUMENT", bmv2="UNIMPLEMENTED"),
    Row(S, "writing to an id that there is not", [modify(register(0, b"\1", number=77))], "INVALID_ARGUMENT",
        bmv2="UNIMPLEMENTED"),
    Row(S, "reading an id that there is not", [read(register(0, number=77))], "INVALID_ARGUMENT", bmv2="RPC UNIMPLEMENTED"),
    Row(S, "data of another type", [modify(other_data(bool=True))], "INVALID_ARGUMENT", bmv2="UNIMPLEMENTED"),
    Row(S, "data of a structure", [modify(other_data(struct={"members": [{"bitstring": b"\1"}]}))],
        "INVALID_ARGUMENT", bmv2="UNIMPLEMENTED"),
    Row(S, "no data", [modify(register(0))], "INVALID_ARGUMENT", bmv2="UNIMPLEMENTED"),
    Row(S, "a value that does not fit", [modify(register(0, b"\x01\0\0\0\0"))], "OUT_OF_RANGE", bmv2="UNIMPLEMENTED"),
    Row(S, "an empty value", [modify(register(0, b""))], "OUT_OF_RANGE", bmv2="UNIMPLEMENTED"),
    Row(S, "what packets write is read", [insert(ENTRY), modify(register(0, b"\x63")), passed(frame(1), 2, lambda _: "OK"),
        read(register(0))], found(register(0, b"\1")), bmv2="step 2: UNIMPLEMENTED"),
]  # fmt: skip

S = "ValueSetEntry and ExternEntry"
OTHERS = [
    Row(S, "writing to a value set that there is not", [modify(p4rt.Entity(value_set_entry={"value_set_id": 77}))],
        "INVALID_ARGUMENT", bmv2="UNIMPLEMENTED"),
    Row(S, "reading all value sets of a program without any", [read(p4rt.Entity(value_set_entry={}))], found(),
        bmv2="RPC UNIMPLEMENTED"),
    Row(S, "no value set there is can be inserted", [insert(p4rt.Entity(value_set_entry={"value_set_id": 77}))],
        "INVALID_ARGUMENT", bmv2="UNIMPLEMENTED"),
    Row(S, "reading a value set that there is not", [read(p4rt.Entity(value_set_entry={"value_set_id": 77}))],
        "INVALID_ARGUMENT", bmv2="RPC UNIMPLEMENTED"),
    Row(S, "reading all externs of a program without any", [read(p4rt.Entity(extern_entry={}))], found(), bmv2="RPC UNKNOWN"),
    Row(S, "reading an extern that there is not", [read(p4rt.Entity(extern_entry={"extern_type_id": 5, "extern_id": 6}))],
        "INVALID_ARGUMENT", bmv2="RPC UNKNOWN"),
    Row(S, "writing to an extern that there is not", [insert(p4rt.Entity(extern_entry={"extern_type_id": 5}))],
        "INVALID_ARGUMENT", bmv2="UNIMPLEMENTED"),
]  # fmt: skip


def ports(number: int, *replicas: tuple[bytes, int], **fields: Any) -> Any:
    """A multicast group with ports as bytestrings."""
    entity = p4rt.Entity()
    message = entity.packet_replication_engine_entry.multicast_group_entry
    message.multicast_group_id = number
    for port, instance in replicas:
        message.replicas.add(port=port, instance=instance)
    for name, value in fields.items():
        setattr(message, name, value)
    return entity


def backed(number: int, *backups: tuple[bytes, int]) -> Any:
    """A group of one replica with backups, in the encoding of P4Runtime 1.5: field 4 of a Replica."""
    replica = p4rt.Replica(port=b"\2", instance=1).SerializeToString()
    for port, instance in backups:
        backup = b"\x0a" + bytes([len(port)]) + port + b"\x10" + bytes([instance])
        replica += b"\x22" + bytes([len(backup)]) + backup
    entity = ports(number)
    entity.packet_replication_engine_entry.multicast_group_entry.replicas.add().MergeFromString(replica)
    return entity


MULTICASTING = P.entry("exact_table", {1: b"\x01"}, P.action("multicast", b"\x01"))
CLONING = P.entry("exact_table", {1: b"\x01"}, P.action("clone_to", b"\x02"))
ONE, TWO = group(1, (2, 7)), group(1, (3, 8))

S = "MulticastGroupEntry"
GROUPS = [
    Row(S, "a group is read as it was written", [insert(ports(1, (b"\2", 7), (b"\3", 7))), read(group(1))],
        found(ports(1, (b"\2", 7), (b"\3", 7)))),
    Row(S, "a port of the old field is read as it was written", [insert(ONE), read(group(1))], found(ONE)),
    Row(S, "a port is read in canonical form", [insert(ports(1, (b"\0\2", 7))), read(group(1))], found(ports(1, (b"\2", 7))),
        bmv2=Otherwise(1, "as it was written")),
    Row(S, "a group without replicas", [insert(group(1)), read(group(1))], found(group(1))),
    Row(S, "metadata is read back", [insert(ports(1, (b"\2", 7), metadata=b"m")), read(group(1))],
        found(ports(1, (b"\2", 7), metadata=b"m")), bmv2=Otherwise(1, "it is lost")),
    Row(S, "id 0 in an INSERT", [insert(group(0, (2, 7)))], "INVALID_ARGUMENT"),
    Row(S, "id 0 in a MODIFY", [modify(group(0, (2, 7)))], "INVALID_ARGUMENT"),
    Row(S, "id 0 in a DELETE", [delete(group(0))], "INVALID_ARGUMENT"),
    Row(S, "a group that exists", [insert(ONE), insert(TWO)], "ALREADY_EXISTS"),
    Row(S, "MODIFY of a group that is not there", [modify(ONE)], "NOT_FOUND"),
    Row(S, "DELETE of a group that is not there", [delete(ONE)], "NOT_FOUND"),
    Row(S, "DELETE needs the id alone", [insert(ONE), delete(group(1)), read(group(0))], found()),
    Row(S, "MODIFY replaces the replicas", [insert(ONE), modify(TWO), read(group(1))], found(TWO)),
    Row(S, "a pair of port and instance twice", [insert(group(1, (2, 7), (2, 7)))], "INVALID_ARGUMENT"),
    Row(S, "a pair twice, in both fields for a port", [insert(p4rt.Entity(packet_replication_engine_entry={
        "multicast_group_entry": {"multicast_group_id": 1, "replicas": [{"port": b"\2", "instance": 7},
        {"egress_port": 2, "instance": 7}]}}))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "a pair twice, with a leading zero byte", [insert(ports(1, (b"\2", 7), (b"\0\2", 7)))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "a port with two instances", [insert(group(1, (2, 7), (2, 8)))], "OK"),
    Row(S, "an instance that egress_rid cannot hold", [insert(group(1, (2, 1 << 16)))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "instance 0", [insert(group(1, (2, 0)))], "OK"),
    Row(S, "a replica without a port", [insert(p4rt.Entity(packet_replication_engine_entry={
        "multicast_group_entry": {"multicast_group_id": 1, "replicas": [{"instance": 7}]}}))], "INVALID_ARGUMENT"),
    Row(S, "an empty port", [insert(ports(1, (b"", 7)))], "INVALID_ARGUMENT"),
    Row(S, "a port of more than 32 bits", [insert(ports(1, (b"\1\0\0\0\0", 7)))], "OUT_OF_RANGE", bmv2="UNIMPLEMENTED"),
    Row(S, "a port of many zero bytes and one that counts", [insert(ports(1, (bytes(9) + b"\2", 7)))], "OK",
        bmv2="UNIMPLEMENTED"),
    Row(S, "backup replicas, which are optional", [insert(backed(1, (b"\3", 2)))], "UNIMPLEMENTED", bmv2="OK"),
    Row(S, "reading a group", [insert(ONE, group(2, (3, 1))), read(group(1))], found(ONE)),
    Row(S, "reading all groups", [insert(ONE, group(2, (3, 1))), read(group(0))], found(ONE, group(2, (3, 1)))),
    Row(S, "a Read looks at the id alone", [insert(ONE), read(group(1, (4, 4)))], found(ONE)),
    Row(S, "packets are copied", [insert(MULTICASTING, ONE), frame_in(frame(1)), frame_out(2,
        lambda data: source_of(data) & 0xFF)],
        7),
    Row(S, "packets follow MODIFY", [insert(MULTICASTING, ONE), modify(TWO), frame_in(frame(1)),
        frame_out(3, lambda data: source_of(data) & 0xFF)], 8),
    Row(S, "packets to a group that is not there are dropped", [insert(MULTICASTING, ONE), delete(group(1)), frame_in(frame(1)),
        frame_out(2, timeout=0.3)], False),
    Row(S, "neither a group nor a session", [insert(p4rt.Entity(packet_replication_engine_entry={}))], "INVALID_ARGUMENT"),
]  # fmt: skip

SESSION, MOVED = session(5, (3, 7)), session(5, (4, 8))
CUT = session(5, (3, 7), packet_length_bytes=20)
S = "CloneSessionEntry"
SESSIONS = [
    Row(S, "a session is read as it was written", [insert(SESSION), read(session(5))], found(SESSION)),
    Row(S, "id 0 in an INSERT", [insert(session(0, (2, 7)))], "INVALID_ARGUMENT"),
    Row(S, "id 0 in a MODIFY", [modify(session(0, (2, 7)))], "INVALID_ARGUMENT"),
    Row(S, "id 0 in a DELETE", [delete(session(0))], "INVALID_ARGUMENT"),
    Row(S, "a session that exists", [insert(SESSION), insert(MOVED)], "ALREADY_EXISTS"),
    Row(S, "MODIFY of a session that is not there", [modify(SESSION)], "NOT_FOUND"),
    Row(S, "DELETE of a session that is not there", [delete(SESSION)], "NOT_FOUND"),
    Row(S, "MODIFY replaces it", [insert(SESSION), modify(MOVED), read(session(5))], found(MOVED)),
    Row(S, "reading all sessions", [insert(SESSION, session(6, (2, 1))), read(session(0))], found(SESSION, session(6, (2, 1)))),
    Row(S, "an instance that egress_rid cannot hold", [insert(session(5, (2, 1 << 16)))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "a pair of port and instance twice", [insert(session(5, (2, 7), (2, 7)))], "INVALID_ARGUMENT"),
    Row(S, "packets are cloned", [insert(CLONING, SESSION), frame_in(frame(1)), frame_out(3, lambda data: len(data or b""))], 64),
    Row(S, "packets follow MODIFY", [insert(CLONING, SESSION), modify(MOVED), frame_in(frame(1)), frame_out(4)], True),
    Row(S, "no clone of a session that is not there", [insert(CLONING, SESSION), delete(session(5)), passed(frame(1), 2,
        lambda _: "OK"), frame_out(3, timeout=0.3)], False),
    Row(S, "packet_length_bytes is read back", [insert(CUT), read(session(5))], found(CUT), bmv2="step 1: UNKNOWN"),
    Row(S, "clones have at most packet_length_bytes", [insert(CLONING, CUT), frame_in(frame(1)),
        frame_out(3, lambda data: len(data or b""))], 20, bmv2="step 1: OK, UNKNOWN"),
    Row(S, "the packet itself is whole", [insert(CLONING, CUT), frame_in(frame(1)), frame_out(2, lambda data: len(data or b""))],
        64, bmv2="step 1: OK, UNKNOWN"),
    Row(S, "a shorter packet is cloned whole", [insert(CLONING, session(5, (3, 7), packet_length_bytes=65)), frame_in(frame(1)),
        frame_out(3, lambda data: len(data or b""))], 64, bmv2="step 1: OK, UNKNOWN"),
    Row(S, "MODIFY changes the length of clones", [insert(CLONING, SESSION), modify(CUT), frame_in(frame(1)),
        frame_out(3, lambda data: len(data or b""))], 20, bmv2="step 2: UNKNOWN"),
    Row(S, "a negative length", [insert(session(5, (3, 7), packet_length_bytes=-1))], "INVALID_ARGUMENT", bmv2="UNKNOWN"),
    Row(S, "a class of service that there is not", [insert(session(5, (3, 7), class_of_service=1))], "INVALID_ARGUMENT",
        bmv2="UNIMPLEMENTED"),
    Row(S, "a refused MODIFY leaves the session as it is", [insert(SESSION),
        refused(modify(session(5, (4, 8), packet_length_bytes=-1))), read(session(5))], found(SESSION),
        bmv2=Otherwise(1, "the replicas have changed")),
]  # fmt: skip

ROWS = [*COUNTERS, *DIRECT, *REGISTERS, *OTHERS, *GROUPS, *SESSIONS]


@pytest.mark.parametrize(("p4rt_switch", "row"), cases(ROWS), indirect=["p4rt_switch"])
def test_row(row: Row, world: World) -> None:
    row.check(world)
