# SPDX-License-Identifier: MIT
"""ReadRequests with several or wildcard entities; batches of updates, some of which fail; entities not served."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc import code_pb2
from grpc import StatusCode
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness.controller import DELETE, INSERT, MODIFY, Controller, Program, details, refusal

INVALID = code_pb2.INVALID_ARGUMENT


def test_all_tables(controller: Controller, program: Program) -> None:
    lpm = program.entry("lpm_table", {1: p4rt.FieldMatch.LPM(value=b"\x02", prefix_len=48)}, program.action("mark", b"\x01"))
    written = [program.forwarding(1), program.forwarding(2), lpm]
    controller.write(INSERT, *written)
    wildcard = p4rt.Entity(table_entry={})
    found = controller.read(wildcard)
    assert all(entity in found for entity in written)
    const = [entity for entity in found if entity not in written]  # const entries are read as well
    assert {entity.table_entry.table_id for entity in const} == {program.ids["const_table"]}
    assert len(const) == 2


@pytest.mark.parametrize(("wanted", "found"), [((2,), (2,)), ((3,), ()), ((2, 1), (2, 1))])
def test_one_entry_and_several(controller: Controller, program: Program, wanted: tuple[int, ...], found: tuple[int, ...]) -> None:
    controller.write(INSERT, program.forwarding(1), program.forwarding(2))
    question = [program.entry("exact_table", {1: bytes([dst])}) for dst in wanted]
    assert controller.read(*question) == [program.forwarding(dst) for dst in found]


def test_nothing_asked_and_nothing_written(controller: Controller) -> None:
    assert controller.read() == []
    controller.write_updates([])


def test_a_batch_goes_on_after_an_error(controller: Controller, program: Program) -> None:
    good, bad, missing, other = (program.forwarding(dst) for dst in (1, 3, 9, 2))
    bad.table_entry.action.action.action_id = 1
    updates = [(INSERT, good), (INSERT, bad), (DELETE, missing), (INSERT, other)]
    with pytest.raises(grpc.RpcError) as error:
        controller.write_updates([p4rt.Update(type=kind, entity=entity) for kind, entity in updates])
    assert error.value.code() is StatusCode.UNKNOWN
    assert error.value.details() == ""
    assert details(error.value) == [
        (0, "", ""),
        (INVALID, "Invalid P4 id", "ALL-sswitch-p4org"),
        (code_pb2.NOT_FOUND, "Cannot find match entry", "ALL-sswitch-p4org"),
        (0, "", ""),
    ]
    assert controller.read(program.entry("exact_table", {})) == [good, other]


def test_updates_of_a_batch_are_in_order(controller: Controller, program: Program) -> None:
    entity = program.forwarding(1)
    controller.write_updates([p4rt.Update(type=kind, entity=entity) for kind in (INSERT, DELETE, INSERT, MODIFY)])
    assert controller.read(program.entry("exact_table", {})) == [entity]


@pytest.mark.parametrize(
    "atomicity", [p4rt.WriteRequest.ROLLBACK_ON_ERROR, p4rt.WriteRequest.DATAPLANE_ATOMIC], ids=["rollback", "atomic"]
)
def test_atomic_batches_are_not_served(controller: Controller, program: Program, atomicity: Any) -> None:
    updates = [p4rt.Update(type=INSERT, entity=program.forwarding(1))]
    with pytest.raises(grpc.RpcError) as error:
        controller.write_updates(updates, atomicity=atomicity)
    assert error.value.code() is StatusCode.UNIMPLEMENTED
    assert error.value.details() == "Support for atomic write modes has not been implemented yet"
    assert controller.read(program.entry("exact_table", {})) == []


def entity_of(kind: str, **fields: Any) -> Any:
    """An entity of this kind; without fields, empty."""
    entity = p4rt.Entity()
    message = getattr(entity, kind)
    message.SetInParent()
    for name, value in fields.items():
        setattr(message, name, value)
    return entity


NOT_SERVED = [
    ("meter_entry", (INVALID, "Invalid P4 id"), None),
    ("action_profile_member", (INVALID, "Invalid P4 id"), None),
    ("action_profile_group", (INVALID, "Invalid P4 id"), None),
    ("direct_meter_entry", (INVALID, "Missing table_entry field in DirectMeterEntry"),
     (StatusCode.INVALID_ARGUMENT, "Missing table_entry field in DirectMeterEntry")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "written", "read"), [pytest.param(*row, id=row[0]) for row in NOT_SERVED])
def test_entities_that_this_program_has_not(
    controller: Controller, kind: str, written: tuple[int, str], read: tuple[StatusCode, str] | None
) -> None:
    assert controller.refused(MODIFY, entity_of(kind)) == written
    if read is None:  # a wildcard over none
        assert controller.read(entity_of(kind)) == []
    else:
        assert refusal(controller.read, entity_of(kind)) == read


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("meter_entry", "meter_id"),
        ("action_profile_member", "action_profile_id"),
        ("action_profile_group", "action_profile_id"),
        ("counter_entry", "counter_id"),
        ("table_entry", "table_id"),
    ],
)
def test_reading_unknown_ids(controller: Controller, kind: str, field: str) -> None:
    invalid = (StatusCode.INVALID_ARGUMENT, "Invalid P4 id")
    assert refusal(controller.read, entity_of(kind, **{field: 12345})) == invalid


def test_aging_is_not_served_for_tables_without_it(controller: Controller, program: Program) -> None:
    entity = program.entry("exact_table", {})
    entity.table_entry.time_since_last_hit.SetInParent()
    texts = ("Do not set time_since_last_hit", "Default table entries do not support entry ageing")
    for is_default, text in enumerate(texts):
        entity.table_entry.is_default_action = bool(is_default)
        code, message = refusal(controller.read, entity)
        assert code is StatusCode.INVALID_ARGUMENT
        assert message.startswith(text)
