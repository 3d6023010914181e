# SPDX-License-Identifier: MIT
"""RECONCILE_AND_COMMIT of a program that has changed; `test_contract_calls` has that of the same program on both switches."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from google.protobuf import text_format
from grpc import StatusCode
from netsum_p4runtime import p4runtime_pb2 as p4rt
from netsum_switch.runtime import EmbeddedSwitch

from tests.switch.harness.controller import INSERT, MODIFY, PROGRAMS, Controller, Program, refusal
from tests.switch.harness.embedded import EmbeddedUnderTest
from tests.switch.harness.frames import frame
from tests.switch.server.test_action_profiles import balanced, group, member, noted, with_set
from tests.switch.server.test_counters import counted, default_of
from tests.switch.server.test_meters import GREEN, OWN, PACKETS, RED, YELLOW, cell, colors, config, entry
from tests.threads import until

RECONCILE = p4rt.SetForwardingPipelineConfigRequest.RECONCILE_AND_COMMIT
Set = p4rt.SetForwardingPipelineConfigRequest


class Changed(Program):
    """A program whose p4info and JSON are changed alike."""

    def __init__(self, name: str, change: Callable[[Any, Any], None]) -> None:
        super().__init__(name)
        text = json.loads(self.json)
        change(self.p4info, text)
        self.json = json.dumps(text).encode()


def everything(controller: Controller) -> list[str]:
    """The forwarding state, with meters and counters of entries."""
    entries = p4rt.Entity(table_entry={"counter_data": {}, "meter_config": {}})
    kinds = ("action_profile_member", "action_profile_group", "meter_entry", "counter_entry", "register_entry")
    return sorted(str(each) for each in controller.read(entries, *(p4rt.Entity(**{kind: {}}) for kind in kinds)))


def renumbered(p4info: Any, _: Any) -> None:
    """Other ids for a table, its fields and actions, and their parameters."""
    text = text_format.MessageToString(p4info)
    ids = {each.preamble.id for group in (p4info.tables, p4info.actions, p4info.action_profiles) for each in group}
    for number in sorted(ids):
        text = text.replace(f": {number}\n", f": {number ^ 0x100}\n")
    p4info.Clear()
    text_format.Parse(text, p4info)


def register(program: Program, index: int, value: int) -> Any:
    message = {"register_id": program.ids["last"], "index": {"index": index}, "data": {"bitstring": bytes([value])}}
    return p4rt.Entity(register_entry=message)


def test_members_groups_and_meters(constructs: Controller, p4rt_embedded: EmbeddedUnderTest) -> None:
    program = Program("constructs")
    constructs.write(INSERT, *(member(program, number, 10 * number) for number in (3, 1, 2)))
    constructs.write(INSERT, group(program, 7, {1: 1, 2: 3}), balanced(program, action_profile_group_id=7))
    constructs.write(INSERT, entry(program, 1, (0, 1, 0, 2)))
    constructs.write(MODIFY, cell(program, "packets", 1, (0, 2, 0, 3)))
    before, chosen = everything(constructs), {noted(p4rt_embedded, a) for a in range(16)}
    constructs.push(program, RECONCILE)
    assert everything(constructs) == before
    assert {noted(p4rt_embedded, a) for a in range(16)} == chosen == {10, 20}


def test_action_sets(constructs: Controller, p4rt_embedded: EmbeddedUnderTest) -> None:
    program = Program("constructs")
    constructs.write(INSERT, with_set(program, {10: 1, 20: 2}))
    before = everything(constructs)
    constructs.push(program, RECONCILE)
    assert everything(constructs) == before
    assert {noted(p4rt_embedded, a) for a in range(16)} == {10, 20}


def test_tokens_of_meters(constructs: Controller, p4rt_embedded: EmbeddedUnderTest) -> None:
    """What a meter has let pass counts in the new program."""
    program = Program("constructs")
    constructs.write(MODIFY, cell(program, "packets", 1, (0, 2, 0, 3)))
    constructs.write(INSERT, entry(program, 1, (0, 1, 0, 2)))
    assert list(colors(p4rt_embedded, PACKETS, 1, 2)) == [GREEN, GREEN]
    assert list(colors(p4rt_embedded, OWN, 1, 1)) == [GREEN]
    constructs.push(program, RECONCILE)
    assert list(colors(p4rt_embedded, PACKETS, 1, 2)) == [YELLOW, RED]
    assert list(colors(p4rt_embedded, OWN, 1, 2)) == [YELLOW, RED]


def test_counter_and_meter_of_default_entries(constructs: Controller, program: Program, p4rt_embedded: EmbeddedUnderTest) -> None:
    """The counter is kept whether a controller has written the entry or not."""
    metered = Program("constructs")
    default = metered.entry("metered", {}, metered.action("colored", b"\x33"), is_default_action=True)
    default.table_entry.meter_config.CopyFrom(config((0, 1, 0, 2)))
    constructs.write(MODIFY, default)
    assert list(colors(p4rt_embedded, OWN, 9, 1)) == [GREEN]
    constructs.push(metered, RECONCILE)
    assert list(colors(p4rt_embedded, OWN, 9, 2)) == [YELLOW, RED]
    constructs.push(program)
    question = default_of(program, "exact_table")
    constructs.write(INSERT, program.marking("lpm_table", {}, 1))
    for _ in range(2):
        p4rt_embedded.send(1, frame(9))
    until(lambda: counted(constructs.read(question)[0]) == (2, 128), "two misses")
    constructs.push(program, RECONCILE)
    assert counted(constructs.read(question)[0]) == (2, 128)


def test_objects_with_other_ids(constructs: Controller, p4rt_embedded: EmbeddedUnderTest) -> None:
    program, other = Program("constructs"), Changed("constructs", renumbered)
    constructs.write(INSERT, member(program, 1, 10), balanced(program, action_profile_member_id=1), entry(program, 5))
    constructs.push(other, RECONCILE)
    table = next(each.preamble.id for each in other.p4info.tables if each.preamble.alias == "balanced")
    assert table != program.ids["balanced"]
    assert len(constructs.read(p4rt.Entity(table_entry={"table_id": table}))) == 1
    assert noted(p4rt_embedded, 0) == 10


def test_cells_that_still_fit(contract: Controller, program: Program) -> None:
    """A register that is shorter keeps its first cells; a counter that is longer begins as the old one."""

    def resize(p4info: Any, text: Any) -> None:
        p4info.registers[0].size = 2
        next(each for each in text["register_arrays"] if each["name"] == "IngressImpl.last")["size"] = 2
        counter = next(each for each in p4info.counters if each.preamble.alias == "seen")
        counter.size = 20
        next(each for each in text["counter_arrays"] if each["name"] == "IngressImpl.seen")["size"] = 20

    contract.write(MODIFY, *(register(program, index, 7 + index) for index in range(4)))
    counter = p4rt.CounterEntry(counter_id=program.ids["seen"], index={"index": 15}, data={"packet_count": 5, "byte_count": 6})
    contract.write(MODIFY, p4rt.Entity(counter_entry=counter))
    contract.push(Changed("contract", resize), RECONCILE)
    assert contract.read(p4rt.Entity(register_entry={})) == [register(program, 0, 7), register(program, 1, 8)]
    cells = contract.read(p4rt.Entity(counter_entry={"counter_id": program.ids["seen"]}))
    assert [each.counter_entry.data.packet_count for each in cells] == [0] * 15 + [5] + [0] * 4


def test_what_does_not_fit_is_named(contract: Controller, program: Program, p4rt_embedded: EmbeddedUnderTest) -> None:
    """Five entries do not fit a table of room for four; the old program goes on, with all of them."""

    def shrink(p4info: Any, text: Any) -> None:
        next(each for each in p4info.tables if each.preamble.alias == "exact_table").size = 4
        for pipeline in text["pipelines"]:
            for table in pipeline["tables"]:
                if table["name"] == "IngressImpl.exact_table":
                    table["max_size"] = 4

    contract.write(INSERT, *(program.forwarding(dst) for dst in range(1, 6)))
    code, message = refusal(contract.push, Changed("contract", shrink), RECONCILE)
    assert code is StatusCode.INVALID_ARGUMENT
    assert message.startswith("This does not fit the new program (table IngressImpl.exact_table is full")
    assert len(contract.read(program.entry("exact_table", {}))) == 5
    assert p4rt_embedded.passed(frame(5), 2) == frame(5)


def test_a_table_that_is_gone(contract: Controller, program: Program) -> None:
    def rename(p4info: Any, text: Any) -> None:
        next(each for each in p4info.tables if each.preamble.alias == "lpm_table").preamble.name = "IngressImpl.other"
        for pipeline in text["pipelines"]:
            for table in pipeline["tables"]:
                for key, name in list(table.get("next_tables", {}).items()):
                    table["next_tables"][key] = "IngressImpl.other" if name == "IngressImpl.lpm_table" else name
                if table.get("base_default_next") == "IngressImpl.lpm_table":
                    table["base_default_next"] = "IngressImpl.other"
                if table["name"] == "IngressImpl.lpm_table":
                    table["name"] = "IngressImpl.other"

    other = Changed("contract", rename)
    contract.push(other, RECONCILE)  # it had no entries
    contract.push(program)
    contract.write(INSERT, program.marking("lpm_table", {}, 1))
    code, message = refusal(contract.push, other, RECONCILE)
    assert code is StatusCode.INVALID_ARGUMENT
    assert message.startswith("The new program has no IngressImpl.lpm_table, which is in use")


def test_of_the_running_program_not_the_saved_one(contract: Controller, program: Program) -> None:
    contract.write(INSERT, program.forwarding(1))
    contract.push(program, Set.VERIFY_AND_SAVE)
    contract.write(INSERT, program.forwarding(2))
    contract.push(program, RECONCILE)
    assert contract.read(program.entry("exact_table", {})) == [program.forwarding(1)]


def test_a_program_of_the_command_line() -> None:
    """Without a p4info there are no entries, but registers and counters."""
    program = Program("contract")
    with (
        EmbeddedSwitch(device_id=1, program=PROGRAMS / "contract.json") as switch,
        Controller(switch.grpc_address).become_primary() as controller,
    ):
        running = switch.device._dataplane.pipeline
        assert running is not None
        running.registers["IngressImpl.last"][3] = 99
        controller.push(program, RECONCILE)
        assert controller.read(register(program, 3, 0)) == [register(program, 3, 99)]
