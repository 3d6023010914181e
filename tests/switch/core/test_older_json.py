# SPDX-License-Identifier: MIT
"""Programs of older compilers: today's scenarios with the JSON in older forms, on both switches."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from netsum_switch.errors import JsonError
from netsum_switch.pipeline import dump, load_pipeline

from tests.switch.core import test_arithmetic, test_calculations, test_matching, test_replication, test_stacks, test_varbits
from tests.switch.core.conftest import StartProgram
from tests.switch.core.older import Json, own_headers, p4_14_primitives, p4c_2_7, p4c_2_18, p4c_bm, padded, rewritten
from tests.switch.core.switches import Form, Switch, ethernet, ones_complement_sum
from tests.switch.harness.controller import PROGRAMS

FORMS = (p4c_2_18, p4c_2_7, p4c_bm)
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.json"))

# A test of today's JSON, and its arguments.
SCENARIOS: dict[str, Callable[[Any], None]] = {
    "arithmetic": partial(test_arithmetic.test_operators, seed=1),
    "const entries": partial(
        test_matching.test_const_entries_in_the_order_of_the_program, ether_type=0x9002, src=0x0101, chosen=2
    ),
    "hit and miss": test_matching.test_hit_and_miss,
    "action_run": test_matching.test_action_run,
    "registers": test_matching.test_registers,
    "stack": partial(test_stacks.test_stack, operation=3, index=0, labels="0205", report="01000000", out="0205"),
    "push": partial(test_stacks.test_stack, operation=1, index=0, labels="0205", report="01d50000", out="aa0205"),
    "varbit": partial(test_varbits.test_extracted_and_sent, one=b"abc", two=b""),
    "checksums": test_calculations.test_checksums_are_verified_and_updated,
    "unicast": partial(test_replication.test_unicast, operation=13, rid=0x99),
    "multicast": test_replication.test_multicast_copies_keep_the_metadata,
    "drop": partial(test_replication.test_nothing_leaves, operation=2, argument=3),
    "clone in ingress": test_replication.test_clone_in_ingress_is_the_packet_that_came_in,
    "clone in egress": test_replication.test_clone_in_egress_has_the_headers_as_they_are_at_the_end,
    "resubmit": partial(test_replication.test_again, operation=4, size=test_replication.SIZE),
    "recirculate": partial(
        test_replication.test_again, operation=9, size=test_replication.SIZE + test_replication.TRACE.size
    ),
}  # fmt: skip


def form_of(*changes: Callable[[Json], None]) -> Form:
    return lambda text: rewritten(text, *changes)


def starting(switch: StartProgram, change: Callable[[Json], None]) -> StartProgram:
    """Starts programs in another form."""

    def start(name: str, form: Form = bytes) -> Switch:
        return switch(name, lambda text: rewritten(form(text), change))

    return start


def text(name: str) -> str:
    return (PROGRAMS / f"{name}.json").read_text()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_program_of_an_older_compiler(switch: StartProgram, scenario: str, form: Callable[[Json], None]) -> None:
    SCENARIOS[scenario](starting(switch, form))


@pytest.mark.parametrize("form", [p4c_2_18, p4c_2_7])
@pytest.mark.parametrize("name", NAMES)
def test_the_code_is_the_same_as_of_today_s_json(name: str, form: Callable[[Json], None]) -> None:
    assert dump(rewritten(text(name), form)) == dump(text(name))


@pytest.mark.parametrize("name", NAMES)
def test_programs_in_the_oldest_form_load(name: str) -> None:
    """All the more forms of the oldest compiler at once change what the code looks like, not which tables there are."""
    old, new = load_pipeline(rewritten(text(name), p4c_bm)), load_pipeline(text(name))
    assert old.tables.keys() == new.tables.keys()
    assert old.profiles.keys() == new.profiles.keys()
    for table, other in ((old.tables[each], new.tables[each]) for each in new.tables):
        assert (table.keys, table.actions, table.default_entry is None) == (
            other.keys,
            other.actions,
            other.default_entry is None,
        )


def parser_of(document: Json) -> Json:
    parser: Json = document["parsers"][0]
    return parser


def default_first(document: Json) -> None:
    """BMv2 takes the default when nothing else matches, wherever it stands; the last one of several."""
    for state in parser_of(document)["parse_states"]:
        state["transitions"].reverse()
        if state["transitions"][0]["type"] == "default" and len(state["transitions"]) > 1:
            state["transitions"].insert(0, {**state["transitions"][0], "next_state": state["name"]})


def test_the_default_transition_may_stand_anywhere(switch: StartProgram) -> None:
    device = switch("errors", form_of(default_first))
    assert device.run(1, ethernet(0x3333) + bytes(6)) == [(1, ethernet(0x3333) + bytes([1, 1]) + bytes(6))]
    assert device.run(1, ethernet(0x3333)) == [(1, ethernet(0x3333) + bytes([4, 4]))]
    assert device.run(1, ethernet(0x4444)) == [(1, ethernet(0x4444) + bytes([1, 1]))]


def numbered_errors(document: Json) -> None:
    """`verify` with the number of its error."""
    for state in parser_of(document)["parse_states"]:
        for operation in state["parser_ops"]:
            if operation["op"] == "verify":
                value = operation["parameters"][1]
                while value["type"] == "expression":
                    value = value["value"]
                operation["parameters"][1] = int(value["value"], 16)


def test_verify_with_a_number(switch: StartProgram) -> None:
    device = switch("errors", form_of(numbered_errors))
    assert device.run(1, ethernet(0x2222)) == [(1, ethernet(0x2222) + bytes([3, 3]))]
    assert device.run(1, ethernet(0x4444)) == [(1, ethernet(0x4444) + bytes([1, 1]))]


def length_expression(document: Json) -> None:
    """The options' lengths by an expression of P4_14, of the header's own fields, instead of an argument of extract."""
    kind = next(each for each in document["header_types"] if each["name"] == "option_t")
    kind["length_exp"] = {"type": "expression", "value": {
        "op": "&", "left": {"type": "local", "value": 1}, "right": {"type": "hexstr", "value": "0xff"},
    }}  # fmt: skip
    for state in parser_of(document)["parse_states"]:
        for operation in state["parser_ops"]:
            if operation["op"] == "extract_VL":
                operation |= {"op": "extract", "parameters": operation["parameters"][:1]}


@pytest.mark.parametrize(("one", "two"), [(b"", b""), (b"abc", b""), (b"abcdefgh", b"x")])
def test_a_length_that_is_an_expression_of_the_header_s_own_fields(switch: StartProgram, one: bytes, two: bytes) -> None:
    test_varbits.test_extracted_and_sent(starting(switch, length_expression), one, two)


@pytest.mark.parametrize("data", [bytes.fromhex("0148"), b"\x01\x09ab", b"\x01\x40abc"])
def test_a_length_that_does_not_fit_is_an_error(data: bytes) -> None:
    """It ends simple_switch."""
    pipeline = load_pipeline(rewritten(text("varbits"), length_expression))
    assert [port for port, _ in pipeline.process(1, ethernet() + data + bytes(4))] == [1]


def whole_header(document: Json) -> None:
    """A checksum over a header with a varbit field, by the header's name."""
    for calculation in document["calculations"]:
        calculation["input"] = [{"type": "header", "value": "first"}]


