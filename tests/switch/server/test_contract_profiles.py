# SPDX-License-Identifier: MIT
"""The specification's chapters on action profiles and meters, row by row."""

from __future__ import annotations

from typing import Any

import pytest
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.core.switches import call
from tests.switch.harness.contract import (
    Otherwise,
    Row,
    World,
    cases,
    delete,
    found,
    how_many,
    insert,
    modify,
    passed,
    read,
    refused,
)
from tests.switch.harness.controller import Program
from tests.switch.server.test_action_profiles import balanced, group, member, with_set
from tests.switch.server.test_meters import cell, config, entry

P = Program("constructs")
PROFILE, SELECTOR = P.ids["notes"], P.ids["balance"]


@pytest.fixture(scope="module")
def program() -> Program:
    return P


def action(value: bytes, name: str = "note") -> Any:
    return P.action(name, value)


def members(*numbers: int) -> Any:
    return insert(*(member(P, each, each) for each in numbers))


def grouped(*members_: Any, number: int = 1, max_size: int = 0) -> Any:
    """A group with members as messages."""
    entity = group(P, number, {}, max_size)
    entity.action_profile_group.members.extend(p4rt.ActionProfileGroup.Member(**each) for each in members_)
    return entity


def reading(kind: str, profile: int = 0, number: int = 0) -> Any:
    """A request for members or groups."""
    names = {"member": "member_id", "group": "group_id"}
    return p4rt.Entity(**{f"action_profile_{kind}": {"action_profile_id": profile, names[kind]: number}})


def first(**refers: Any) -> Any:
    """An entry of the table whose profile has no selector."""
    entity = P.entry("first", {1: b"\x01"})
    entity.table_entry.action.CopyFrom(p4rt.TableAction(**refers))
    return entity


def one_shot(*actions: Any, index: int = 1) -> Any:
    """An entry with an action set; each a dictionary of an ActionProfileAction's fields."""
    entity = balanced(P, index)
    entity.table_entry.action.action_profile_action_set.SetInParent()
    for each in actions:
        entity.table_entry.action.action_profile_action_set.action_profile_actions.add(**each)
    return entity


def noted(data: bytes | None) -> int:
    return int.from_bytes((data or b"")[20:24], "big")


TO_ONE = balanced(P, action_profile_member_id=1)
TO_GROUP = balanced(P, action_profile_group_id=1)
BALANCED = P.entry("balanced", {})
UNKNOWN_ACTION = p4rt.Entity(action_profile_member={"action_profile_id": SELECTOR, "member_id": 1,
    "action": {"action_id": P.ids["colored"]}})  # fmt: skip

