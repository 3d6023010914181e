"""Writes ``p4src/types.p4`` from the schema: header types, record layout and every constant.

``python -m netsum.wire.to_p4`` prints it; ``make p4`` puts it in place before compiling.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from enum import IntEnum, IntFlag

from netsum.wire import memory, schema
from netsum.wire.schema import Field

_HEAD = """\
// SPDX-License-Identifier: MIT
// Generated from hosts/netsum/wire/schema.py and memory.py by `make p4`. Do not edit.

#ifndef TYPES_P4
#define TYPES_P4
"""


def _header(name: str, fields: Sequence[Field]) -> str:
    lines = [f"header {name} {{"]
    for field in fields:
        lines.append(f"    {f'bit<{field.bits}>':<9} {field.name + ';':<16} // {field.doc}")
    return "\n".join([*lines, "}"])


def _constants(enum: type[IntEnum] | type[IntFlag], prefix: str, bits: int) -> list[str]:
    return [f"const bit<{bits}> {prefix}_{member.name} = {int(member)};" for member in enum]


def _runs(numbers: Collection[int]) -> list[tuple[int, int]]:
    """The numbers as ranges (first, last), in order."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _predicate(name: str, bits: int, members: Collection[IntEnum]) -> str:
    """A macro that is true for these members and for no other value of the field. BMv2 pays for each operator, so it is a mask if
    a single comparison is not enough and a mask is."""
    numbers = {int(member) for member in members}
    values = range(1 << bits)
    tests = []
    for first, last in _runs(numbers):
        bounds = [f"x >= {first}"] * (first > 0) + [f"x <= {last}"] * (last < values[-1])
        tests.append(" && ".join(bounds) if first < last else f"x == {first}")
    text = tests[0] if len(tests) == 1 else " || ".join(f"({test})" for test in tests)
    alike = sum(1 << bit for bit in range(bits) if len({number >> bit & 1 for number in numbers}) == 1)
    wanted = min(numbers) & alike
    if ("&&" in text or "||" in text) and {value for value in values if value & alike == wanted} == numbers:
        text = f"(x & {alike:#x}) == {wanted}"
    names = ", ".join(member.name for member in sorted(members))
    return f"// {names}\n#define {name}(x) ({text})"


def _predicates() -> list[str]:
    return [
        _predicate("OP_IS_KNOWN", 4, tuple(schema.Op)),
        _predicate("OP_COMPARES", 4, schema.COMPARING),
        _predicate("LANE_IS_KNOWN", 4, tuple(schema.Lane)),
        _predicate("HOP_IS_KNOWN", 2, tuple(schema.Hop)),
        _predicate("STATUS_IS_KNOWN", 4, tuple(schema.Status)),
        _predicate("STATUS_IS_MEMBERS", 4, schema.MEMBER_STATUSES),
        _predicate("STATUS_GIVES_UP", 4, schema.GIVING_UP),
        _predicate("STATE_IS_IN_PROGRESS", 3, schema.IN_PROGRESS),
        _predicate("OUTCOME_IS_CLOSING", 5, schema.CLOSINGS),
        _predicate("OUTCOME_GOES_UP", 5, schema.GOING_UP),
        _predicate("OUTCOME_IS_REFUSAL", 5, schema.REFUSALS),
        "// The reason that a REFUSED answer gives.\n#define REASON(x) x[3:0]",
    ]


