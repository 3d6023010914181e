# SPDX-License-Identifier: MIT
"""CounterEntry, DirectCounterEntry and the counter data of table entries."""

from __future__ import annotations

from typing import Any

from google.rpc import code_pb2
from grpc import StatusCode
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.controller import INSERT, MODIFY, Controller, Program, refusal
from tests.switch.harness.frames import frame

INVALID, UNKNOWN, UNIMPLEMENTED = code_pb2.INVALID_ARGUMENT, code_pb2.UNKNOWN, code_pb2.UNIMPLEMENTED


def cell(program: Program, name: str, index: int | None = None, packets: int = 0, size: int = 0) -> Any:
    """A CounterEntry; without index, all of the counter."""
    entity = p4rt.Entity()
    entity.counter_entry.counter_id = program.ids[name]
    if index is not None:
        entity.counter_entry.index.index = index
    if packets or size:
        entity.counter_entry.data.packet_count, entity.counter_entry.data.byte_count = packets, size
    return entity


def direct(entry: Any, packets: int = 0, size: int = 0) -> Any:
    """The DirectCounterEntry of a table entry."""
    entity = p4rt.Entity()
    entity.direct_counter_entry.table_entry.CopyFrom(entry.table_entry)
    if packets or size:
        data = entity.direct_counter_entry.data
        data.packet_count, data.byte_count = packets, size
    return entity


def counted(entity: Any) -> tuple[int, int]:
    """(packets, bytes) of an entity that was read."""
    data = getattr(entity, entity.WhichOneof("entity"))
    data = data.counter_data if entity.WhichOneof("entity") == "table_entry" else data.data
    return data.packet_count, data.byte_count


def forwarding(controller: Controller, program: Program, dst: int = 1) -> Any:
    """An entry that forwards to port 2, inserted."""
    entry = program.forwarding(dst)
    controller.write(INSERT, entry)
    return entry


def pass_frames(switch: SwitchUnderTest, *sizes: int, dst: int = 1) -> None:
    """Frames from port 1, each seen to leave at port 2, hence counted."""
    for size in sizes:
        assert switch.passed(frame(dst, size=size), 2) is not None