S = "ActionProfileMember"
MEMBERS = [
    Row(S, "a member is read as it was written", [members(1), read(reading("member", SELECTOR, 1))], found(member(P, 1, 1))),
    Row(S, "parameters are read in canonical form", [insert(p4rt.Entity(action_profile_member={"action_profile_id": SELECTOR,
        "member_id": 1, "action": action(b"\0\0\0\1")})), read(reading("member"))], found(member(P, 1, 1))),
    Row(S, "a member that exists", [members(1), members(1)], "ALREADY_EXISTS"),
    Row(S, "member id 0", [members(0)], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "no action in an INSERT", [insert(reading("member", SELECTOR, 1))], "INVALID_ARGUMENT"),
    Row(S, "no action in a MODIFY", [members(1), modify(reading("member", SELECTOR, 1))], "INVALID_ARGUMENT"),
    Row(S, "an action that the tables do not have", [insert(UNKNOWN_ACTION)], "INVALID_ARGUMENT"),
    Row(S, "a parameter that does not fit", [insert(p4rt.Entity(action_profile_member={"action_profile_id": SELECTOR,
        "member_id": 1, "action": action(b"\1\0\0\0\0")}))], "INVALID_ARGUMENT"),
    Row(S, "MODIFY of a member that is not there", [modify(member(P, 1, 1))], "NOT_FOUND"),
    Row(S, "DELETE of a member that is not there", [delete(reading("member", SELECTOR, 1))], "NOT_FOUND"),
    Row(S, "DELETE needs the ids alone", [members(1), delete(reading("member", SELECTOR, 1)), read(reading("member"))], found()),
    Row(S, "DELETE of a member of a group", [members(1), insert(group(P, 1, {1: 1})), delete(member(P, 1, 1))],
        "FAILED_PRECONDITION", bmv2="UNKNOWN"),
    Row(S, "DELETE of a member of an entry", [members(1), insert(TO_ONE), delete(member(P, 1, 1))], "FAILED_PRECONDITION",
        bmv2="UNKNOWN"),
    Row(S, "packets follow MODIFY", [members(1), insert(TO_ONE), modify(member(P, 1, 9)), passed(call(4, 1, 5), 1, noted)], 9),
    Row(S, "packets follow MODIFY in all groups", [members(1), insert(group(P, 1, {1: 2})), insert(TO_GROUP),
        modify(member(P, 1, 9)), passed(call(4, 1, 5), 1, noted)], 9),
    Row(S, "a profile that there is not", [insert(p4rt.Entity(action_profile_member={"action_profile_id": 77, "member_id": 1,
        "action": action(b"\1")}))], "INVALID_ARGUMENT"),
    Row(S, "reading all members of a profile", [members(1, 2), insert(member(P, 1, 1, "notes")),
        read(reading("member", SELECTOR))], found(member(P, 1, 1), member(P, 2, 2))),
    Row(S, "reading all members of all profiles", [members(1, 2), insert(member(P, 1, 1, "notes")), read(reading("member"))],
        found(member(P, 1, 1), member(P, 2, 2), member(P, 1, 1, "notes"))),
    Row(S, "a member is read once, whatever its weight", [members(1), insert(group(P, 1, {1: 3})), read(reading("member"))],
        found(member(P, 1, 1)), bmv2=Otherwise(3, "a member is read as often as its weight needs copies")),
    Row(S, "more members than the profile's size", [insert(*(member(P, each, 1, "notes") for each in range(1, 17))),
        insert(member(P, 17, 1, "notes"))], "RESOURCE_EXHAUSTED", bmv2="OK"),
]  # fmt: skip