def test_a_calculation_over_a_header_with_a_varbit_field(switch: StartProgram) -> None:
    test_varbits.test_extracted_and_sent(starting(switch, whole_header), b"abc", b"12")


def ipv4_checksum(document: Json) -> None:
    """BMv2's own kind of checksum, as the oldest compiler could ask for it."""
    for checksum in document["checksums"]:
        if checksum["target"] == ["ipv4", "checksum"]:
            checksum["type"] = "ipv4"
            del checksum["calculation"], checksum["if_cond"]


def test_ipv4_checksums(switch: StartProgram) -> None:
    targets = [each["target"] for each in json.loads(text("calculations"))["checksums"]]
    assert ["ipv4", "checksum"] in targets
    packet = test_calculations.ipv4(17, 8) + test_calculations.udp(b"")
    result, out = test_calculations.run(switch("calculations", form_of(ipv4_checksum)), packet)
    assert (result.checksum_error, ones_complement_sum(out[:20])) == (0, 0)
    wrong = test_calculations.ipv4(17, 8, wrong=7) + test_calculations.udp(b"")
    result, out = test_calculations.run(switch("calculations", form_of(ipv4_checksum)), wrong)
    assert (result.checksum_error, ones_complement_sum(out[:20])) == (1, 0)


def action_calls(document: Json) -> None:
    """Tables without a key whose default entry is fixed, as calls of their action."""
    for pipeline in document["pipelines"]:
        called = [
            table for table in pipeline["tables"] if not table["key"] and table["default_entry"].get("action_entry_const")
            and not table["default_entry"]["action_data"]
        ]  # fmt: skip
        assert called or pipeline["name"] == "egress"
        pipeline["action_calls"] = [
            {
                "name": table["name"],
                "id": 1000 + table["id"],
                "action_id": table["default_entry"]["action_id"],
                "next_node": table["base_default_next"],
            }
            for table in called
        ]
        pipeline["tables"] = [table for table in pipeline["tables"] if table not in called]


