# SPDX-License-Identifier: MIT
"""The specification's chapters on TableEntry and bytestrings, row by row (`tests.switch.harness.contract`)."""

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
    insert,
    modify,
    passed,
    read,
    refused,
    updates,
)
from tests.switch.harness.controller import Program
from tests.switch.harness.frames import ether_type_of, frame

P = Program("contract")
Lpm, Ternary, Range, Optional = (
    p4rt.FieldMatch.LPM, p4rt.FieldMatch.Ternary, p4rt.FieldMatch.Range, p4rt.FieldMatch.Optional,
)  # fmt: skip
WIDTH_48 = b"\x00\x00\x00\x00\x00\x01"

ENTRY, OTHER = P.forwarding(1, 2), P.forwarding(1, 3)
KEY = P.entry("exact_table", {1: b"\x01"})


def changed(entity: Any, **fields: Any) -> Any:
    """A copy of a TableEntry with other fields: numbers, bytes, or messages to copy."""
    copy = p4rt.Entity.FromString(entity.SerializeToString())
    for name, value in fields.items():
        if isinstance(value, int | bytes):
            setattr(copy.table_entry, name, value)
        else:
            getattr(copy.table_entry, name).CopyFrom(value)
    return copy


def asking(table: str = "", match: dict[int, Any] | None = None, **fields: Any) -> Any:
    """A TableEntry for a ReadRequest; without a name, of all tables."""
    if table:
        return changed(P.entry(table, match or {}), **fields)
    return changed(p4rt.Entity(table_entry={}), **fields)


def default(table: str, action: Any = None, **fields: Any) -> Any:
    return P.entry(table, {}, action, is_default_action=True, **fields)


def ternary(priority: int = 1, mark: int = 7, **match: bytes) -> Any:
    """An entry of ternary_table that looks at the address alone."""
    field = Ternary(value=match.get("value", b"\x01"), mask=match.get("mask", b"\xff"))
    return P.marking("ternary_table", {1: field}, mark, priority=priority)


def lpm(value: bytes, length: int, table: str = "lpm_table") -> Any:
    return P.marking(table, {1: Lpm(value=value, prefix_len=length)}, 7)


def ranging(low: bytes, high: bytes, number: int = 1) -> Any:
    """An entry of range_table: field 1 has 16 bits, field 2 nine."""
    return P.marking("range_table", {number: Range(low=low, high=high)}, 7, priority=1)


def optional(value: bytes) -> Any:
    return P.marking("optional_table", {1: Optional(value=value)}, 7, priority=1)


def with_match(entity: Any, match: Any) -> Any:
    copy = changed(entity)
    copy.table_entry.match.append(match)
    return copy


def with_action(action: Any, table: str = "exact_table", match: dict[int, Any] | None = None, **fields: Any) -> Any:
    return P.entry(table, {1: b"\x01"} if match is None else match, action, **fields)


def forward(*params: tuple[int, bytes]) -> Any:
    action = p4rt.Action(action_id=P.ids["forward"])
    for number, value in params:
        action.params.add(param_id=number, value=value)
    return action


def referring(**fields: Any) -> Any:
    """An entry of a direct table that refers to an action profile."""
    return changed(KEY, action=p4rt.TableAction(**fields))


def counted(entity: Any, packets: int = 0, size: int = 0) -> Any:
    return changed(entity, counter_data=p4rt.CounterData(packet_count=packets, byte_count=size))


COUNTING = asking("exact_table", counter_data=p4rt.CounterData())
ENTRIES_OF_CONST_TABLE = [
    P.marking("const_table", {1: b"\x90\x01"}, 0),
    P.marking("const_table", {1: b"\x90\x03"}, 0),
]
for each, kind in zip(ENTRIES_OF_CONST_TABLE, (b"\x90\x02", b"\x90\x04"), strict=True):
    each.table_entry.action.action.params[0].value = kind
CONST = [changed(each, is_const=True) for each in ENTRIES_OF_CONST_TABLE]

