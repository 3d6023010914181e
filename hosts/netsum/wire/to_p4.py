# SPDX-License-Identifier: MIT
"""Writes what the P4 program takes from the schema: ``types.p4`` (enumerations, header types, record layout, constants) and
``control/aggregate.p4`` (the operations). ``make p4`` puts them in place before compiling.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum, IntFlag
from typing import Final

from netsum.wire import memory, schema
from netsum.wire.schema import Field

_GENERATED = """\
// SPDX-License-Identifier: MIT
// Generated from hosts/netsum/wire/schema.py{more} by `make p4`. Do not edit.
"""
_ENUMS: Final = {
    "op": "op_t",
    "lane": "lane_t",
    "status": "status_t",
    "age_op": "age_op_t",
    "hop": "hop_t",
    "state": "state_t",
    "kind": "packet_out_kind_t",
}
"""The type of a field, if it is not plain bits."""
_MEMORY_ENUMS: Final = {"instruction": "instruction_t", "status": "memory_status_t"}
_COMBINE: Final = {"NOTHING": 0, "STORE": 1, "LOAD": 2, **{op.name: 16 + op for op in schema.COMBINING}}
_BUFFERS: Final = {16: range(16), 8: range(8), 4: range(8, 12), 2: range(12, 14), 1: range(14, 15)}
"""The buffer registers of each payload header's fields, by its number of chunks. A block's size is fixed by its first payload, so
all of its contributions meet in the same ones."""


def _header(name: str, fields: Sequence[Field], enums: Mapping[str, str] = _ENUMS) -> str:
    lines = [f"header {name} {{"]
    for field in fields:
        lines.append(f"    {enums.get(field.name, f'bit<{field.bits}>'):<18} {field.name + ';':<18} // {field.doc}")
    return "\n".join([*lines, "}"])


def _enum(name: str, bits: int, members: Mapping[str, int]) -> str:
    lines = [f"    {member:<20} = {number}" for member, number in members.items()]
    return f"enum bit<{bits}> {name} {{\n" + ",\n".join(lines) + "\n}"


def _members(enum: type[IntEnum]) -> dict[str, int]:
    return {member.name: int(member) for member in enum}


def _saturated() -> str:
    """For each field that repeats another as far as it goes, a macro that makes the one of the other."""
    bits = {field.name: field.bits for field in schema.HEADER_FIELDS}
    lines = []
    for name, wide in schema.SATURATED.items():
        most = f"{bits[wide]}w{(1 << bits[name]) - 1}"
        lines.append(f"#define AS_{name.upper()}_OF(x) ((bit<{bits[name]}>)({most} - ({most} |-| (x))))")
    return "\n".join(lines)


def _constants(enum: type[IntFlag], prefix: str, bits: int) -> list[str]:
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
    x = f"(bit<{bits}>)(x)"
    tests = []
    for first, last in _runs(numbers):
        bounds = [f"{x} >= {first}"] * (first > 0) + [f"{x} <= {last}"] * (last < values[-1])
        tests.append(" && ".join(bounds) if first < last else f"{x} == {first}")
    text = tests[0] if len(tests) == 1 else " || ".join(f"({test})" for test in tests)
    alike = sum(1 << bit for bit in range(bits) if len({number >> bit & 1 for number in numbers}) == 1)
    wanted = min(numbers) & alike
    if ("&&" in text or "||" in text) and {value for value in values if value & alike == wanted} == numbers:
        text = f"({x} & {alike:#x}) == {wanted}"
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
        "// The reason that a REFUSED answer gives.\n#define REASON(x) (bit<8>)((bit<5>)(x))",
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
        _enum("instruction_t", 8, _members(memory.Instruction)),
        "\n".join(_constants(memory.Flag, "FLAG", 8)),
        _enum("memory_status_t", 8, _members(memory.MemoryStatus)),
        "\n".join(predicates),
        _header("memory_h", memory.MEMORY_FIELDS, _MEMORY_ENUMS),
    ]


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
        name, enum = field.name.upper(), _ENUMS.get(field.name)
        cut, place = f"{prefix}_{name}(r)", f"{value}_{name}(x)"
        lines.append(f"#define {cut:<30} {f'({enum})' if enum else ''}r[{low + field.bits - 1}:{low}]")
        number = f"(bit<{field.bits}>)(x)" if enum else "(x)"
        # p4c shifts by 256 bits at most, but a concatenation may be longer.
        lines.append(f"#define {place:<30} " + (f"(({raw}){number} << {low})" if low <= 256 else f"({number} ++ {low}w0)"))
    return lines


def _record_macros() -> list[str]:
    """For the record's fields also a macro that compares one with a constant: BMv2 masks once, where cutting the field out
    takes a shift and two masks."""
    lines = _macros(schema.RECORD_FIELDS, "RECORD", "record_raw_t")
    ones = {field.name: ((1 << field.bits) - 1) << low for field, low in schema.positions(schema.RECORD_FIELDS)}
    for name, mask in ones.items():
        has = f"HAS_{name.upper()}(r, x)"
        lines.append(f"#define {has:<30} ((r & {mask:#x}) == AS_{name.upper()}(x))")
    lines.append(f"const record_raw_t FINGERPRINT_BITS = {sum(ones[name] for name in schema.FINGERPRINT_FIELDS):#x};")
    lines.append(f"const record_raw_t START_BITS = {ones['start']:#x};")
    lines.append(f"const record_raw_t SEEN_BITS = {ones['seen']:#x};")
    lines.append(f"const record_raw_t PAYLOAD_BITS = {ones['lane_cnt'] | ones['chunks']:#x};")
    return lines


def _comment(fields: Sequence[Field]) -> str:
    return "\n".join(f"//   {field.name:<14} {field.bits:>3}  {field.doc}" for field in fields)


def types_text() -> str:
    """``types.p4``."""
    constants = [
        f"const bit<16> NETSUM_PORT = {schema.UDP_PORT};",
        f"const bit<4> NETSUM_VERSION = {schema.VERSION};",
        f"const bit<16> NETSUM_HEADER_BYTES = {schema.HEADER_BYTES};",
        f"const bit<16> MAX_PAYLOAD_BYTES = {schema.CHUNK_BYTES * schema.MAX_CHUNKS};",
        f"const bit<16> EVERYONE = {schema.EVERYONE};",
        f"const bit<8> SWITCH_SOURCE = {schema.SWITCH_SOURCE};",
        f"const bit<9> CPU_PORT = {schema.CPU_PORT};",
        f"const bit<16> FLOOD_GROUP = {schema.FLOOD_GROUP};",
        f"const bit<16> SCAN_SLOTS = {schema.SCAN_SLOTS};",
        f"const bit<16> SCAN_GROUPS = {schema.SCAN_GROUPS};",
        f"const bit<16> SCAN_REPLICA = {schema.SCAN_REPLICA};",
        f"const bit<16> IP_MULTICAST_GROUPS = {schema.IP_MULTICAST_GROUPS};",
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
        _enum("op_t", 4, _members(schema.Op)),
        _enum("lane_t", 4, _members(schema.Lane)),
        _enum("status_t", 4, _members(schema.Status)),
        _enum("age_op_t", 4, _members(schema.AgeOp)),
        _enum("hop_t", 2, _members(schema.Hop)),
        _enum("state_t", 3, _members(schema.BlockState)),
        _enum("role_t", 3, _members(schema.Role)),
        _enum("outcome_t", 5, {**_members(schema.Outcome), "PENDING": 31}),
        _enum("packet_out_kind_t", 8, _members(schema.PacketOutKind)),
        "// How the payload of a packet meets the slot's buffer. STORE: the first payload overwrites it; LOAD: it becomes the\n"
        "// packet's payload; an operation: both become what they combine to.\n" + _enum("combine_t", 8, _COMBINE),
        "#define COMBINE_BY(op) (combine_t)(8w16 + (bit<8>)(bit<4>)(op))",
        "// Which values of a field belong together. Nothing else may ask for an order among them.",
        "\n".join(_predicates()),
        _header("netsum_h", schema.HEADER_FIELDS),
        "// What fields of the Trio-ML header repeat of the extension, as far as they go.\n" + _saturated(),
        *(_wide_header(1 << power) for power in range(schema.MAX_CHUNKS.bit_length())),
        f"// The block record, {schema.RECORD_BITS} bits in one register cell:\n" + _comment(schema.RECORD_FIELDS),
        "\n".join(_record_macros()),
        f"// A job's progress, {schema.PROGRESS_BITS} bits in one register cell:\n" + _comment(schema.PROGRESS_FIELDS),
        "\n".join(_macros(schema.PROGRESS_FIELDS, "PROGRESS", "progress_raw_t", "AS_PROGRESS")),
        '@controller_header("packet_out")\n' + _header("packet_out_h", schema.QUERY_FIELDS),
        '@controller_header("packet_in")\n' + _header("packet_in_h", schema.QUERY_FIELDS),
        *_memory(),
    ]
    head = _GENERATED.format(more=" and memory.py") + "\n#ifndef TYPES_P4\n#define TYPES_P4\n"
    return "\n".join([head, "\n\n".join(sections), "", "#endif", ""])


# The operations.


_AGGREGATE: Final = """
// The gradients: one addition per 2048-bit chunk. Hosts bias their lanes so that no sum carries from one lane into the
// next; the switch needs no mask, no lane width and no loop.
//
// A payload of k chunks is the headers that the bits of k name (see headers.p4). MIN and MAX compare lane by lane (Hacker's
// Delight, 2-18): with `top` the top bit of every lane, the borrow-free difference `low` says in each lane's top bit whether
// ours >= held; that bit is then widened to `wins`, a mask of its lane.