def test_actions_may_be_called_without_a_table(switch: StartProgram) -> None:
    device = switch("errors", form_of(action_calls))
    assert device.run(1, ethernet(0x2222)) == [(1, ethernet(0x2222) + bytes([3, 3]))]


@pytest.mark.parametrize("change", [own_headers, p4_14_primitives])
def test_the_forms_of_p4_14_change_something(change: Callable[[Json], None]) -> None:
    for name in ("replication", "arithmetic"):
        assert rewritten(text(name), change) != rewritten(text(name))


def recirculate_in_ingress(document: Json) -> None:
    """What ingress resubmits, it recirculates instead."""
    for action in document["actions"]:
        for primitive in action["primitives"]:
            if primitive["op"] == "resubmit":
                primitive["op"] = "recirculate"


def test_recirculate_may_be_called_in_ingress(switch: StartProgram) -> None:
    """The packet starts over behind the deparser all the same: with what both controls have made of it."""
    device = switch("replication", form_of(recirculate_in_ingress))
    size = test_replication.SIZE + test_replication.TRACE.size
    again = test_replication.Trace(test_replication.NORMAL, 3, 0, 0, size, 0x11, 0x77, 34)
    assert test_replication.run(device, 4, 3, 3) == [(3, again, test_replication.frame(4, 3, src=2))]


def keep_standard_metadata(document: Json) -> None:
    """All of standard_metadata in every field list, as a P4_14 program with `standard_metadata` in a list has it."""
    kind = next(each for each in document["header_types"] if each["name"] == "standard_metadata")
    for each in document["field_lists"]:
        each["elements"] += [{"type": "field", "value": ["standard_metadata", field[0]]} for field in kind["fields"]]


@pytest.mark.parametrize("operation", [4, 9], ids=["resubmit", "recirculate"])
def test_a_field_list_with_all_of_standard_metadata(switch: StartProgram, operation: int) -> None:
    """It keeps the ingress port, but neither the instance type, else the packet would start over for ever, nor the length."""
    device = switch("replication", form_of(keep_standard_metadata))
    size = test_replication.SIZE + (test_replication.TRACE.size if operation == 9 else 0)
    again = test_replication.Trace(test_replication.NORMAL, 3, 0, 2, size, 0x11, 0x77, 34)
    assert test_replication.run(device, operation, 3, 3) == [(3, again, test_replication.frame(operation, 3))]


REQUIRED = ("ingress_port", "egress_spec", "egress_port", "instance_type", "packet_length")


def without_optional_fields(document: Json) -> None:
    """Nothing in standard_metadata but what simple_switch requires."""
    document["field_aliases"] = []
    kind = next(each for each in document["header_types"] if each["name"] == "standard_metadata")
    kind["fields"] = padded([field for field in kind["fields"] if field[0] in REQUIRED])


def test_a_program_need_not_declare_the_metadata_that_it_does_not_use(switch: StartProgram) -> None:
    """Parser errors, wrong checksums, drops and copies happen all the same; only the program does not see them."""
    device = switch("stacks", form_of(without_parser_error, without_optional_fields))
    frame = test_stacks.frame(0, 0, "0204", b"")  # too short for a third label
    assert device.run(1, frame) == [(1, ethernet() + bytes.fromhex("018100000204"))]


def without_parser_error(document: Json) -> None:
    """No condition looks at the error."""
    for pipeline in document["pipelines"]:
        for each in pipeline["conditionals"]:
            if "parser_error" in json.dumps(each["expression"]):
                each["expression"] = {"type": "bool", "value": False}


@pytest.mark.parametrize("name", REQUIRED)
def test_without_a_field_that_simple_switch_requires_there_is_no_v1model(name: str) -> None:
    document = json.loads(text("stacks"))
    kind = next(each for each in document["header_types"] if each["name"] == "standard_metadata")
    kind["fields"] = [field for field in kind["fields"] if field[0] != name]
    with pytest.raises(JsonError, match=f"no standard_metadata.{name}: it was not compiled for v1model"):
        load_pipeline(json.dumps(document))


def test_an_action_by_a_name_that_two_have() -> None:
    document = json.loads(rewritten(text("matching"), p4c_2_7))
    table = next(table for pipeline in document["pipelines"] for table in pipeline["tables"])
    del table["action_ids"]
    table["actions"] = ["nothing by this name"]
    with pytest.raises(JsonError, match="names the action 'nothing by this name', of which the program has 0"):
        load_pipeline(json.dumps(document))
