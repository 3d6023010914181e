# SPDX-License-Identifier: MIT
"""The P4 compiler saw what the schema says."""

from __future__ import annotations

import json
import re
import subprocess
from enum import IntEnum
from pathlib import Path
from typing import Any

import netsum_p4
import pytest
from google.protobuf import text_format
from netsum.wire import memory, schema
from netsum.wire.to_lua import LUA_FILE, dissector_text
from netsum.wire.to_p4 import aggregate_text, types_text
from netsum_p4runtime import p4info_pb2

P4 = Path(__file__).parents[2] / "p4src"
Layout = list[tuple[str, int]]


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(netsum_p4.json_text())
    return loaded


@pytest.fixture(scope="module")
def headers(program: dict[str, Any]) -> dict[str, Layout]:
    """Header types as the compiler wrote them down: names and widths, in order."""
    return {header["name"]: [(name, bits) for name, bits, *_ in header["fields"]] for header in program["header_types"]}


def test_committed_p4_is_what_the_schema_gives() -> None:
    assert (P4 / "types.p4").read_text("utf-8") == types_text(), "run `make p4` and commit the result"
    assert (P4 / "control/aggregate.p4").read_text("utf-8") == aggregate_text(), "run `make p4` and commit the result"


def test_committed_dissector_is_what_the_schema_gives() -> None:
    committed = LUA_FILE.read_text("utf-8")
    assert committed == dissector_text(committed), "run `make p4` and commit the result"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("netsum_h", schema.HEADER_FIELDS),
        ("memory_h", memory.MEMORY_FIELDS),
        ("packet_in_h", schema.QUERY_FIELDS),
        ("packet_out_h", schema.QUERY_FIELDS),
    ],
)
def test_headers(headers: dict[str, Layout], name: str, fields: tuple[schema.Field, ...]) -> None:
    assert headers[name] == [(field.name, field.bits) for field in fields]


@pytest.mark.parametrize("chunks", [1, 2, 4, 8, 16])
def test_payload_headers_hold_whole_chunks(headers: dict[str, Layout], chunks: int) -> None:
    assert headers[f"chunks{chunks}_h"] == [(f"f{index}", schema.CHUNK_BYTES * 8) for index in range(chunks)]


def test_record(program: dict[str, Any], headers: dict[str, Layout]) -> None:
    assert headers["record_h"] == [("raw", schema.RECORD_BITS)]
    registers = {register["name"].split(".")[-1]: register for register in program["register_arrays"]}
    record = registers["record_register"]
    assert (record["bitwidth"], record["size"]) == (schema.RECORD_BITS, schema.SLOTS)


def test_buffers_hold_a_chunk_a_slot(program: dict[str, Any]) -> None:
    buffers = [register for register in program["register_arrays"] if "buffer" in register["name"]]
    assert len(buffers) == schema.MAX_CHUNKS
    assert {(buffer["bitwidth"], buffer["size"]) for buffer in buffers} == {(schema.CHUNK_BYTES * 8, schema.SLOTS)}


def test_outcomes_have_a_counter_each_for_each_job(program: dict[str, Any]) -> None:
    counters = {counter["name"].split(".")[-1]: counter.get("size") for counter in program["counter_arrays"]}
    assert counters["outcomes"] == 256 * schema.OUTCOMES_PER_JOB


FIELDS: dict[str, tuple[int, type[IntEnum]]] = {
    "OP": (4, schema.Op),
    "LANE": (4, schema.Lane),
    "HOP": (2, schema.Hop),
    "STATUS": (4, schema.Status),
    "STATE": (3, schema.BlockState),
    "OUTCOME": (5, schema.Outcome),
    "INSTRUCTION": (8, memory.Instruction),
}


def test_predicates_are_true_of_their_members_alone() -> None:
    found = re.findall(r"// (.*)\n#define ((\w+?)_(?:IS|GIVES|GOES|COMPARES)\w*)\(x\) (\(.*\))\n", types_text())
    assert len(found) >= 10
    for members, name, field, text in found:
        bits, enum = FIELDS[field]
        bare = re.sub(r"\(bit<\d+>\)", "", text).replace("&&", " and ").replace("||", " or ")
        condition = compile(bare, name, "eval")
        true = {value for value in range(1 << bits) if eval(condition, {"x": value})}  # a line of our own types.p4
        assert true == {enum[member] for member in members.split(", ")}, name


def test_what_a_controller_names_has_an_id_that_stays() -> None:
    """Ids from ids.p4 have two low bytes at most; those that p4c makes up from names have three."""
    program = text_format.Parse(netsum_p4.p4info_text(), p4info_pb2.P4Info())
    of_tables = {ref.id for table in program.tables for ref in table.action_refs}
    named = [*program.tables, *program.counters, *program.direct_counters, *program.registers]
    named += [action for action in program.actions if action.preamble.id in of_tables]
    loose = [item.preamble.name for item in named if item.preamble.id & 0xFF0000]
    assert loose == ["NoAction"]


def test_packet_io_metadata_of_the_p4info() -> None:
    text = netsum_p4.p4info_text()
    for field in schema.QUERY_FIELDS:
        assert text.count(f'name: "{field.name}"') == 2, f"packet_in and packet_out have {field.name}"


@pytest.mark.p4c
def test_it_compiles_without_memory(tmp_path: Path) -> None:
    made = tmp_path / "netsum.json"
    command = ["p4c-bm2-ss", "--arch", "v1model", "--Wdisable", "-DWITHOUT_MEMORY", "-o", str(made), "netsum.p4"]
    subprocess.run(command, cwd=P4, check=True)
    program = json.loads(made.read_text("utf-8"))
    assert "memory_h" not in {header["name"] for header in program["header_types"]}
    assert "netsum_h" in {header["name"] for header in program["header_types"]}
