# SPDX-License-Identifier: MIT
"""Writes what the Wireshark dissector, ``netsum.lua`` beside this file, takes from the schema: its constants, and the place of
every field. ``make p4`` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from netsum.wire import memory, schema
from netsum.wire.codec import VALUE_NAMES
from netsum.wire.memory import FLAG_NAMES, MEMORY_NAMES
from netsum.wire.schema import Field

LUA_FILE = Path(__file__).with_name("netsum.lua")

_MEMORY_BYTES = ("instruction", "flags", "status", "segments", "length", "client", "sequence", "address")
"""Fields that the dissector looks at itself."""

_BEGIN, _END = "-- generated: begin\n", "-- generated: end\n"


def _lua_kind(size: int) -> str:
    """Wireshark's type for this many bytes."""
    for most, kind in ((1, "UINT8"), (2, "UINT16"), (4, "UINT32"), (8, "UINT64")):
        if size <= most:
            return f"ftypes.{kind}"
    return "ftypes.BYTES"


def _table(names: Mapping[int, str]) -> str:
    return "{" + ", ".join(f'[{value}] = "{name}"' for value, name in names.items()) + "}"


def _layout(name: str, fields: Sequence[Field], names: Mapping[str, Mapping[int, str]] = VALUE_NAMES) -> str:
    """A Lua list that says where each field is, and what its values are called."""
    lines = [f"local {name} = {{"]
    for offset, size, members in schema.byte_groups(fields):
        for field, shift in members:
            parts = [f'name = "{field.name}"', f'doc = "{field.doc}"', f"offset = {offset}", f"bytes = {size}"]
            parts.append(f"kind = {_lua_kind(size)}")
            if len(members) > 1:
                parts.append(f"mask = {((1 << field.bits) - 1) << shift:#x}")
            if field.name in names:
                parts.append(f"values = {_table(names[field.name])}")
            lines.append(f"    {{{', '.join(parts)}}},")
    return "\n".join([*lines, "}"])


def _memory_sections() -> list[str]:
    """The part about memory in the network."""
    byte_of = {members[0][0].name: offset for offset, _, members in schema.byte_groups(memory.MEMORY_FIELDS)}
    constants = {
        "MEMORY_PORT": memory.MEMORY_PORT,
        "MEMORY_VERSION": memory.MEMORY_VERSION,
        "MEMORY_HEADER_BYTES": memory.MEMORY_HEADER_BYTES,
        "MAX_SEGMENTS": memory.MAX_SEGMENTS,
        "SEGMENT_BYTES": memory.SEGMENT_BYTES,
        **{f"MEMORY_{name.upper()}_BYTE": byte_of[name] for name in _MEMORY_BYTES},
    }
    return [
        *(f"local {name} = {value}" for name, value in constants.items()),
        f"local INSTRUCTIONS = {_table(MEMORY_NAMES['instruction'])}",
        f"local MEMORY_STATUSES = {_table(MEMORY_NAMES['status'])}",
        f"local FLAGS = {_table(FLAG_NAMES)}",
        _layout("MEMORY", memory.MEMORY_FIELDS, MEMORY_NAMES),
    ]


def dissector_text(dissector: str) -> str:
    """The dissector, with the part that comes from the schema rewritten."""
    query_bytes = sum(field.bits for field in schema.QUERY_FIELDS) // 8
    byte_of = {field.name: offset for offset, _, members in schema.byte_groups(schema.HEADER_FIELDS) for field, _ in members}
    constants = {
        "UDP_PORT": schema.UDP_PORT,
        "VERSION": schema.VERSION,
        "HEADER_BYTES": schema.HEADER_BYTES,
        "RECORD_BYTES": query_bytes + schema.RECORD_BITS // 8,
        "CHUNK_BYTES": schema.CHUNK_BYTES,
        "MAX_CHUNKS": schema.MAX_CHUNKS,
        "STALE": int(schema.Status.STALE),
        "REFUSED": int(schema.Status.REFUSED),
        "AGAIN": int(schema.Status.AGAIN),
        "UP": int(schema.Hop.UP),
        "DOWN": int(schema.Hop.DOWN),
        "VERSION_BYTE": byte_of["version"],
        "LANE_BYTE": byte_of["lane"],
        "FLAGS_BYTE": byte_of["hop"],
        "LANE_CNT_BYTE": byte_of["lane_cnt"],
        "SRC_ID_BYTE": byte_of["src_id"],
        "RECEIVER_ID_BYTE": byte_of["receiver_id"],
        "SWITCH_SOURCE": schema.SWITCH_SOURCE,
        "DEST_BYTE": byte_of["dest"],
        "DATA_CNT_BYTE": byte_of["data_cnt"],
        "EVERYONE": schema.EVERYONE,
    }
    sections = [
        *(f"local {name} = {value}" for name, value in constants.items()),
        f"local STATUSES = {_table(VALUE_NAMES['status'])}",
        f"local OPS = {_table(VALUE_NAMES['op'])}",
        _layout("HEADER", schema.HEADER_FIELDS),
        _layout("RECORD", (*schema.QUERY_FIELDS, *schema.RECORD_FIELDS)),
        *_memory_sections(),
    ]
    head, rest = dissector.split(_BEGIN)
    tail = rest.partition(_END)[2]
    return head + _BEGIN + "\n".join(sections) + "\n" + _END + tail


if __name__ == "__main__":
    LUA_FILE.write_text(dissector_text(LUA_FILE.read_text("utf-8")), "utf-8")
