# SPDX-License-Identifier: MIT
"""MeterEntry, DirectMeterEntry and the meter configuration of table entries. Rates are 0: colors do not depend on time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.core.switches import call
from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.controller import DELETE, INSERT, MODIFY, Controller, Program

INVALID, UNKNOWN, UNIMPLEMENTED = code_pb2.INVALID_ARGUMENT, code_pb2.UNKNOWN, code_pb2.UNIMPLEMENTED
GREEN, YELLOW, RED = 0, 1, 2
PACKETS, BYTES, OWN = 1, 2, 3
SIZE = len(call(PACKETS))

Burst = tuple[int, int, int, int]


@pytest.fixture(scope="module")
def program() -> Program:
    return Program("constructs")


def config(values: Burst) -> Any:
    return p4rt.MeterConfig(cir=values[0], cburst=values[1], pir=values[2], pburst=values[3])


def cell(program: Program, name: str, index: int | None = None, values: Burst | None = None) -> Any:
    """A MeterEntry; without index, all of the meter."""
    entity = p4rt.Entity()
    entity.meter_entry.meter_id = program.ids[name]
    if index is not None:
        entity.meter_entry.index.index = index
    if values is not None:
        entity.meter_entry.config.CopyFrom(config(values))
    return entity


def entry(program: Program, key: int, values: Burst | None = None) -> Any:
    """An entry of the table whose entries have a meter each."""
    entity = program.entry("metered", {1: bytes([key])}, program.action("colored", b"\x33"))
    if values is not None:
        entity.table_entry.meter_config.CopyFrom(config(values))
    return entity


def direct(entry: Any, values: Burst | None = None) -> Any:
    entity = p4rt.Entity()
    entity.direct_meter_entry.table_entry.CopyFrom(entry.table_entry)
    entity.direct_meter_entry.table_entry.ClearField("action")
    entity.direct_meter_entry.table_entry.ClearField("meter_config")
    if values is not None:
        entity.direct_meter_entry.config.CopyFrom(config(values))
    return entity


def colors(switch: SwitchUnderTest, operation: int, number: int, count: int) -> Iterator[int]:
    """The colors of the next frames, by cell or entry."""
    for _ in range(count):
        out = switch.passed(call(operation, *((0, number) if operation == OWN else (number,))), 1)
        assert out is not None
        yield out[SIZE - 1]


def test_committed_and_peak_bursts(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    controller.write(MODIFY, cell(program, "packets", 1, (0, 2, 0, 3)), cell(program, "bytes", 2, (0, 2 * SIZE, 0, 4 * SIZE - 1)))
    assert list(colors(p4rt_switch, PACKETS, 1, 5)) == [GREEN, GREEN, YELLOW, RED, RED]
    assert list(colors(p4rt_switch, BYTES, 2, 5)) == [GREEN, GREEN, YELLOW, RED, RED]
    assert list(colors(p4rt_switch, PACKETS, 0, 2)) == [GREEN, GREEN]  # another cell
    controller.write(MODIFY, cell(program, "packets", 1, (0, 2, 0, 3)))
    assert list(colors(p4rt_switch, PACKETS, 1, 3)) == [GREEN, GREEN, YELLOW]  # full again
    controller.write(MODIFY, cell(program, "packets", 1))
    assert list(colors(p4rt_switch, PACKETS, 1, 4)) == [GREEN] * 4  # not configured


def test_reading(controller: Controller, program: Program) -> None:
    controller.write(MODIFY, cell(program, "packets", 1, (7, 2, 8, 3)), cell(program, "bytes", 3, (250, -1, 1000, -1)))
    [found] = controller.read(cell(program, "packets", 1))
    assert found == cell(program, "packets", 1, (7, 2, 8, 3))
    # An unlimited burst is what it was.
    found = controller.read(cell(program, "bytes"))
    wanted = [cell(program, "bytes", index, (250, -1, 1000, -1) if index == 3 else None) for index in range(4)]
    assert found == wanted
    assert len(controller.read(p4rt.Entity(meter_entry={}))) == 4 + 4
    controller.write(MODIFY, cell(program, "bytes", 3, (-1, -1, -1, -1)))
    assert controller.read(cell(program, "bytes", 3)) == [cell(program, "bytes", 3)]


def test_meters_of_entries(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    one, two = entry(program, 1, (0, 1, 0, 2)), entry(program, 2)
    controller.write(INSERT, one, two)
    assert list(colors(p4rt_switch, OWN, 1, 4)) == [GREEN, YELLOW, RED, RED]
    assert list(colors(p4rt_switch, OWN, 2, 4)) == [GREEN] * 4
    assert list(colors(p4rt_switch, OWN, 3, 1)) == [GREEN]  # a miss has no meter
    controller.write(MODIFY, direct(two, (0, 0, 0, 1)))
    assert list(colors(p4rt_switch, OWN, 2, 2)) == [YELLOW, RED]
    both = [direct(one, (0, 1, 0, 2)), direct(two, (0, 0, 0, 1))]
    assert controller.read(direct(one), direct(two)) == both
    whole = controller.read(direct(program.entry("metered", {})))
    assert sorted(map(str, whole)) == sorted(map(str, both))
    question = program.entry("metered", {1: b"\x01"})
    question.table_entry.meter_config.SetInParent()
    assert controller.read(question) == [one]
    controller.write(MODIFY, direct(two))
    assert controller.read(direct(two)) == [direct(two)]
    assert list(colors(p4rt_switch, OWN, 2, 2)) == [GREEN, GREEN]


@pytest.mark.parametrize(
    ("values", "code", "message"),
    [
        ((-2, 0, 0, 0), INVALID, "Negative meter CIR"),
        ((0, -2, 0, 0), INVALID, "Negative meter CBurst"),
        ((0, 0, -2, 0), INVALID, "Negative meter PIR"),
        ((0, 0, 0, -2), INVALID, "Negative meter PBurst"),
        ((0, 1 << 32, 0, 0), UNIMPLEMENTED, "CBurst too large"),
        ((0, 0, 0, 1 << 32), UNIMPLEMENTED, "Pburst too large"),
    ],
)
def test_refused_configurations(controller: Controller, program: Program, values: Burst, code: int, message: str) -> None:
    assert controller.refused(MODIFY, cell(program, "packets", 0, values)) == (code, message)
    controller.write(INSERT, entry(program, 1))
    assert controller.refused(MODIFY, direct(entry(program, 1), values)) == (code, message)


def test_other_refusals(controller: Controller, program: Program) -> None:
    for update, name in ((INSERT, "INSERT"), (DELETE, "DELETE")):
        refused = (INVALID, f"{name} update type not supported for meters")
        assert controller.refused(update, cell(program, "packets", 0)) == refused
    refused = controller.refused(MODIFY, cell(program, "packets", -1))
    assert refused == (INVALID, "A negative number is not a valid index value")
    assert controller.refused(MODIFY, cell(program, "own", 0)) == (INVALID, "Invalid P4 id")


def test_a_default_entry_may_have_a_meter(constructs: Controller, program: Program, p4rt_embedded: SwitchUnderTest) -> None:
    beside = program.entry("metered", {}, is_default_action=True)
    default = program.entry("metered", {}, program.action("colored", b"\x33"), is_default_action=True)
    default.table_entry.meter_config.CopyFrom(config((0, 1, 0, 2)))
    constructs.write(MODIFY, default)
    constructs.write(INSERT, entry(program, 1, (0, 0, 0, 0)))
    assert list(colors(p4rt_embedded, OWN, 9, 4)) == [GREEN, YELLOW, RED, RED]
    assert list(colors(p4rt_embedded, OWN, 1, 2)) == [RED, RED]
    question = program.entry("metered", {}, is_default_action=True)
    question.table_entry.meter_config.SetInParent()
    assert constructs.read(question, direct(beside)) == [default, direct(beside, (0, 1, 0, 2))]
    assert len(constructs.read(direct(program.entry("metered", {})))) == 1  # a wildcard has entries alone
    constructs.write(MODIFY, direct(beside, (0, 0, 0, 1)))
    assert list(colors(p4rt_embedded, OWN, 9, 2)) == [YELLOW, RED]
    default.table_entry.ClearField("meter_config")
    constructs.write(MODIFY, default)
    assert list(colors(p4rt_embedded, OWN, 9, 3)) == [GREEN] * 3
    assert constructs.read(direct(beside)) == [direct(beside)]