// Whether the header of n chunks is part of the block's payload.
#define WITH(n) ((meta.record & AS_CHUNKS(n)) != 0)

control Aggregate(inout headers_t hdr, in metadata_t meta) {
    DropPayload() drop_payload;
    chunk_t held;   // what the slot holds
    chunk_t low;    // per lane: did the low bits borrow
    chunk_t wins;   // per lane: does ours win
    chunk_t top;    // the top bit of every lane
    bit<8>  shift;  // lane width - 1
"""
_LOAD: Final = """
    apply {
        if (meta.combine == combine_t.LOAD) {
            // What came in with the asking packet makes room for what the slot holds. But a partial without payload keeps
            // the room of its packet: the result may need it.
            if (!HAS_CHUNKS(meta.record, 0) || HAS_STATE(meta.record, state_t.DONE)) {
                drop_payload.apply(hdr);
            }
"""
_TOPS: Final = """\
        } else if (meta.combine != combine_t.NOTHING) {
            if (OP_COMPARES(hdr.netsum.op)) {
                shift = (8w8 << (bit<4>)hdr.netsum.lane) - 1;
                if (hdr.netsum.lane == lane_t.L8)       { top = TOP_BITS_8; }
                else if (hdr.netsum.lane == lane_t.L16) { top = TOP_BITS_16; }
                else if (hdr.netsum.lane == lane_t.L32) { top = TOP_BITS_32; }
                else                                    { top = TOP_BITS_64; }
            }
"""


def _action(name: str, chunks: int, lines: Sequence[str], before: str = "") -> str:
    """An action that does these lines to each field of the header of ``chunks`` chunks."""
    body = [before] if before else []
    for field, buffer in enumerate(_BUFFERS[chunks]):
        names = {"OURS": f"hdr.chunks{chunks}.f{field}", "BUFFER": f"buffer{buffer}"}
        body += [re.sub("OURS|BUFFER", lambda found: names[found[0]], line) for line in lines]  # noqa: B023
    return f"    action {name}{chunks}() {{\n" + "".join(f"        {line}\n" for line in body) + "    }\n"


def _combining(op: schema.Op) -> list[str]:
    compare = [
        "low = (OURS | top) - (held & ~top);",
        "wins = ((OURS & ~held) | (~(OURS ^ held) & low)) & top;",
        "wins = (wins - (wins >> shift)) | wins;",
    ]
    expression = re.sub(r"\bours\b", "OURS", op.p4)
    if op not in schema.COMPARING:
        return [f"BUFFER.read(held, meta.slot); OURS = {expression}; BUFFER.write(meta.slot, OURS);"]
    return ["BUFFER.read(held, meta.slot);", *compare, f"OURS = {expression}; BUFFER.write(meta.slot, OURS);"]


def _choice(chunks: int, indent: str) -> str:
    """The action for a packet's header of ``chunks`` chunks. STORE comes second: most packets sum, and one in each block
    stores."""
    first, *others = [op.name for op in schema.COMBINING]
    tests = [f"if (meta.combine == combine_t.{name}) {{ {name.lower()}{chunks}(); }}" for name in (first, "STORE", *others)]
    return "".join(f"{indent}{'else ' * (at > 0)}{test}\n" for at, test in enumerate(tests))


def aggregate_text() -> str:
    """``control/aggregate.p4``."""
    registers = [
        f"    @id(BUFFER_REGISTER({number})) register<chunk_t, bit<32>>(SLOTS) buffer{number};\n" for number in range(16)
    ]
    actions = []
    for chunks in _BUFFERS:
        actions.append(_action("store", chunks, ["BUFFER.write(meta.slot, OURS);"]))
        actions.append(_action("load", chunks, ["BUFFER.read(OURS, meta.slot);"], f"hdr.chunks{chunks}.setValid();"))
        actions += [_action(op.name.lower(), chunks, _combining(op)) for op in schema.COMBINING]
    loads = "".join(f"            if (WITH({chunks})) {{ load{chunks}(); }}\n" for chunks in _BUFFERS)
    few = "".join(
        f"                if (WITH({chunks})) {{\n{_choice(chunks, ' ' * 20)}                }}\n"
        for chunks in _BUFFERS
        if chunks < max(_BUFFERS)
    )
    choice = f"            if (WITH(16)) {{\n{_choice(16, ' ' * 16)}            }} else {{\n{few}            }}\n"
    head = _GENERATED.format(more="").rstrip("\n") + "\n//" + _AGGREGATE.removeprefix("\n//")
    return head + "".join(registers) + "\n" + "".join(actions) + _LOAD + loads + _TOPS + choice + "        }\n    }\n}\n"