S = "TableEntry"
TABLES = [
    Row(S, "an inserted entry is read back", [insert(ENTRY), read(KEY)], found(ENTRY)),
    Row(S, "an entry that exists is not inserted again", [insert(ENTRY), insert(ENTRY)], "ALREADY_EXISTS"),
    Row(S, "a refused INSERT leaves the entry as it is",
        [insert(ENTRY), refused(insert(OTHER)), read(KEY)], found(ENTRY)),
    Row(S, "MODIFY replaces the action", [insert(ENTRY), modify(OTHER), read(KEY)], found(OTHER)),
    Row(S, "MODIFY of an entry that is not there", [modify(ENTRY)], "NOT_FOUND"),
    Row(S, "DELETE removes an entry", [insert(ENTRY), delete(KEY), read(KEY)], found()),
    Row(S, "DELETE of an entry that is not there", [delete(KEY)], "NOT_FOUND"),
    Row(S, "packets follow MODIFY", [insert(ENTRY), modify(OTHER), passed(frame(1), 3)], True),
    Row(S, "table id 0 in a Write", [insert(changed(ENTRY, table_id=0))], "INVALID_ARGUMENT"),
    Row(S, "a table id that there is not", [insert(changed(ENTRY, table_id=0x02FFFFFF))], "INVALID_ARGUMENT"),
    Row(S, "the id of an action as a table id", [insert(changed(ENTRY, table_id=P.ids["drop"]))], "INVALID_ARGUMENT"),
    Row(S, "an update without a type", [updates((0, ENTRY))], "INVALID_ARGUMENT"),
    Row(S, "an update of a type that there is not", [updates((9, ENTRY))], "INVALID_ARGUMENT"),
    Row(S, "priority 0 where one is needed", [insert(ternary(0))], "INVALID_ARGUMENT"),
    Row(S, "a negative priority", [insert(ternary(-1))], "INVALID_ARGUMENT", bmv2="UNKNOWN"),
    Row(S, "a priority where none is used", [insert(changed(ENTRY, priority=1))], "INVALID_ARGUMENT"),
    Row(S, "a priority with an optional field is needed", [insert(changed(optional(b"\x01"), priority=0))], "INVALID_ARGUMENT"),
    Row(S, "two entries of one priority", [insert(ternary(5), ternary(5, value=b"\x02")), read(asking("ternary_table"))],
        found(ternary(5), ternary(5, value=b"\x02"))),
    Row(S, "match and priority identify an entry: two priorities are two entries",
        [insert(ternary(5), ternary(6)), read(asking("ternary_table"))], found(ternary(5), ternary(6))),
    Row(S, "the higher priority wins", [insert(ternary(5, mark=5), ternary(6, mark=6), P.forwarding(1, 2)),
        passed(frame(1), 2, ether_type_of)], 6),
    Row(S, "MODIFY with another priority finds no entry", [insert(ternary(5)), modify(ternary(6))], "NOT_FOUND"),
    Row(S, "DELETE ignores the action, even a nonsensical one",
        [insert(ENTRY), delete(with_action(p4rt.Action(action_id=77)))], "OK"),
    Row(S, "DELETE ignores metadata and counters",
        [insert(ENTRY), delete(counted(changed(KEY, metadata=b"x", controller_metadata=7), 5))], "OK"),
    Row(S, "DELETE ignores what a table does not support",
        [insert(lpm(b"\x01", 48)), delete(changed(counted(lpm(b"\x01", 48)), idle_timeout_ns=5))], "OK"),
    Row(S, "a full table", [insert(*(P.forwarding(each) for each in range(1, 9))), insert(P.forwarding(9))],
        "RESOURCE_EXHAUSTED", bmv2="UNKNOWN"),
    Row(S, "room again after DELETE", [insert(*(P.forwarding(each) for each in range(1, 9))), delete(KEY),
        insert(P.forwarding(9))], "OK"),
    Row(S, "metadata is read back", [insert(changed(ENTRY, metadata=b"\x00abc")), read(KEY)],
        found(changed(ENTRY, metadata=b"\x00abc"))),
    Row(S, "controller_metadata is read back", [insert(changed(ENTRY, controller_metadata=1 << 63)), read(KEY)],
        found(changed(ENTRY, controller_metadata=1 << 63))),
    Row(S, "MODIFY replaces metadata", [insert(changed(ENTRY, metadata=b"a")), modify(changed(ENTRY, metadata=b"b")), read(KEY)],
        found(changed(ENTRY, metadata=b"b"))),
    Row(S, "is_const in an INSERT", [insert(changed(ENTRY, is_const=True))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "is_const in a MODIFY", [insert(ENTRY), modify(changed(ENTRY, is_const=True))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "is_const in a DELETE", [insert(ENTRY), delete(changed(ENTRY, is_const=True))], "INVALID_ARGUMENT", bmv2="OK"),
]  # fmt: skip

S = "Bytestrings"
BYTESTRINGS = [
    Row(S, "a match value with leading zero bytes is taken", [insert(P.entry("exact_table", {1: WIDTH_48},
        P.action("drop")))], "OK"),
    Row(S, "a match value is read in canonical form", [insert(P.entry("exact_table", {1: WIDTH_48}, P.action("drop"))),
        read(asking("exact_table"))], found(P.entry("exact_table", {1: b"\x01"}, P.action("drop")))),
    Row(S, "a string may be longer than the field", [insert(P.entry("exact_table", {1: bytes(30) + b"\x01"},
        P.action("drop"))), read(asking("exact_table"))], found(P.entry("exact_table", {1: b"\x01"}, P.action("drop")))),
    Row(S, "long and short form name the same entry", [insert(ENTRY), delete(P.entry("exact_table", {1: WIDTH_48}))], "OK"),
    Row(S, "0 is one zero byte", [insert(P.forwarding(0)), read(asking("exact_table"))], found(P.forwarding(0))),
    Row(S, "an empty exact value", [insert(P.entry("exact_table", {1: b""}, P.action("drop")))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "an exact value that does not fit", [insert(P.entry("exact_table", {1: b"\x01" + bytes(6)}, P.action("drop")))],
        "INVALID_ARGUMENT"),
    Row(S, "the highest value of 9 bits", [insert(with_action(P.action("forward", b"\x01\xff")))], "OK"),
    Row(S, "a value of 10 bits in 9", [insert(with_action(P.action("forward", b"\x02\x00")))], "INVALID_ARGUMENT"),
    Row(S, "a parameter with leading zero bytes is taken", [insert(with_action(P.action("forward", b"\x00\x00\x02")))], "OK"),
    Row(S, "a parameter is read in canonical form", [insert(with_action(P.action("forward", b"\x00\x00\x02"))), read(KEY)],
        found(ENTRY)),
    Row(S, "an empty parameter", [insert(with_action(P.action("forward", b"")))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "an LPM value is read in canonical form", [insert(lpm(WIDTH_48, 48)), read(asking("lpm_table"))],
        found(lpm(b"\x01", 48))),
    Row(S, "a ternary value is read in canonical form", [insert(ternary(value=b"\x00\x01", mask=b"\x00\x00\xff")),
        read(asking("ternary_table"))], found(ternary())),
    Row(S, "bounds of a range are read in canonical form", [insert(ranging(b"\x00\x01", b"\x00\x02")),
        read(asking("range_table"))], found(ranging(b"\x01", b"\x02")),
        bmv2=Otherwise(1, "the field left out is read as a range of all values")),
    Row(S, "an optional value is read in canonical form", [insert(optional(WIDTH_48)), read(asking("optional_table"))],
        found(optional(b"\x01"))),
]  # fmt: skip

S = "Match format"
MATCHES = [
    Row(S, "an exact field cannot be left out", [insert(P.entry("exact_table", {}, P.action("drop")))], "INVALID_ARGUMENT"),
    *(Row(S, f"in {table}, fields that may match anything are left out, and are not read back",
          [insert(P.marking(table, {}, 7, **priority)), read(asking(table))], found(P.marking(table, {}, 7, **priority)))
      for table, priority in (("lpm_table", {}), ("ternary_table", {"priority": 1}), ("optional_table", {"priority": 1}))),
    Row(S, "in range_table, too", [insert(P.marking("range_table", {}, 7, priority=1)), read(asking("range_table"))],
        found(P.marking("range_table", {}, 7, priority=1)),
        bmv2=Otherwise(1, "a field of nine bits is read as a range of all values")),
    Row(S, "a field id that there is not", [insert(with_match(ENTRY, p4rt.FieldMatch(field_id=9, exact={"value": b"\1"})))],
        "INVALID_ARGUMENT"),
    Row(S, "a field twice", [insert(with_match(ENTRY, ENTRY.table_entry.match[0]))], "INVALID_ARGUMENT"),
    Row(S, "a field twice in a table of two", [insert(with_match(ternary(), ternary().table_entry.match[0]))],
        "INVALID_ARGUMENT"),
    Row(S, "another kind of match", [insert(P.entry("exact_table", {1: Lpm(value=b"\1", prefix_len=48)}, P.action("drop")))],
        "INVALID_ARGUMENT"),
    Row(S, "no kind of match", [insert(with_match(P.entry("exact_table", {}, P.action("drop")),
        p4rt.FieldMatch(field_id=1)))], "INVALID_ARGUMENT"),
    Row(S, "LPM: a prefix of length 0 is to be left out", [insert(lpm(b"\x00", 0))], "INVALID_ARGUMENT"),
    Row(S, "LPM: a negative length", [insert(lpm(b"\x01", -1))], "INVALID_ARGUMENT"),
    Row(S, "LPM: a length beyond the width", [insert(lpm(b"\x01", 49))], "INVALID_ARGUMENT"),
    Row(S, "LPM: the whole width", [insert(lpm(b"\x01", 48)), read(asking("lpm_table"))], found(lpm(b"\x01", 48))),
    Row(S, "LPM: a bit behind the prefix", [insert(lpm(b"\x01", 47))], "INVALID_ARGUMENT"),
    Row(S, "LPM: an empty value", [insert(lpm(b"", 8))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "LPM: a value that does not fit", [insert(lpm(b"\x01" + bytes(6), 8))], "INVALID_ARGUMENT"),
    Row(S, "LPM on nine bits: the whole width", [insert(lpm(b"\x01\x01", 9, "nine_table"))], "OK", bmv2="INVALID_ARGUMENT"),
    Row(S, "LPM on nine bits: the last bit is behind a prefix of eight", [insert(lpm(b"\x01\x01", 8, "nine_table"))],
        "INVALID_ARGUMENT"),
    Row(S, "LPM on nine bits: the first bit is a prefix of one", [insert(lpm(b"\x01\x00", 1, "nine_table"))], "OK",
        bmv2="INVALID_ARGUMENT"),
    Row(S, "ternary: a mask of 0 is to be left out", [insert(ternary(value=b"\0", mask=b"\0"))], "INVALID_ARGUMENT"),
    Row(S, "ternary: a bit outside the mask", [insert(ternary(value=b"\x03", mask=b"\x01"))], "INVALID_ARGUMENT"),
    Row(S, "ternary: a value shorter than the mask", [insert(ternary(value=b"\x01", mask=b"\xff\xff"))], "OK"),
    Row(S, "ternary: a value longer than the mask has bits outside it", [insert(ternary(value=b"\x01\x01", mask=b"\xff"))],
        "INVALID_ARGUMENT"),
    Row(S, "ternary: an empty mask", [insert(ternary(value=b"\0", mask=b""))], "INVALID_ARGUMENT"),
    Row(S, "ternary: an empty value", [insert(ternary(value=b"", mask=b"\xff"))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "ternary: a mask that does not fit", [insert(ternary(value=b"\0", mask=b"\x01" + bytes(6)))], "INVALID_ARGUMENT"),
    Row(S, "range: the low bound above the high one", [insert(ranging(b"\x02", b"\x01"))], "INVALID_ARGUMENT"),
    Row(S, "range: one value", [insert(ranging(b"\x02", b"\x02")), read(asking("range_table"))],
        found(ranging(b"\x02", b"\x02")), bmv2=Otherwise(1, "the field left out is read as a range of all values")),
    Row(S, "range: all values are to be left out", [insert(ranging(b"\x00", b"\xff\xff"))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "range: all values but the last", [insert(ranging(b"\x00", b"\xff\xfe"))], "OK"),
    Row(S, "range: 0 to 255, a byte each, are not all values of 16 bits", [insert(ranging(b"\x00", b"\xff"))], "OK",
        bmv2="INVALID_ARGUMENT"),
    Row(S, "range: all values of nine bits are to be left out", [insert(ranging(b"\x00", b"\x01\xff", 2))],
        "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "range: an empty bound", [insert(ranging(b"", b"\x05"))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "range: a bound that does not fit", [insert(ranging(b"\x00", b"\x01\x00\x00"))], "INVALID_ARGUMENT"),
    Row(S, "optional: an empty value", [insert(optional(b""))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "optional: a value that does not fit", [insert(optional(b"\x01" + bytes(6)))], "INVALID_ARGUMENT"),
    Row(S, "the order of match fields means nothing", [
        insert(with_match(P.marking("optional_table", {2: Optional(value=b"\x05")}, 7, priority=1),
                          optional(b"\x01").table_entry.match[0])),
        read(asking("optional_table", {1: Optional(value=b"\1"), 2: Optional(value=b"\5")}, priority=1))],
        found(P.marking("optional_table", {1: Optional(value=b"\1"), 2: Optional(value=b"\5")}, 7, priority=1))),
]  # fmt: skip

S = "Action specification"
ACTIONS = [
    Row(S, "an INSERT needs an action", [insert(KEY)], "INVALID_ARGUMENT"),
    Row(S, "a MODIFY without an action keeps the action", [insert(ENTRY), modify(KEY), read(KEY)], found(ENTRY),
        bmv2="step 2: INVALID_ARGUMENT"),
    Row(S, "a MODIFY without an action changes the rest", [insert(ENTRY), modify(changed(KEY, metadata=b"m")), read(KEY)],
        found(changed(ENTRY, metadata=b"m")), bmv2="step 2: INVALID_ARGUMENT"),
    Row(S, "a MODIFY without an action sets the counter", [insert(ENTRY), modify(counted(KEY, 7, 9)), read(COUNTING)],
        found(counted(ENTRY, 7, 9)), bmv2="step 2: INVALID_ARGUMENT"),
    Row(S, "action id 0", [insert(with_action(p4rt.Action()))], "INVALID_ARGUMENT"),
    Row(S, "an action id that there is not", [insert(with_action(p4rt.Action(action_id=77)))], "INVALID_ARGUMENT"),
    Row(S, "an action that the table does not have", [insert(with_action(P.action("mark", b"\x01")))], "INVALID_ARGUMENT"),
    Row(S, "an action for the default only", [insert(with_action(P.action("NoAction")))], "PERMISSION_DENIED"),
    Row(S, "an action for entries only as the default", [modify(default("ternary_table", P.action("drop")))],
        "PERMISSION_DENIED"),
    Row(S, "a parameter is missing", [insert(with_action(forward()))], "INVALID_ARGUMENT"),
    Row(S, "a parameter too many", [insert(with_action(forward((1, b"\2"), (2, b"\2"))))], "INVALID_ARGUMENT"),
    Row(S, "a parameter that there is not", [insert(with_action(forward((9, b"\2"))))], "INVALID_ARGUMENT"),
    Row(S, "a parameter twice", [insert(with_action(forward((1, b"\2"), (1, b"\2"))))], "INVALID_ARGUMENT"),
    Row(S, "a parameter twice and another missing", [insert(with_action(p4rt.Action(action_id=P.ids["rewrite"], params=[
        {"param_id": 1, "value": b"\2"}, {"param_id": 1, "value": b"\2"}, {"param_id": 2, "value": b"\2"}])))],
        "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "a member id in a direct table", [insert(referring(action_profile_member_id=1))], "INVALID_ARGUMENT"),
    Row(S, "a group id in a direct table", [insert(referring(action_profile_group_id=1))], "INVALID_ARGUMENT"),
    Row(S, "an action set in a direct table", [insert(referring(action_profile_action_set=p4rt.ActionProfileActionSet()))],
        "INVALID_ARGUMENT"),
    Row(S, "an action of no kind", [insert(referring())], "INVALID_ARGUMENT"),
]  # fmt: skip

MARKING = P.action("mark", b"\x07")
S = "Default entry"
DEFAULTS = [
    Row(S, "cannot be inserted", [insert(default("lpm_table", MARKING))], "INVALID_ARGUMENT"),
    Row(S, "cannot be deleted", [delete(default("lpm_table"))], "INVALID_ARGUMENT"),
    Row(S, "has no match", [modify(P.entry("lpm_table", {1: Lpm(value=b"\1", prefix_len=48)}, MARKING,
        is_default_action=True))], "INVALID_ARGUMENT"),
    Row(S, "has no priority", [modify(default("ternary_table", MARKING, priority=1))], "INVALID_ARGUMENT"),
    Row(S, "is what the program says at first", [read(default("lpm_table"))], found(default("lpm_table", P.action("NoAction")))),
    Row(S, "is replaced by MODIFY", [modify(default("lpm_table", MARKING)), read(default("lpm_table"))],
        found(default("lpm_table", MARKING))),
    Row(S, "is followed by packets", [modify(default("lpm_table", MARKING)), insert(ENTRY), passed(frame(1), 2, ether_type_of)],
        7),
    Row(S, "is the program's again after a MODIFY without action", [modify(default("lpm_table", MARKING)),
        modify(default("lpm_table")), read(default("lpm_table"))], found(default("lpm_table", P.action("NoAction")))),
    Row(S, "has metadata", [modify(default("lpm_table", MARKING, metadata=b"x")), read(default("lpm_table"))],
        found(default("lpm_table", MARKING, metadata=b"x"))),
    Row(S, "loses metadata when it is reset", [modify(default("lpm_table", MARKING, metadata=b"x", controller_metadata=3)),
        modify(default("lpm_table")), read(default("lpm_table"))], found(default("lpm_table", P.action("NoAction")))),
    Row(S, "a const one cannot be changed", [modify(default("const_table", MARKING))], "PERMISSION_DENIED"),
    Row(S, "a const one cannot be reset", [modify(default("const_table"))], "PERMISSION_DENIED"),
    Row(S, "a const one is read", [read(default("const_table"))], found(default("const_table", P.action("NoAction")))),
    Row(S, "an action that the table does not have", [modify(default("lpm_table", P.action("forward", b"\2")))],
        "INVALID_ARGUMENT"),
    Row(S, "a parameter that does not fit", [modify(default("lpm_table", P.action("mark", b"\1\0\0")))], "INVALID_ARGUMENT"),
    Row(S, "has no idle timeout", [modify(default("lpm_table", MARKING, idle_timeout_ns=5))], "INVALID_ARGUMENT"),
    Row(S, "has no time since its last hit", [read(changed(default("lpm_table"),
        time_since_last_hit=p4rt.TableEntry.IdleTimeout()))], "INVALID_ARGUMENT", bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "is not among the entries of a table", [modify(default("lpm_table", MARKING)), read(asking("lpm_table"))], found()),
    Row(S, "has a direct counter, which can be set", [modify(counted(default("exact_table", P.action("drop")), 5, 6)),
        read(changed(default("exact_table"), counter_data=p4rt.CounterData()))],
        found(counted(default("exact_table", P.action("drop")), 5, 6)), bmv2=Otherwise(1, "it has none")),
]  # fmt: skip

S = "Constant tables"
CONSTANTS = [
    Row(S, "take no entry", [insert(P.marking("const_table", {1: b"\x05"}, 1))], "PERMISSION_DENIED", bmv2="UNKNOWN"),
    Row(S, "lose no entry", [delete(P.entry("const_table", {1: b"\x90\x01"}))], "PERMISSION_DENIED", bmv2="NOT_FOUND"),
    Row(S, "keep the actions of their entries", [modify(P.marking("const_table", {1: b"\x90\x01"}, 1))], "PERMISSION_DENIED",
        bmv2="NOT_FOUND"),
    Row(S, "refuse even the action that an entry has", [modify(ENTRIES_OF_CONST_TABLE[0])], "PERMISSION_DENIED",
        bmv2="NOT_FOUND"),
    Row(S, "have entries that are read, with is_const", [read(asking("const_table"))], found(*CONST),
        bmv2=Otherwise(2, "is_const is not set")),
    Row(S, "one entry is read by its match", [read(asking("const_table", {1: b"\x90\x01"}))], found(CONST[0]),
        bmv2=Otherwise(1, "is_const is not set")),
]  # fmt: skip

MANY = [ENTRY, P.forwarding(2, 3), P.entry("exact_table", {1: b"\x03"}, P.action("drop"))]
PRIORITIES = [ternary(5), ternary(6), ternary(6, value=b"\x02", mark=8)]
S = "Wildcard reads"
READS = [
    Row(S, "all entries of a table", [insert(*MANY), read(asking("exact_table"))], found(*MANY)),
    Row(S, "all entries of all tables, const tables included", [insert(*MANY, ternary(5)), read(asking())],
        found(*MANY, ternary(5), *CONST), bmv2=Otherwise(6, "is_const is not set")),
    Row(S, "one entry by its match", [insert(*MANY), read(KEY)], found(ENTRY)),
    Row(S, "no entry has this match", [insert(*MANY), read(asking("exact_table", {1: b"\x09"}))], found()),
    Row(S, "a match that is not valid for the table", [read(asking("exact_table", {1: Lpm(value=b"\1", prefix_len=3)}))],
        "INVALID_ARGUMENT", bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "a match without a field that must be there", [read(asking("mixed_table", {2: Lpm(value=b"\1", prefix_len=48)}))],
        "INVALID_ARGUMENT", bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "a table that there is not", [read(asking(table_id=0x02FFFFFF))], "INVALID_ARGUMENT", bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "by action id", [insert(*MANY), read(with_action(p4rt.Action(action_id=P.ids["forward"]), match={}))],
        found(*MANY[:2]), bmv2=Otherwise(3, "not filtered")),
    Row(S, "by an action id that no entry has", [insert(*MANY), read(with_action(p4rt.Action(action_id=P.ids["rewrite"]),
        match={}))], found(), bmv2=Otherwise(3, "not filtered")),
    Row(S, "by priority", [insert(*PRIORITIES), read(asking("ternary_table", priority=6))], found(*PRIORITIES[1:]),
        bmv2=Otherwise(3, "not filtered")),
    Row(S, "by match and priority", [insert(*PRIORITIES), read(asking("ternary_table",
        {1: Ternary(value=b"\1", mask=b"\xff")}, priority=6))], found(PRIORITIES[1])),
    Row(S, "by match alone, whatever the priority", [insert(*PRIORITIES), read(asking("ternary_table",
        {1: Ternary(value=b"\1", mask=b"\xff")}))], found(*PRIORITIES[:2]), bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "by controller_metadata", [insert(ENTRY, changed(MANY[1], controller_metadata=7)),
        read(asking("exact_table", controller_metadata=7))], found(changed(MANY[1], controller_metadata=7)),
        bmv2=Otherwise(2, "not filtered")),
    Row(S, "by metadata", [insert(ENTRY, changed(MANY[1], metadata=b"m")), read(asking("exact_table", metadata=b"m"))],
        found(changed(MANY[1], metadata=b"m")), bmv2=Otherwise(2, "not filtered")),
    Row(S, "by match and metadata", [insert(ENTRY, changed(MANY[1], metadata=b"m")), read(changed(KEY, metadata=b"m"))],
        found(), bmv2=Otherwise(1, "not filtered")),
    Row(S, "an entry that matches everything, by its priority", [insert(P.marking("ternary_table", {}, 1, priority=9),
        *PRIORITIES), read(asking("ternary_table", priority=9))], found(P.marking("ternary_table", {}, 1, priority=9)),
        bmv2=Otherwise(4, "not filtered")),
    Row(S, "without match or priority, all entries", [insert(P.marking("lpm_table", {}, 1), lpm(b"\x01", 48)),
        read(asking("lpm_table"))], found(P.marking("lpm_table", {}, 1), lpm(b"\x01", 48))),
]  # fmt: skip

S = "Direct resources"
RESOURCES = [
    Row(S, "a counter begins with 0", [insert(ENTRY), read(COUNTING)], found(counted(ENTRY))),
    Row(S, "an INSERT sets the counter", [insert(counted(ENTRY, 5, 6)), read(COUNTING)], found(counted(ENTRY, 5, 6))),
    Row(S, "a MODIFY without counter_data keeps the counter", [insert(counted(ENTRY, 5, 6)), modify(OTHER), read(COUNTING)],
        found(counted(OTHER, 5, 6))),
    Row(S, "a MODIFY sets the counter", [insert(counted(ENTRY, 5, 6)), modify(counted(ENTRY, 1, 2)), read(COUNTING)],
        found(counted(ENTRY, 1, 2))),
    Row(S, "a Read that does not ask for the counter gets none", [insert(counted(ENTRY, 5, 6)), read(KEY)], found(ENTRY)),
    Row(S, "packets count", [insert(ENTRY), passed(frame(1), 2, lambda _: "OK"), read(COUNTING)], found(counted(ENTRY, 1, 64))),
    Row(S, "a new entry in the place of an old one counts from 0", [insert(counted(ENTRY, 5, 6)), delete(KEY), insert(ENTRY),
        read(COUNTING)], found(counted(ENTRY))),
    Row(S, "a counter where the table has none", [insert(counted(lpm(b"\x01", 48), 1))], "INVALID_ARGUMENT"),
    Row(S, "a meter where the table has none", [insert(changed(ENTRY, meter_config=p4rt.MeterConfig(cir=1)))],
        "INVALID_ARGUMENT"),
]  # fmt: skip

NEVER = p4rt.TableEntry.IdleTimeout()
S = "Idle timeout"
IDLE = [
    Row(S, "idle_timeout_ns where the table has none", [insert(changed(ENTRY, idle_timeout_ns=5))], "INVALID_ARGUMENT"),
    Row(S, "a negative idle_timeout_ns", [insert(changed(ENTRY, idle_timeout_ns=-1))], "INVALID_ARGUMENT"),
    Row(S, "time_since_last_hit in a Write", [insert(changed(ENTRY, time_since_last_hit=NEVER))], "INVALID_ARGUMENT"),
    Row(S, "time_since_last_hit in a Read where the table has none", [read(changed(KEY, time_since_last_hit=NEVER))],
        "INVALID_ARGUMENT", bmv2="RPC INVALID_ARGUMENT"),
]  # fmt: skip

ROWS = [*IDLE, *TABLES, *BYTESTRINGS, *MATCHES, *ACTIONS, *DEFAULTS, *CONSTANTS, *READS, *RESOURCES]


@pytest.mark.parametrize(("p4rt_switch", "row"), cases(ROWS), indirect=["p4rt_switch"])
def test_row(row: Row, world: World) -> None:
    row.check(world)
