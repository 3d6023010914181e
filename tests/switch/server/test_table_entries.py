# SPDX-License-Identifier: MIT
"""TableEntry: insert, modify, delete, default entries, const tables; what each refuses, by code and text."""

from __future__ import annotations

from typing import Any

import pytest
from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness.api import SILENCE, SwitchUnderTest
from tests.switch.harness.controller import DELETE, INSERT, MODIFY, Controller, Program
from tests.switch.harness.frames import ether_type_of, frame

Ternary = p4rt.FieldMatch.Ternary
UNADDED = (code_pb2.UNKNOWN, "Error when adding match entry to target")


def test_insert_modify_delete(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    entry = program.forwarding()
    controller.write(INSERT, entry)
    assert p4rt_switch.passed(frame(1), 2) == frame(1)
    entry.table_entry.action.action.CopyFrom(program.action("rewrite", b"\x03", b"\xaa\xbb", b"\x12\x34"))
    controller.write(MODIFY, entry)
    assert controller.read(program.entry("exact_table", {})) == [entry]
    assert p4rt_switch.passed(frame(1), 3) == frame(1, ether_type=0x1234, src=0xAABB)
    entry.table_entry.ClearField("action")
    controller.write(DELETE, entry)
    assert controller.read(program.entry("exact_table", {})) == []
    p4rt_switch.send(1, frame(1))
    assert p4rt_switch.recv(3, SILENCE) is None


def test_what_controllers_attach(controller: Controller, program: Program) -> None:
    """controller_metadata and metadata are kept for the controller, of default entries too."""
    entry = program.entry("exact_table", {1: b"\x01"}, program.action("drop"), controller_metadata=7, metadata=b"mine")
    controller.write(INSERT, entry)
    assert controller.read(program.entry("exact_table", {})) == [entry]
    entry.table_entry.controller_metadata = 8
    entry.table_entry.metadata = b""
    controller.write(MODIFY, entry)
    assert controller.read(program.entry("exact_table", {1: b"\x01"})) == [entry]
    default = program.entry("exact_table", {}, program.action("drop"), is_default_action=True, metadata=b"default")
    controller.write(MODIFY, default)
    assert controller.read(program.entry("exact_table", {}, is_default_action=True)) == [default]


def test_default_entry(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    question = program.entry("exact_table", {}, is_default_action=True)
    original = program.entry("exact_table", {}, program.action("NoAction"), is_default_action=True)
    assert controller.read(question) == [original]
    default = program.entry("exact_table", {}, program.action("forward", b"\x02"), is_default_action=True)
    controller.write(MODIFY, default)
    assert controller.read(question) == [default]
    assert p4rt_switch.passed(frame(99), 2) == frame(99)
    default.table_entry.ClearField("action")
    controller.write(MODIFY, default)
    assert controller.read(question) == [original]


def test_default_entries_of_all_tables(controller: Controller, program: Program) -> None:
    question = p4rt.Entity(table_entry={"is_default_action": True})
    found = {entity.table_entry.table_id for entity in controller.read(question)}
    assert found == {table.preamble.id for table in program.p4info.tables}


def test_const_table(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    found = controller.read(program.entry("const_table", {}))
    assert [each.table_entry.match[0].exact.value for each in found] == [b"\x90\x01", b"\x90\x03"]
    assert found[0].table_entry.action.action == program.action("mark", b"\x90\x02")
    controller.write(INSERT, program.forwarding())
    assert ether_type_of(p4rt_switch.passed(frame(1, ether_type=0x9001), 2)) == 0x9002


def test_const_default_action(controller: Controller, program: Program) -> None:
    which = f"table {program.ids['const_table']} which has a const default action"
    refused = (code_pb2.PERMISSION_DENIED, f"Cannot set / reset default action for {which}")
    default = program.marking("const_table", {}, 1, is_default_action=True)
    assert controller.refused(MODIFY, default) == refused
    default.table_entry.ClearField("action")
    assert controller.refused(MODIFY, default) == refused


def test_full_table(controller: Controller, program: Program) -> None:
    entries = [program.entry("exact_table", {1: bytes([number])}, program.action("drop")) for number in range(1, 10)]
    controller.write(INSERT, *entries[:8])
    controller.refused(INSERT, entries[8])
    controller.write(DELETE, entries[0])
    controller.write(INSERT, entries[8])


def test_exists_and_not_found(controller: Controller, program: Program) -> None:
    entry = program.entry("exact_table", {1: b"\x01"}, program.action("drop"))
    assert controller.refused(MODIFY, entry) == (code_pb2.NOT_FOUND, "Cannot find match entry")
    assert controller.refused(DELETE, entry) == (code_pb2.NOT_FOUND, "Cannot find match entry")
    controller.write(INSERT, entry)
    refused = controller.refused(INSERT, entry)
    assert refused == (code_pb2.ALREADY_EXISTS, "Match entry exists, use MODIFY if you wish to change action")


def test_priority_is_part_of_the_key(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    match = {2: Ternary(value=b"\x90\x00", mask=b"\xff\x00")}
    low = program.marking("ternary_table", match, 1, priority=1)
    high = program.marking("ternary_table", match, 2, priority=2)
    controller.write(INSERT, program.forwarding())
    controller.write(INSERT, low, high)
    assert ether_type_of(p4rt_switch.passed(frame(1), 2)) == 2
    controller.write(DELETE, high)
    assert ether_type_of(p4rt_switch.passed(frame(1), 2)) == 1
    assert controller.refused(DELETE, high)[0] == code_pb2.NOT_FOUND
    assert controller.read(program.entry("ternary_table", match, priority=1)) == [low]
    assert controller.read(program.entry("ternary_table", match, priority=2)) == []


INVALID = code_pb2.INVALID_ARGUMENT
# (a statement about the entry ``e`` and the program ``p``, id, code, message)
REFUSED: list[tuple[str, str, int, str]] = [
    ("e.table_id = 1", "an id of nothing", INVALID, "Invalid P4 id"),
    ("e.table_id = p.ids['drop']", "an action's id", INVALID, "Invalid P4 id"),
    ("e.table_id = 0", "no id", INVALID, "Invalid P4 id"),
    ("e.is_default_action = True", "default with key", INVALID, "Cannot use INSERT for default entry"),
    ("e.ClearField('action')", "no action", INVALID, "'action' field must be set"),
    ("e.action.Clear()", "empty action", INVALID, "Cannot provide indirect action for direct table {table}"),
    ("e.action.action_profile_member_id = 1", "member id", INVALID,
     "Cannot provide indirect action for direct table {table}"),
    ("e.action.action.action_id = 5", "unknown action", INVALID, "Invalid P4 id"),
    ("e.action.action.action_id = e.table_id", "a table as action", INVALID, "Invalid P4 id"),
    ("e.action.action.CopyFrom(p.action('mark', b'1'))", "other table's action", INVALID, "Invalid action for table"),
    ("e.action.action.CopyFrom(p.action('NoAction'))", "default only", code_pb2.PERMISSION_DENIED,
     "Cannot use DEFAULT_ONLY action in table entry"),
    ("del e.action.action.params[:]", "no parameter", INVALID, "Unexpected number of action parameters"),
    ("e.action.action.params.add()", "a parameter more", INVALID, "Unexpected number of action parameters"),
    ("e.action.action.params[0].param_id = 9", "unknown parameter", INVALID, "Unknown action parameter"),
    ("e.action.action.params[0].value = b'\\x02\\x00'", "ten bits", INVALID,
     "Bytestring provided does not fit within 9 bits"),
    ("e.match[0].exact.value = b'\\x01' + bytes(6)", "49 bits", INVALID,
     "Bytestring provided does not fit within 48 bits"),
    ("del e.match[:]", "no match field", INVALID, "Missing non-ternary field in match key"),
    ("e.match.add(field_id=2).exact.value = b'1'", "a field more", INVALID, "Too many fields in match key"),
    ("e.match[0].field_id = 3", "unknown field", INVALID, "Missing non-ternary field in match key"),
    ("e.match[0].lpm.value = b'1'", "lpm for exact", INVALID, "Invalid match type"),
    ("e.match[0].ClearField('exact')", "no kind of match", INVALID, "Invalid match type"),
    ("e.priority = 1", "priority", INVALID, "Non-zero priority for non-ternary match"),
    ("e.meter_config.cir = 1", "meter", INVALID, "Table has no direct meters"),
    ("e.idle_timeout_ns = -1", "negative timeout", INVALID, "idle_timeout_ns must be a positive value"),
    ("e.idle_timeout_ns = 1", "timeout", INVALID,
     "idle_timeout_ns must be set to 0 for tables which do not support idle timeout"),
    ("e.time_since_last_hit.elapsed_ns = 1", "last hit", INVALID,
     "has_time_since_last_hit must not be set in WriteRequest"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "code", "message"), [pytest.param(row[0], row[2], row[3], id=row[1]) for row in REFUSED])
def test_refused_inserts(controller: Controller, program: Program, statement: str, code: int, message: str) -> None:
    entity = program.forwarding()
    exec(statement, {"e": entity.table_entry, "p": program})
    message = message.format(table=entity.table_entry.table_id)
    assert controller.refused(INSERT, entity) == (code, message)
    assert controller.read(program.entry("exact_table", {})) == []


DEFAULT_REFUSED: list[tuple[str, str, Any, int, str]] = [
    ("", "insert", INSERT, INVALID, "Cannot use INSERT for default entry"),
    ("", "delete", DELETE, INVALID, "Cannot use DELETE for default entry"),
    ("e.match.add(field_id=1).exact.value = b'1'", "key", MODIFY, INVALID, "Non-empty key for default entry"),
    ("e.priority = 3", "priority", MODIFY, INVALID, "Non-zero priority for default entry"),
    ("e.table_id = p.ids['ternary_table']", "table only", MODIFY, code_pb2.PERMISSION_DENIED,
     "Cannot use TABLE_ONLY action as default action"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("statement", "update", "code", "message"),
    [pytest.param(row[0], row[2], row[3], row[4], id=row[1]) for row in DEFAULT_REFUSED],
)
def test_refused_default_entries(
    controller: Controller, program: Program, statement: str, update: Any, code: int, message: str
) -> None:
    entity = program.entry("exact_table", {}, program.action("drop"), is_default_action=True)
    exec(statement, {"e": entity.table_entry, "p": program})
    assert controller.refused(update, entity) == (code, message)


def test_counter_data_needs_a_counter(controller: Controller, program: Program) -> None:
    entity = program.marking("lpm_table", {}, 1)
    entity.table_entry.counter_data.packet_count = 1
    assert controller.refused(INSERT, entity) == (INVALID, "Table has no direct counters")


def test_update_type_is_required(controller: Controller, program: Program) -> None:
    entity = program.entry("exact_table", {1: b"\x01"}, program.action("drop"))
    assert controller.refused(p4rt.Update.UNSPECIFIED, entity) == (INVALID, "Update type is not set")
    assert controller.refused(17, entity) == (INVALID, "Invalid update type")
