"""Writes the Wireshark dissector, ``netsum.lua`` beside this file, from the schema: ``python -m netsum.wire.to_lua``.

The dissector takes UDP datagrams from or to port 12000 that look like netsum's (version, lane width, length) and leaves all
others alone. Every field of the schema is ``netsum.NAME``; ``netsum.gradients`` joins the two parts of grad_cnt, and
``netsum.lane8`` ... ``netsum.lane64`` are the gradients. Block records, as queries return them, are a protocol of their own,
``netsum_record``, for captures of link type USER0 (147).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from netsum.wire import schema
from netsum.wire.names import REASON_NAMES, VALUE_NAMES
from netsum.wire.schema import Field

LUA_FILE = Path(__file__).with_name("netsum.lua")

_HEAD = """\
-- Wireshark dissector of netsum. Generated from hosts/netsum/wire/schema.py by `make p4`. Do not edit.
-- Use: wireshark -X lua_script:netsum.lua, or put it into Wireshark's plugin folder.
"""

# The part that does not depend on the fields. HEADER, RECORD, QUERY: list of {field, offset, bytes}.
_BODY = """\
local netsum = Proto("netsum", "In-network aggregation (Trio-ML header, netsum extension)")
local record = Proto("netsum_record", "netsum block record")

local SIZES = {[0] = 1, 2, 4, 8}     -- bytes of a lane

local function make(prefix, layout)
    local fields = {}
    for _, entry in ipairs(layout) do
        local base = (entry.kind ~= ftypes.BYTES) and base.DEC or base.NONE
        entry.field = ProtoField.new(entry.name, prefix .. "." .. entry.name, entry.kind, entry.values, base,
                                     entry.mask, entry.doc)
        table.insert(fields, entry.field)
    end
    return fields
end

local gradients = ProtoField.uint16("netsum.gradients", "gradients in the payload", base.DEC)
local reason = ProtoField.uint8("netsum.reason", "reason of the refusal", base.DEC, REASONS)
local room = ProtoField.bytes("netsum.room", "room for the result")
local lanes = {
    [0] = ProtoField.uint8("netsum.lane8", "gradient", base.DEC),
    [1] = ProtoField.uint16("netsum.lane16", "gradient", base.DEC),
    [2] = ProtoField.uint32("netsum.lane32", "gradient", base.DEC),
    [3] = ProtoField.uint64("netsum.lane64", "gradient", base.DEC),
}
netsum.fields = make("netsum", HEADER)
for _, field in pairs({gradients, reason, room, lanes[0], lanes[1], lanes[2], lanes[3]}) do
    table.insert(netsum.fields, field)
end
record.fields = make("netsum_record", RECORD)

local bad_length = ProtoExpert.new("netsum.bad_length", "grad_cnt and the UDP length disagree",
                                   expert.group.MALFORMED, expert.severity.ERROR)
netsum.experts = {bad_length}

local function show(tree, buffer, layout)
    for _, entry in ipairs(layout) do
        tree:add(entry.field, buffer(entry.offset, entry.bytes))
    end
end

local function show_payload(tree, buffer, count, lane)
    local payload = buffer:len() - HEADER_BYTES
    if count == 0 then
        if payload > 0 then
            tree:add(room, buffer(HEADER_BYTES, payload))
        end
        return
    end
    local size = SIZES[lane]
    if payload ~= count * size then
        tree:add_proto_expert_info(bad_length)
        count = math.floor(math.min(count, payload / size))
    end
    if count > 0 then
        local title = string.format("Gradients: %d lanes of %d bits", count, 8 * size)
        local branch = tree:add(buffer(HEADER_BYTES, count * size), title)
        for index = 0, count - 1 do
            branch:add(lanes[lane], buffer(HEADER_BYTES + index * size, size))
        end
    end
end

local function kind(port, hop, status, count, data_cnt, dest)
    if hop == UP then
        return count > 0 and "partial" or "empty partial"
    elseif port ~= UDP_PORT and hop ~= DOWN then
        return count > 0 and "contribution" or "empty contribution"
    elseif status == STALE or status == REFUSED or status == AGAIN then
        return "answer"
    elseif status == 0 and count == 0 and data_cnt > 0 then
        return dest == EVERYONE and "notice" or "header-only result"
    end
    return "result"
end

-- Is it ours? The port alone does not say.
local function looks_right(buffer)
    local length = buffer:len()
    return length >= HEADER_BYTES and (length - HEADER_BYTES) % CHUNK_BYTES == 0
        and length - HEADER_BYTES <= CHUNK_BYTES * MAX_CHUNKS
        and buffer(VERSION_BYTE, 1):bitfield(0, 4) == VERSION and buffer(LANE_BYTE, 1):bitfield(0, 4) <= 3
