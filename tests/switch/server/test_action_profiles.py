# SPDX-License-Identifier: MIT
"""ActionProfileMember, ActionProfileGroup, and entries that refer to them or bring an action set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.core.switches import call, crc16
from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.controller import DELETE, INSERT, MODIFY, Controller, Program

INVALID, UNKNOWN, NOT_FOUND = code_pb2.INVALID_ARGUMENT, code_pb2.UNKNOWN, code_pb2.NOT_FOUND
BALANCED, SHARED = 4, 7
MIXED = "Invalid attempt to mix action selector programming modes"


@pytest.fixture(scope="module")
def program() -> Program:
    return Program("constructs")


def member(program: Program, number: int, value: int, profile: str = "balance") -> Any:
    """A member that notes a value."""
    entity = p4rt.Entity()
    entity.action_profile_member.action_profile_id = program.ids[profile]
    entity.action_profile_member.member_id = number
    entity.action_profile_member.action.CopyFrom(program.action("note", bytes([value])))
    return entity


def group(program: Program, number: int, weights: Mapping[int, int], max_size: int = 0) -> Any:
    """A group of members with weights."""
    entity = p4rt.Entity()
    message = entity.action_profile_group
    message.action_profile_id, message.group_id, message.max_size = program.ids["balance"], number, max_size
    for each, weight in weights.items():
        message.members.add(member_id=each, weight=weight)
    return entity


def balanced(program: Program, index: int = 1, **refers: int) -> Any:
    """An entry of the table with a selector; `refers` is action_profile_member_id or action_profile_group_id."""
    match = {1: p4rt.FieldMatch.Ternary(value=bytes([index]), mask=b"\xff")}
    entity = program.entry("balanced", match, priority=1)
    for name, number in refers.items():
        setattr(entity.table_entry.action, name, number)
    return entity


def with_set(program: Program, weights: Mapping[int, int], index: int = 1) -> Any:
    """An entry with an action set, by noted value."""
    entity = balanced(program, index)
    for value, weight in weights.items():
        each = entity.table_entry.action.action_profile_action_set.action_profile_actions.add(weight=weight)
        each.action.CopyFrom(program.action("note", bytes([value])))
    return entity


def noted(switch: SwitchUnderTest, a: int, index: int = 1, operation: int = BALANCED, b: int = 0) -> int:
    """The value that comes back for a frame; it was 0."""
    out = switch.passed(call(operation, index, a, b), 1)
    assert out is not None
    return int.from_bytes(out[20:24], "big")


def hashed(a: int) -> int:
    """The selector's hash: of the call's a and Ethernet's source."""
    frame = call(BALANCED, a=a)
    return crc16(frame[16:20] + frame[6:12])


def test_a_hash_chooses_among_the_members_of_a_group(
    controller: Controller, program: Program, p4rt_switch: SwitchUnderTest
) -> None:
    controller.write(INSERT, *(member(program, number, 10 * number) for number in (3, 1, 2)))
    controller.write(INSERT, group(program, 7, {1: 1, 2: 1, 3: 1}), balanced(program, action_profile_group_id=7))
    order = [30, 10, 20]  # as they were made
    assert [noted(p4rt_switch, a) for a in range(16)] == [order[hashed(a) % 3] for a in range(16)]
    controller.write(MODIFY, member(program, 1, 99))
    controller.write(MODIFY, group(program, 7, {1: 1, 2: 1}))
    assert [noted(p4rt_switch, a) for a in range(16)] == [[99, 20][hashed(a) % 2] for a in range(16)]