def test_packets_and_bytes(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    forwarding(controller, program)
    pass_frames(p4rt_switch, 64, 100, 1000)
    [found] = controller.read(cell(program, "seen", 1))
    assert counted(found) == (3, 1164)
    assert found.counter_entry.index.index == 1
    [found] = controller.read(cell(program, "seen_packets", 1))
    assert counted(found) == (3, 1164)  # both are counted whatever is declared


def test_wildcards(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    forwarding(controller, program)
    pass_frames(p4rt_switch, 64)
    found = controller.read(cell(program, "seen"))
    assert [counted(each) for each in found] == [(int(index == 1), 64 * (index == 1)) for index in range(16)]
    assert [each.counter_entry.index.index for each in found] == list(range(16))
    assert len(controller.read(p4rt.Entity(counter_entry={}))) == 16 + 8


def test_setting_and_resetting(controller: Controller, program: Program) -> None:
    controller.write(MODIFY, cell(program, "seen", 3, packets=5, size=500))
    assert counted(controller.read(cell(program, "seen", 3))[0]) == (5, 500)
    controller.write(MODIFY, cell(program, "seen_packets", 3, packets=5, size=500))
    assert counted(controller.read(cell(program, "seen_packets", 3))[0]) == (5, 0)  # only what is declared is set
    zero = cell(program, "seen", 3)
    zero.counter_entry.data.SetInParent()
    controller.write(MODIFY, zero)
    assert counted(controller.read(cell(program, "seen", 3))[0]) == (0, 0)


def test_refused_cells(controller: Controller, program: Program) -> None:
    refused = controller.refused(INSERT, cell(program, "seen", 0))
    assert refused == (INVALID, "INSERT update type not supported for counters")
    negative = "A negative number is not a valid index value"
    assert controller.refused(MODIFY, cell(program, "seen", -1)) == (INVALID, negative)
    assert refusal(controller.read, cell(program, "seen", -1)) == (StatusCode.INVALID_ARGUMENT, negative)
    direct_counter = cell(program, "forwarded", 0)  # the id of a direct counter is not one of a CounterEntry
    assert refusal(controller.read, direct_counter) == (StatusCode.INVALID_ARGUMENT, "Invalid P4 id")


def test_direct_counter(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    entry, other = forwarding(controller, program), forwarding(controller, program, dst=2)
    pass_frames(p4rt_switch, 64, 100)
    pass_frames(p4rt_switch, 70, dst=2)
    [found] = controller.read(direct(entry))
    assert counted(found) == (2, 164)
    assert found.direct_counter_entry.table_entry == entry.table_entry
    found_all = controller.read(direct(program.entry("exact_table", {})))
    assert sorted(map(counted, found_all)) == [(1, 70), (2, 164)]
    assert found_all[0].direct_counter_entry.table_entry.match == entry.table_entry.match
    controller.write(MODIFY, direct(entry, packets=7, size=8))
    assert counted(controller.read(direct(entry))[0]) == (7, 8)
    zero = direct(entry)
    zero.direct_counter_entry.data.SetInParent()
    controller.write(MODIFY, zero)
    assert counted(controller.read(direct(entry))[0]) == (0, 0)
    assert counted(controller.read(direct(other))[0]) == (1, 70)


def test_counter_data_of_entries(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    entry = program.forwarding()
    entry.table_entry.counter_data.packet_count = 10
    entry.table_entry.counter_data.byte_count = 1000
    controller.write(INSERT, entry)
    pass_frames(p4rt_switch, 64)
    question = program.entry("exact_table", {})
    assert not controller.read(question)[0].table_entry.HasField("counter_data")  # only when asked for
    question.table_entry.counter_data.SetInParent()
    assert counted(controller.read(question)[0]) == (11, 1064)
    entry.table_entry.ClearField("counter_data")
    entry.table_entry.action.action.CopyFrom(program.action("forward", b"\x03"))
    controller.write(MODIFY, entry)  # the counter goes on under the new action
    assert counted(controller.read(question)[0]) == (11, 1064)


def test_counter_data_of_a_packet_counter(controller: Controller, program: Program) -> None:
    entry = program.marking("ternary_table", {}, 1, priority=1)
    entry.table_entry.counter_data.packet_count = 10
    entry.table_entry.counter_data.byte_count = 1000
    controller.write(INSERT, entry)
    question = program.entry("ternary_table", {})
    question.table_entry.counter_data.SetInParent()
    assert counted(controller.read(question)[0]) == (10, 0)


def test_refused_direct_counters(controller: Controller, program: Program) -> None:
    entry = forwarding(controller, program)
    missing = p4rt.Entity(direct_counter_entry={})
    text = "Missing table_entry field in DirectCounterEntry"
    assert controller.refused(MODIFY, missing) == (INVALID, text)
    assert refusal(controller.read, missing) == (StatusCode.INVALID_ARGUMENT, text)
    assert controller.refused(INSERT, direct(entry)) == (INVALID, "INSERT update type not supported for counters")
    without = program.entry("lpm_table", {})
    assert refusal(controller.read, direct(without)) == (StatusCode.INVALID_ARGUMENT, "Table has no direct counters")


def default_of(program: Program, table: str, action: Any = None) -> Any:
    """The TableEntry of a default entry, with its counter."""
    entity = program.entry(table, {}, action, is_default_action=True)
    entity.table_entry.counter_data.SetInParent()
    return entity


def test_the_counter_of_a_default_entry_counts_misses(
    contract: Controller, program: Program, p4rt_embedded: SwitchUnderTest
) -> None:
    default = default_of(program, "exact_table", program.action("forward", b"\x03"))
    default.table_entry.counter_data.packet_count, default.table_entry.counter_data.byte_count = 10, 1000
    contract.write(MODIFY, default)
    entry = forwarding(contract, program)
    assert p4rt_embedded.passed(frame(9), 3) is not None
    pass_frames(p4rt_embedded, 64)
    question = default_of(program, "exact_table")
    assert counted(contract.read(question)[0]) == (11, 1064)
    assert counted(contract.read(direct(entry))[0]) == (1, 64)
    beside = program.entry("exact_table", {}, is_default_action=True)
    assert counted(contract.read(direct(beside))[0]) == (11, 1064)
    assert len(contract.read(direct(program.entry("exact_table", {})))) == 1  # a wildcard has entries alone
    contract.write(MODIFY, direct(beside, packets=5, size=6))
    assert counted(contract.read(direct(beside))[0]) == (5, 6)
    default.table_entry.ClearField("counter_data")
    default.table_entry.action.action.CopyFrom(program.action("forward", b"\x04"))
    contract.write(MODIFY, default)  # the counter goes on under the new action
    assert p4rt_embedded.passed(frame(9), 4) is not None
    assert counted(contract.read(question)[0]) == (6, 70)
    contract.write(MODIFY, beside)
    assert counted(contract.read(question)[0]) == (0, 0)