end

function netsum.dissector(buffer, packet, root)
    if not looks_right(buffer) then
        return 0
    end
    local tree = root:add(netsum, buffer())
    show(tree, buffer, HEADER)
    local hop = buffer(GRADIENTS_BYTE, 1):bitfield(0, 2)
    local count = buffer(GRADIENTS_BYTE, 2):bitfield(2, 14)
    local lane = buffer(LANE_BYTE, 1):bitfield(0, 4)
    local status = buffer(LANE_BYTE, 1):bitfield(4, 4)
    local op = buffer(VERSION_BYTE, 1):bitfield(4, 4)
    tree:add(gradients, buffer(GRADIENTS_BYTE, 2), count):set_generated()
    if status == REFUSED then
        tree:add(reason, buffer(REASON_BYTE, 1), buffer(REASON_BYTE, 1):bitfield(0, 4)):set_generated()
    end
    show_payload(tree, buffer, count, lane)
    local data_cnt, dest = buffer(DATA_CNT_BYTE, 1):uint(), buffer(DEST_BYTE, 1):uint()
    local what = kind(packet.src_port, hop, status, count, data_cnt, dest)
    packet.cols.protocol = "netsum"
    packet.cols.info = string.format("%s job %d block %d source %d: %s %s %d x %d bits", what, buffer(0, 1):uint(),
        buffer(1, 4):uint(), buffer(SRC_ID_BYTE, 1):uint(), STATUSES[status] or status, OPS[op] or op, count,
        8 * SIZES[lane])
    tree:append_text(", " .. what)
    return buffer:len()
end

function record.dissector(buffer, packet, root)
    if buffer:len() < RECORD_BYTES then
        return 0
    end
    packet.cols.protocol = "netsum record"
    show(root:add(record, buffer()), buffer, RECORD)
    return buffer:len()
end

DissectorTable.get("udp.port"):add(UDP_PORT, netsum)
DissectorTable.get("wtap_encap"):add(wtap.USER0, record)
"""


def _lua_kind(size: int) -> str:
    """Wireshark's type for this many bytes."""
    for most, kind in ((1, "UINT8"), (2, "UINT16"), (4, "UINT32"), (8, "UINT64")):
        if size <= most:
            return f"ftypes.{kind}"
    return "ftypes.BYTES"


def _table(names: Mapping[int, str]) -> str:
    return "{" + ", ".join(f'[{value}] = "{name}"' for value, name in names.items()) + "}"


def _layout(name: str, fields: Sequence[Field], lead: int = 0) -> str:
    """A Lua list that says where each field is; ``lead`` bytes come before the first."""
    lines = [f"local {name} = {{"]
    for offset, size, members in schema.byte_groups(fields):
        for field, shift in members:
            parts = [f'name = "{field.name}"', f'doc = "{field.doc}"', f"offset = {lead + offset}", f"bytes = {size}"]
            parts.append(f"kind = {_lua_kind(size)}")
            if len(members) > 1:
                parts.append(f"mask = {((1 << field.bits) - 1) << shift:#x}")
            if field.name in VALUE_NAMES:
                parts.append(f"values = {_table(VALUE_NAMES[field.name])}")
            lines.append(f"    {{{', '.join(parts)}}},")
    return "\n".join([*lines, "}"])


def lua_text() -> str:
    query_bytes = sum(field.bits for field in schema.QUERY_FIELDS) // 8
    byte_of = {
        field.name: offset for offset, _, members in schema.byte_groups(schema.HEADER_FIELDS) for field, _ in members
    }
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
        "GRADIENTS_BYTE": byte_of["grad_cnt_high"],
        "REASON_BYTE": byte_of["age_op"],
        "SRC_ID_BYTE": byte_of["src_id"],
        "DEST_BYTE": byte_of["dest"],
        "DATA_CNT_BYTE": byte_of["data_cnt"],
        "EVERYONE": schema.EVERYONE,
    }
    sections = [
        _HEAD,
        "\n".join(f"local {name} = {value}" for name, value in constants.items()),
        f"local REASONS = {_table(REASON_NAMES)}",
        f"local STATUSES = {_table(VALUE_NAMES['status'])}",
        f"local OPS = {_table(VALUE_NAMES['op'])}",
        _layout("HEADER", schema.HEADER_FIELDS),
        _layout("RECORD", (*schema.QUERY_FIELDS, *schema.RECORD_FIELDS)),
        "",
        _BODY,
    ]
    return "\n".join(sections)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the Wireshark dissector.")
    parser.add_argument("--print", action="store_true", help="print it instead")
    if parser.parse_args().print:
        print(lua_text(), end="")
    else:
        LUA_FILE.write_text(lua_text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