def _memory() -> list[str]:
    """Memory in the network: header, constants, and which instructions belong together."""
    constants = [
        f"const bit<16> MEMORY_PORT = {memory.MEMORY_PORT};",
        f"const bit<4> MEMORY_VERSION = {memory.MEMORY_VERSION};",
        f"const bit<16> MEMORY_HEADER_BYTES = {memory.MEMORY_HEADER_BYTES};",
        f"const bit<16> MEMORY_MAX_PAYLOAD = {memory.MAX_PAYLOAD};",
        f"const bit<8> MAX_SEGMENTS = {memory.MAX_SEGMENTS};",
        f"const bit<16> SEGMENT_BYTES = {memory.SEGMENT_BYTES};",
        f"const bit<64> ADDRESS_STEP = {memory.ADDRESS_STEP};",
    ]
    predicates = [
        _predicate("INSTRUCTION_IS_KNOWN", 8, memory.KNOWN),
        _predicate("INSTRUCTION_IS_IDEMPOTENT", 8, memory.IDEMPOTENT),
        _predicate("INSTRUCTION_IS_INTERNAL", 8, memory.INTERNAL),
        _predicate("INSTRUCTION_IS_CHANGING", 8, memory.CHANGING),
    ]
    return [
        "// Memory in the network.",
        "\n".join(constants),
        "\n".join(_constants(memory.Instruction, "INSTRUCTION", 8)),
        "\n".join(_constants(memory.Flag, "FLAG", 8)),
        "\n".join(_constants(memory.LaneType, "LANE_TYPE", 8)),
        "\n".join(_constants(memory.MemoryStatus, "MEMORY_STATUS", 8)),
        "\n".join(predicates),
        _header("memory_h", memory.MEMORY_FIELDS),
    ]


def _operations() -> list[str]:
    """Macros for aggregate.p4: what each operation does to a field, an action for each on a header of n chunks, and the choice
    among them. STORE comes second, because most packets sum, and one in each block stores."""
    lines = []
    for op in schema.COMBINING:
        expression = re.sub(r"\bours\b", "hdr.h.f", op.p4)
        compare = "COMPARE(h, f, i) " * (op in schema.COMPARING)
        lines.append(f"#define {op.name}(h, f, i) HOLD(h, f, i) {compare}hdr.h.f = {expression}; STORE(h, f, i)")
    actions = [f"action {op.name.lower()}##n() {{ EACH##n({op.name}, chunks##n) }}" for op in schema.COMBINING]
    chosen = [
        f"if (meta.combine == COMBINE_BY + (bit<8>)OP_{op.name}) {{ {op.name.lower()}##n(); }}"
        for op in schema.COMBINING
    ]
    chosen.insert(1, "if (meta.combine == COMBINE_STORE) { store##n(); }")
    lines.append(" \\\n    ".join(["#define OPERATIONS(n)", *actions]))
    lines.append(" \\\n    else ".join([f"#define COMBINE(n) \\\n    {chosen[0]}", *chosen[1:]]))
    return lines


def _wide_header(chunks: int) -> str:
    """A payload header of this many chunks: one header with many fields costs BMv2 far less than many headers."""
    fields = [Field(f"f{index}", schema.CHUNK_BYTES * 8, "one chunk") for index in range(chunks)]
    return _header(f"chunks{chunks}_h", fields)


def _macros(fields: Sequence[Field], prefix: str, raw: str, value: str = "AS") -> list[str]:
    """For each field of a register's cell, two macros: one extracts it from the cell, one shifts a value into its place.

    The program treats the record as one number: BMv2 pays for every field that is written, hardly for its width.
    """
    lines = []
    for field, low in schema.positions(fields):
        name = field.name.upper()
        cut, place = f"{prefix}_{name}(r)", f"{value}_{name}(x)"
        lines.append(f"#define {cut:<22} r[{low + field.bits - 1}:{low}]")
        lines.append(f"#define {place:<22} (({raw})(x) << {low})")
    return lines


def _record_macros() -> list[str]:
    """For the record's fields also a macro that compares one with a constant: BMv2 masks once, where cutting the field out
    takes a shift and two masks."""
    lines = _macros(schema.RECORD_FIELDS, "RECORD", "record_raw_t")
    ones = {field.name: ((1 << field.bits) - 1) << low for field, low in schema.positions(schema.RECORD_FIELDS)}
    for name, mask in ones.items():
        has = f"HAS_{name.upper()}(r, x)"
        lines.append(f"#define {has:<22} ((r & {mask:#x}) == AS_{name.upper()}(x))")
    lines.append(f"const record_raw_t FINGERPRINT_BITS = {sum(ones[name] for name in schema.FINGERPRINT_FIELDS):#x};")
    lines.append(f"const record_raw_t SEEN_BITS = {ones['seen']:#x};")
    lines.append(f"const record_raw_t PAYLOAD_BITS = {ones['grad_cnt'] | ones['chunks']:#x};")
    return lines