S = "ActionProfileGroup"
GROUPS = [
    Row(S, "a group is read as it was written", [members(1, 2), insert(group(P, 1, {1: 1, 2: 3})), read(reading("group"))],
        found(group(P, 1, {1: 1, 2: 3}))),
    Row(S, "a group that exists", [members(1), insert(group(P, 1, {1: 1})), insert(group(P, 1, {1: 1}))], "ALREADY_EXISTS"),
    Row(S, "group id 0", [members(1), insert(group(P, 0, {1: 1}))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "a member and a group of one id", [members(5), insert(group(P, 5, {5: 1}))], "OK"),
    Row(S, "a member that is not there", [members(1), insert(group(P, 1, {1: 1, 2: 1}))], "NOT_FOUND"),
    Row(S, "a refused INSERT leaves no group", [members(1), refused(insert(group(P, 1, {2: 1}))),
        read(reading("group"))], found(), bmv2=Otherwise(1, "a group without members stays")),
    Row(S, "a member that is not there, in a MODIFY", [members(1), insert(group(P, 1, {1: 1})), modify(group(P, 1, {2: 1}))],
        "NOT_FOUND"),
    Row(S, "a refused MODIFY leaves the group as it is", [members(1), insert(group(P, 1, {1: 1})),
        refused(modify(group(P, 1, {2: 1}))), read(reading("group"))], found(group(P, 1, {1: 1}))),
    Row(S, "MODIFY replaces the members", [members(1, 2), insert(group(P, 1, {1: 1})), modify(group(P, 1, {2: 2})),
        read(reading("group"))], found(group(P, 1, {2: 2}))),
    Row(S, "MODIFY of a group that is not there", [modify(group(P, 1, {}))], "NOT_FOUND"),
    Row(S, "DELETE of a group that is not there", [delete(group(P, 1, {}))], "NOT_FOUND"),
    Row(S, "DELETE needs the ids alone", [members(1), insert(group(P, 1, {1: 1})), delete(reading("group", SELECTOR, 1)),
        read(reading("group"))], found()),
    Row(S, "DELETE of a group of an entry", [members(1), insert(group(P, 1, {1: 1})), insert(TO_GROUP),
        delete(group(P, 1, {}))], "FAILED_PRECONDITION", bmv2="UNKNOWN"),
    Row(S, "weight 0", [members(1), insert(group(P, 1, {1: 0}))], "INVALID_ARGUMENT"),
    Row(S, "a negative weight", [members(1), insert(group(P, 1, {1: -1}))], "INVALID_ARGUMENT"),
    Row(S, "a member twice", [members(1), insert(grouped({"member_id": 1, "weight": 1}, {"member_id": 1, "weight": 1}))],
        "INVALID_ARGUMENT"),
    Row(S, "a member in two groups", [members(1), insert(group(P, 1, {1: 1})), insert(group(P, 2, {1: 1}))], "OK"),
    Row(S, "a watched port is read back", [members(1), insert(grouped({"member_id": 1, "weight": 1, "watch_port": b"\2"})),
        read(reading("group"))], found(grouped({"member_id": 1, "weight": 1, "watch_port": b"\2"}))),
    Row(S, "a watched port that there is not", [members(1), insert(grouped({"member_id": 1, "weight": 1,
        "watch_port": b"\x63"}))], "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "max_size is read back", [members(1), insert(group(P, 1, {1: 1}, 3)), read(reading("group"))],
        found(group(P, 1, {1: 1}, 3))),
    Row(S, "max_size is changed by a MODIFY", [members(1), insert(group(P, 1, {1: 1}, 3)), modify(group(P, 1, {1: 1}, 4))],
        "INVALID_ARGUMENT"),
    Row(S, "max_size is left out of a MODIFY", [members(1), insert(group(P, 1, {1: 1}, 3)), modify(group(P, 1, {1: 1}))],
        "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "a negative max_size", [members(1), insert(group(P, 1, {1: 1}, -1))], "INVALID_ARGUMENT"),
    Row(S, "weights beyond max_size", [members(1), insert(group(P, 1, {1: 4}, 3))], "RESOURCE_EXHAUSTED"),
    Row(S, "an empty group", [insert(group(P, 1, {})), read(reading("group"))], found(group(P, 1, {}))),
    Row(S, "reading all groups of a profile", [members(1), insert(group(P, 1, {1: 1}), group(P, 2, {1: 1})),
        read(reading("group", SELECTOR), seen=how_many)], 2),
    Row(S, "a profile without a selector has no groups", [insert(p4rt.Entity(action_profile_group={
        "action_profile_id": PROFILE, "group_id": 1}))], "INVALID_ARGUMENT", bmv2="OK"),
]  # fmt: skip

S = "Entries of indirect tables"
ENTRIES = [
    Row(S, "a member id is read back", [members(1), insert(TO_ONE), read(BALANCED)], found(TO_ONE)),
    Row(S, "a group id is read back", [members(1), insert(group(P, 1, {1: 1})), insert(TO_GROUP), read(BALANCED)],
        found(TO_GROUP)),
    Row(S, "a member that is not there", [insert(TO_ONE)], "NOT_FOUND", bmv2="INVALID_ARGUMENT"),
    Row(S, "a group that is not there", [insert(TO_GROUP)], "NOT_FOUND", bmv2="INVALID_ARGUMENT"),
    Row(S, "an action", [insert(first(action=action(b"\1")))], "INVALID_ARGUMENT"),
    Row(S, "a group id where there is no selector", [insert(first(action_profile_group_id=1))], "INVALID_ARGUMENT"),
    Row(S, "an action set where there is no selector", [insert(first(action_profile_action_set={"action_profile_actions": [
        {"action": action(b"\1"), "weight": 1}]}))], "INVALID_ARGUMENT", bmv2="UNKNOWN"),
    Row(S, "the default entry cannot be changed", [modify(P.entry("balanced", {}, action(b"\1"), is_default_action=True))],
        "INVALID_ARGUMENT"),
    Row(S, "the default entry is NoAction", [read(P.entry("balanced", {}, is_default_action=True))],
        found(P.entry("balanced", {}, P.action("NoAction"), is_default_action=True)), bmv2=Otherwise(1, "without an action")),
]  # fmt: skip

NOTE_1 = {"action": action(b"\1"), "weight": 1}
S = "One-shot programming"
ONE_SHOTS = [
    Row(S, "an action set is read as it was written", [insert(with_set(P, {1: 1, 2: 3})), read(BALANCED)],
        found(with_set(P, {1: 1, 2: 3}))),
    Row(S, "parameters are read in canonical form", [insert(one_shot({"action": action(b"\0\0\0\1"), "weight": 1})),
        read(BALANCED)], found(one_shot(NOTE_1))),
    Row(S, "the same action twice is not merged", [insert(one_shot(NOTE_1, NOTE_1)), read(BALANCED)],
        found(one_shot(NOTE_1, NOTE_1))),
    Row(S, "a watched port is read back", [insert(one_shot({**NOTE_1, "watch_port": b"\2"})), read(BALANCED)],
        found(one_shot({**NOTE_1, "watch_port": b"\2"}))),
    Row(S, "a watched port that there is not", [insert(one_shot({**NOTE_1, "watch_port": b"\x63"}))], "INVALID_ARGUMENT",
        bmv2="OK"),
    Row(S, "weight 0", [insert(one_shot({"action": action(b"\1")}))], "INVALID_ARGUMENT"),
    Row(S, "an action that the table does not have", [insert(one_shot({"action": P.action("colored", b"\1"), "weight": 1}))],
        "INVALID_ARGUMENT"),
    Row(S, "MODIFY replaces the set", [insert(with_set(P, {1: 1})), modify(with_set(P, {2: 1})), read(BALANCED)],
        found(with_set(P, {2: 1}))),
    Row(S, "DELETE removes the set", [insert(with_set(P, {1: 1})), delete(balanced(P)), read(BALANCED)], found()),
    Row(S, "packets follow it", [insert(with_set(P, {9: 1})), passed(call(4, 1, 5), 1, noted)], 9),
    Row(S, "different actions in one set", [insert(one_shot(NOTE_1, {"action": action(b"\1", "add"), "weight": 1}))], "OK"),
    Row(S, "a member beside action sets", [insert(with_set(P, {1: 1})), members(1)], "INVALID_ARGUMENT"),
    Row(S, "a group beside action sets", [insert(with_set(P, {1: 1})), insert(group(P, 1, {}))], "INVALID_ARGUMENT"),
    Row(S, "an action set beside members", [members(1), insert(with_set(P, {1: 1}))], "INVALID_ARGUMENT"),
    Row(S, "all members are read beside action sets: none", [insert(with_set(P, {1: 1})), read(reading("member"))], found(),
        bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "all groups are read beside action sets: none", [insert(with_set(P, {1: 1})), read(reading("group"))], found(),
        bmv2="RPC INVALID_ARGUMENT"),
]  # fmt: skip

S = "MeterEntry"
VALUES = (1000, 5, 2000, 10)


def meter(index: int | None = 0, **fields: int) -> Any:
    """A MeterEntry with a configuration of these fields."""
    entity = cell(P, "packets", index)
    entity.meter_entry.config.CopyFrom(p4rt.MeterConfig(**fields))
    return entity


def of_number(number: int, index: int | None = 0, values: Any = None) -> Any:
    entity = cell(P, "packets", index, values)
    entity.meter_entry.meter_id = number
    return entity


def counting(entity: Any) -> Any:
    """The same with counters for each color."""
    kind = entity.WhichOneof("entity")
    message = getattr(entity, kind)
    getattr(message, "meter_counter_data" if kind == "table_entry" else "counter_data").SetInParent()
    return entity


METERS = [
    Row(S, "a cell has no configuration at first", [read(cell(P, "packets", 0))], found(cell(P, "packets", 0))),
    Row(S, "a configuration is read as it was written", [modify(cell(P, "packets", 0, VALUES)), read(cell(P, "packets", 0))],
        found(cell(P, "packets", 0, VALUES))),
    Row(S, "so are all rates", [modify(cell(P, "packets", 0, (249, 5, 12345677, 10))), read(cell(P, "packets", 0))],
        found(cell(P, "packets", 0, (249, 5, 12345677, 10))), bmv2=Otherwise(1, "249 is read as 248")),
    Row(S, "MODIFY without a configuration resets a cell", [modify(cell(P, "packets", 0, VALUES)), modify(cell(P, "packets", 0)),
        read(cell(P, "packets", 0))], found(cell(P, "packets", 0))),
    Row(S, "MODIFY without index sets all cells", [modify(cell(P, "packets", None, VALUES)), read(cell(P, "packets"))],
        found(*(cell(P, "packets", each, VALUES) for each in range(4))), bmv2="step 1: UNIMPLEMENTED"),
    Row(S, "INSERT is refused", [insert(cell(P, "packets", 0, VALUES))], "INVALID_ARGUMENT"),
    Row(S, "DELETE is refused", [delete(cell(P, "packets", 0))], "INVALID_ARGUMENT"),
    Row(S, "writing to a negative index", [modify(cell(P, "packets", -1, VALUES))], "INVALID_ARGUMENT"),
    Row(S, "writing beyond the last index", [modify(cell(P, "packets", 4, VALUES))], "OUT_OF_RANGE", bmv2="UNKNOWN"),
    Row(S, "reading a negative index", [read(cell(P, "packets", -1))], "INVALID_ARGUMENT", bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "reading beyond the last index", [read(cell(P, "packets", 4))], "OUT_OF_RANGE", bmv2="RPC UNKNOWN"),
    Row(S, "writing to an id that there is not", [modify(of_number(77, values=VALUES))], "INVALID_ARGUMENT"),
    Row(S, "reading an id that there is not", [read(of_number(77))], "INVALID_ARGUMENT", bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "reading all cells of all meters", [read(of_number(0, None), seen=how_many)], 8),
    Row(S, "eburst of a meter of two rates", [modify(meter(cir=1, cburst=1, pir=1, pburst=1, eburst=1))], "INVALID_ARGUMENT",
        bmv2="OK"),
    Row(S, "a peak rate below the committed one", [modify(meter(cir=2, cburst=1, pir=1, pburst=1))], "INVALID_ARGUMENT",
        bmv2="UNKNOWN"),
    Row(S, "a negative rate", [modify(meter(cir=-2, cburst=1, pir=1, pburst=1))], "INVALID_ARGUMENT"),
    Row(S, "counters of colors, in a Write", [modify(counting(cell(P, "packets", 0, VALUES)))], "UNIMPLEMENTED", bmv2="OK"),
    Row(S, "counters of colors, in a Read", [read(counting(cell(P, "packets", 0)))], "UNIMPLEMENTED",
        bmv2=Otherwise(1, "they are ignored")),
]  # fmt: skip


def direct(key: int = 1, values: Any = None, table: str = "metered") -> Any:
    entity = p4rt.Entity()
    entity.direct_meter_entry.table_entry.CopyFrom(P.entry(table, {1: bytes([key])}).table_entry)
    if values is not None:
        entity.direct_meter_entry.config.CopyFrom(config(values))
    return entity


METERED = P.entry("metered", {})
METERED.table_entry.meter_config.SetInParent()
ENTRY, WITH = entry(P, 1), entry(P, 1, VALUES)
KEY = P.entry("metered", {1: b"\1"})

S = "DirectMeterEntry and meter_config"
DIRECT = [
    Row(S, "an INSERT sets the meter", [insert(WITH), read(METERED)], found(WITH)),
    Row(S, "an INSERT without it leaves the default", [insert(ENTRY), read(METERED)], found(ENTRY)),
    Row(S, "an entry in the place of another has the default", [insert(WITH), delete(KEY), insert(ENTRY), read(METERED)],
        found(ENTRY), bmv2=Otherwise(1, "it has the meter of the old one")),
    Row(S, "a MODIFY sets the meter", [insert(ENTRY), modify(WITH), read(METERED)], found(WITH)),
    Row(S, "a MODIFY without it resets the meter", [insert(WITH), modify(ENTRY), read(METERED)], found(ENTRY),
        bmv2=Otherwise(1, "the meter stays")),
    Row(S, "a Read that does not ask for it gets none", [insert(WITH), read(P.entry("metered", {}))], found(ENTRY)),
    Row(S, "MODIFY sets the meter beside an entry", [insert(ENTRY), modify(direct(values=VALUES)), read(METERED)], found(WITH)),
    Row(S, "is read beside an entry", [insert(WITH), read(direct())], found(direct(values=VALUES))),
    Row(S, "MODIFY without a configuration resets it", [insert(WITH), modify(direct()), read(direct())], found(direct())),
    Row(S, "INSERT is refused", [insert(ENTRY), insert(direct(values=VALUES))], "INVALID_ARGUMENT"),
    Row(S, "DELETE is refused", [insert(ENTRY), delete(direct())], "INVALID_ARGUMENT"),
    Row(S, "writing beside no entry", [modify(direct(9, VALUES))], "NOT_FOUND", bmv2="INVALID_ARGUMENT"),
    Row(S, "reading beside no entry", [read(direct(9))], "NOT_FOUND", bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "is gone with its entry", [insert(WITH), delete(KEY), read(direct())], "NOT_FOUND", bmv2="RPC INVALID_ARGUMENT"),
    Row(S, "a table without a meter", [modify(direct(values=VALUES, table="first"))], "INVALID_ARGUMENT"),
    Row(S, "eburst of a meter of two rates", [insert(ENTRY), modify(p4rt.Entity(direct_meter_entry={
        "table_entry": KEY.table_entry, "config": {"cir": 1, "cburst": 1, "pir": 1, "pburst": 1, "eburst": 1}}))],
        "INVALID_ARGUMENT", bmv2="OK"),
    Row(S, "a peak rate below the committed one", [insert(entry(P, 1, (2, 1, 1, 1)))], "INVALID_ARGUMENT", bmv2="UNKNOWN"),
    Row(S, "counters of colors, in a Write", [insert(ENTRY), modify(counting(direct()))], "UNIMPLEMENTED", bmv2="OK"),
    Row(S, "counters of colors, in an entry", [insert(counting(entry(P, 1)))], "UNIMPLEMENTED", bmv2="OK"),
    Row(S, "counters of colors, in a Read", [insert(ENTRY), read(counting(P.entry("metered", {})))], "UNIMPLEMENTED",
        bmv2=Otherwise(1, "they are ignored")),
]  # fmt: skip

ROWS = [*MEMBERS, *GROUPS, *ENTRIES, *ONE_SHOTS, *METERS, *DIRECT]


@pytest.mark.parametrize(("p4rt_switch", "row"), cases(ROWS), indirect=["p4rt_switch"])
def test_row(row: Row, world: World) -> None:
    row.check(world)