def test_weights(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    controller.write(INSERT, member(program, 1, 10), member(program, 2, 20))
    heavy = group(program, 1, {1: 3, 2: 1}, max_size=9)
    controller.write(INSERT, heavy, balanced(program, action_profile_group_id=1))
    # The handles: two members, then two copies of the first.
    order = [10, 20, 10, 10]
    assert [noted(p4rt_switch, a) for a in range(16)] == [order[hashed(a) % 4] for a in range(16)]
    assert controller.read(group(program, 1, {})) == [heavy]
    controller.write(MODIFY, group(program, 1, {1: 1}, max_size=9))
    assert {noted(p4rt_switch, a) for a in range(8)} == {10}
    everything = p4rt.Entity(action_profile_member={})
    assert sorted(each.action_profile_member.member_id for each in controller.read(everything)) == [1, 2]


def sharing(controller: Controller, program: Program) -> list[Any]:
    """Entries of two tables of one profile: one notes 100, the other adds 5 to a b between 96 and 127."""
    adding = member(program, 2, 0, "notes")
    adding.action_profile_member.action.CopyFrom(program.action("add", b"\x05"))
    controller.write(INSERT, member(program, 1, 100, "notes"), adding)
    first = program.entry("first", {1: b"\x01"})
    second = program.entry("second", {1: p4rt.FieldMatch.LPM(value=b"\x60", prefix_len=27)})
    first.table_entry.action.action_profile_member_id = 1
    second.table_entry.action.action_profile_member_id = 2
    return [first, second]


def test_a_profile_without_a_selector(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    """`switch (table.apply().action_run)` goes by the member's action."""
    _, second = sharing(controller, program)
    controller.write(INSERT, second)
    assert p4rt_switch.passed(call(SHARED, 0, 2, 96), 1) == call(SHARED, 0xAA, 2, 101)
    controller.write(MODIFY, member(program, 2, 7, "notes"))
    assert noted(p4rt_switch, 2, operation=SHARED, b=96) == 7
    assert controller.read(second) == [second]
    second.table_entry.action.action_profile_member_id = 1
    controller.write(MODIFY, second)
    assert noted(p4rt_switch, 2, operation=SHARED, b=127) == 100


def test_tables_share_members(p4rt_embedded: SwitchUnderTest, program: Program) -> None:
    """p4c gives each table its own copy of an action, which simple_switch_grpc does not survive: all but one of the copies have
    no place in it."""
    with Controller(p4rt_embedded.grpc_address).become_primary() as controller:
        controller.push(program)
        controller.write(INSERT, *sharing(controller, program))
        assert p4rt_embedded.passed(call(SHARED, 0, 1, 0), 1) == call(SHARED, 0xAA, 1, 105)
        controller.write(MODIFY, member(program, 2, 7, "notes"), member(program, 1, 127, "notes"))
        assert noted(p4rt_embedded, 1, operation=SHARED) == 7


def test_a_miss_and_a_direct_member(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    controller.write(INSERT, member(program, 1, 10), balanced(program, action_profile_member_id=1))
    assert noted(p4rt_switch, 0) == 10
    assert p4rt_switch.passed(call(BALANCED, 2), 1) == call(0xFF, 2)
    assert controller.read(balanced(program)) == [balanced(program, action_profile_member_id=1)]


def test_action_sets(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    entry = with_set(program, {10: 1, 20: 2})
    controller.write(INSERT, entry, with_set(program, {30: 1}, index=2))
    order = [10, 20, 20]
    assert [noted(p4rt_switch, a) for a in range(16)] == [order[hashed(a) % 3] for a in range(16)]
    assert noted(p4rt_switch, 0, index=2) == 30
    assert controller.read(balanced(program)) == [entry]
    controller.write(MODIFY, with_set(program, {40: 1}))
    assert noted(p4rt_switch, 5) == 40
    assert controller.refused(INSERT, member(program, 1, 1)) == (INVALID, MIXED)
    assert controller.refused(MODIFY, balanced(program, action_profile_group_id=1)) == (INVALID, MIXED)
    controller.write(DELETE, balanced(program), balanced(program, index=2))
    controller.write(INSERT, member(program, 1, 1))  # nothing of the other kind remains
    assert controller.refused(INSERT, with_set(program, {10: 1})) == (INVALID, MIXED)


def test_what_is_used_is_not_deleted(controller: Controller, program: Program) -> None:
    controller.write(INSERT, member(program, 1, 10), group(program, 1, {1: 1}), balanced(program, action_profile_group_id=1))
    controller.refused(DELETE, member(program, 1, 10))
    controller.refused(DELETE, group(program, 1, {}))
    controller.write(DELETE, balanced(program))
    controller.write(DELETE, group(program, 1, {}), member(program, 1, 10))
    assert controller.read(p4rt.Entity(action_profile_member={}), p4rt.Entity(action_profile_group={})) == []


def test_refused_members(controller: Controller, program: Program) -> None:
    controller.write(INSERT, member(program, 1, 10))
    assert controller.refused(INSERT, member(program, 1, 10)) == (code_pb2.ALREADY_EXISTS, "Duplicate member id: 1")
    for update in (MODIFY, DELETE):
        assert controller.refused(update, member(program, 2, 10)) == (NOT_FOUND, "Member id does not exist: 2")
    other = member(program, 3, 10)
    other.action_profile_member.action.CopyFrom(program.action("colored", b"\x01"))
    assert controller.refused(INSERT, other) == (INVALID, "Invalid action for action profile")
    other.action_profile_member.action_profile_id = 5
    assert controller.refused(INSERT, other) == (INVALID, "Invalid P4 id")


def test_refused_groups(controller: Controller, program: Program) -> None:
    controller.write(INSERT, member(program, 1, 10), group(program, 1, {1: 1}, max_size=3))
    cases = [
        (INSERT, group(program, 1, {}), code_pb2.ALREADY_EXISTS, "Duplicate group id: 1"),
        (INSERT, group(program, 2, {}, max_size=-1), INVALID, "Group max_size cannot be less than 0"),
        (MODIFY, group(program, 2, {}), NOT_FOUND, "Group id does not exist: 2"),
        (DELETE, group(program, 2, {}), NOT_FOUND, "Group id does not exist: 2"),
        (MODIFY, group(program, 1, {1: 0}, max_size=3), INVALID, "Member weight must be a positive integer value"),
        (MODIFY, group(program, 1, {9: 1}, max_size=3), NOT_FOUND, "Member id does not exist: 9"),
        (MODIFY, group(program, 1, {1: 1}, max_size=4), INVALID, "Cannot change group max_size after group creation"),
        (
            MODIFY, group(program, 1, {1: 4}, max_size=3), code_pb2.RESOURCE_EXHAUSTED,
            "Sum of member weights exceeds maximum group size",
        ),
    ]  # fmt: skip
    for update, entity, code, message in cases:
        assert controller.refused(update, entity) == (code, message)
    assert controller.read(group(program, 1, {})) == [group(program, 1, {1: 1}, max_size=3)]


def test_refused_entries(controller: Controller, program: Program) -> None:
    table = program.ids["balanced"]
    default = program.entry("balanced", {}, program.action("note", b"\x01"), is_default_action=True)
    plain = balanced(program)
    plain.table_entry.action.action.CopyFrom(program.action("note", b"\x01"))
    strange = program.entry("metered", {1: b"\x01"})
    strange.table_entry.action.action_profile_member_id = 1
    controller.write(INSERT, group(program, 3, {}))
    cases = [
        (MODIFY, default, INVALID, f"Cannot set / reset default action for indirect table {table}"),
        (INSERT, plain, INVALID, f"Cannot provide direct action for indirect table {table}"),
        (INSERT, strange, INVALID, f"Cannot provide indirect action for direct table {program.ids['metered']}"),
    ]
    for update, entity, code, message in cases:
        assert controller.refused(update, entity) == (code, message)
    controller.refused(INSERT, balanced(program, action_profile_group_id=3))  # it is empty
    controller.write(DELETE, group(program, 3, {}))
    empty = balanced(program)
    empty.table_entry.action.action_profile_action_set.SetInParent()
    assert controller.refused(INSERT, empty) == (code_pb2.UNIMPLEMENTED, "No support for empty action profile groups")


def test_a_group_that_has_become_empty_does_nothing(p4rt_embedded: SwitchUnderTest, program: Program) -> None:
    """On simple_switch_grpc the result is undefined."""
    with Controller(p4rt_embedded.grpc_address).become_primary() as controller:
        controller.push(program)
        controller.write(INSERT, member(program, 1, 10), group(program, 1, {1: 1}), balanced(program, action_profile_group_id=1))
        assert noted(p4rt_embedded, 0) == 10
        controller.write(MODIFY, group(program, 1, {}))
        assert noted(p4rt_embedded, 0) == 0
        too_heavy = (code_pb2.RESOURCE_EXHAUSTED, "Sum of member weights exceeds maximum group size")
        assert controller.refused(MODIFY, group(program, 1, {1: 1 << 30})) == too_heavy