def _comment(fields: Sequence[Field]) -> str:
    return "\n".join(f"//   {field.name:<14} {field.bits:>3}  {field.doc}" for field in fields)


def p4_text() -> str:
    constants = [
        f"const bit<16> NETSUM_PORT = {schema.UDP_PORT};",
        f"const bit<4> NETSUM_VERSION = {schema.VERSION};",
        f"const bit<16> NETSUM_HEADER_BYTES = {schema.HEADER_BYTES};",
        f"const bit<16> MAX_PAYLOAD_BYTES = {schema.CHUNK_BYTES * schema.MAX_CHUNKS};",
        f"const bit<8> EVERYONE = {schema.EVERYONE};",
        f"const bit<9> CPU_PORT = {schema.CPU_PORT};",
        f"const bit<16> FLOOD_GROUP = {schema.FLOOD_GROUP};",
        f"const bit<16> SCAN_SLOTS = {schema.SCAN_SLOTS};",
        f"const bit<16> SCAN_GROUPS = {schema.SCAN_GROUPS};",
        f"const bit<16> SCAN_REPLICA = {schema.SCAN_REPLICA};",
        f"const bit<48> BACKOFF_US = {schema.BACKOFF_US};",
        f"const bit<32> SLOTS = {schema.SLOTS};",
        f"const bit<32> OUTCOME_COUNTERS = {256 * schema.OUTCOMES_PER_JOB};",
        f"typedef bit<{schema.CHUNK_BYTES * 8}> chunk_t;",
        f"typedef bit<{schema.RECORD_BITS}> record_raw_t;",
        f"typedef bit<{schema.PROGRESS_BITS}> progress_raw_t;",
    ]
    for lane in schema.Lane:
        top = sum(1 << low + lane.bits - 1 for low in range(0, schema.CHUNK_BYTES * 8, lane.bits))
        constants.append(f"const chunk_t TOP_BITS_{lane.bits} = {top:#x};")
    sections = [
        "\n".join(constants),
        "\n".join(_constants(schema.Op, "OP", 4)),
        "\n".join(_constants(schema.Lane, "LANE", 4)),
        "\n".join(_constants(schema.Status, "STATUS", 4)),
        "\n".join(_constants(schema.AgeOp, "AGE", 4)),
        "\n".join(_constants(schema.Hop, "HOP", 2)),
        "\n".join(_constants(schema.BlockState, "STATE", 3)),
        "\n".join(_constants(schema.Role, "ROLE", 8)),
        "\n".join(_constants(schema.Outcome, "OUTCOME", 5)),
        "\n".join(_constants(schema.PacketOutKind, "KIND", 8)),
        "// Which values of a field belong together. Nothing else may ask for an order among them.",
        "\n".join(_predicates()),
        "// The operations.",
        "\n".join(_operations()),
        _header("netsum_h", schema.HEADER_FIELDS),
        *(_wide_header(1 << power) for power in range(schema.MAX_CHUNKS.bit_length())),
        f"// The block record, {schema.RECORD_BITS} bits in one register cell:\n" + _comment(schema.RECORD_FIELDS),
        "\n".join(_record_macros()),
        f"// A job's progress, {schema.PROGRESS_BITS} bits in one register cell:\n" + _comment(schema.PROGRESS_FIELDS),
        "\n".join(_macros(schema.PROGRESS_FIELDS, "PROGRESS", "progress_raw_t", "AS_PROGRESS")),
        '@controller_header("packet_out")\n' + _header("packet_out_h", schema.QUERY_FIELDS),
        '@controller_header("packet_in")\n' + _header("packet_in_h", schema.QUERY_FIELDS),
        *_memory(),
    ]
    return "\n".join([_HEAD, "\n\n".join(sections), "", "#endif", ""])


if __name__ == "__main__":
    print(p4_text(), end="")
