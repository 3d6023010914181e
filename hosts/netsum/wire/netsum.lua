-- Wireshark dissector of netsum.
-- Use: wireshark -X lua_script:netsum.lua, or put it into Wireshark's plugin folder.
--
-- It takes UDP datagrams from or to port 12000 that look like netsum's (version, lane width, length) and leaves all others
-- alone. Every field of the schema is netsum.NAME; netsum.lane8 to netsum.lane64 are the gradients. Block records, as queries return them, are a protocol of their own, netsum_record, for
-- captures of link type USER0 (147). Packets of memory in the network, port 12001, are netsum_memory.

-- The constants and fields, from here to the end mark, are written by `make p4` from hosts/netsum/wire/schema.py and memory.py.
-- generated: begin
local UDP_PORT = 12000
local VERSION = 2
local HEADER_BYTES = 40
local RECORD_BYTES = 73
local CHUNK_BYTES = 256
local MAX_CHUNKS = 16
local STALE = 8
local REFUSED = 9
local AGAIN = 10
local UP = 1
local DOWN = 2
local VERSION_BYTE = 12
local LANE_BYTE = 13
local FLAGS_BYTE = 14
local LANE_CNT_BYTE = 22
local SRC_ID_BYTE = 6
local RECEIVER_ID_BYTE = 31
local SWITCH_SOURCE = 255
local DEST_BYTE = 16
local DATA_CNT_BYTE = 20
local EVERYONE = 65535
local STATUSES = {[0] = "OK", [1] = "RANGE", [2] = "ABORT", [3] = "MISMATCH", [8] = "STALE", [9] = "REFUSED", [10] = "AGAIN"}
local OPS = {[0] = "SUM", [1] = "MIN", [2] = "MAX", [3] = "AND", [4] = "OR", [5] = "XOR", [6] = "COPY"}
local HEADER = {
    {name = "job_id", doc = "the aggregation job", offset = 0, bytes = 1, kind = ftypes.UINT8},
    {name = "block_id", doc = "serial number of the block within the job; wraps", offset = 1, bytes = 4, kind = ftypes.UINT32},
    {name = "age_op", doc = "of a result: whether the block aged out, see AgeOp", offset = 5, bytes = 1, kind = ftypes.UINT8, mask = 0xf0},
    {name = "final", doc = "last block of the generation (informative)", offset = 5, bytes = 1, kind = ftypes.UINT8, mask = 0x8},
    {name = "degraded", doc = "partial: fewer workers than the job has; on a contribution: than the source has", offset = 5, bytes = 1, kind = ftypes.UINT8, mask = 0x4},
    {name = "reserved_flags", doc = "zero", offset = 5, bytes = 1, kind = ftypes.UINT8, mask = 0x3},
    {name = "src_id", doc = "the sender's source id at this switch; 255: a switch, of a result or an answer", offset = 6, bytes = 1, kind = ftypes.UINT8},
    {name = "src_cnt", doc = "worker_cnt, as far as it goes; not read", offset = 7, bytes = 1, kind = ftypes.UINT8},
    {name = "gen_id", doc = "generation: the collective call that the block belongs to", offset = 8, bytes = 2, kind = ftypes.UINT16},
    {name = "reserved_cnt", doc = "zero", offset = 10, bytes = 2, kind = ftypes.UINT16, mask = 0xf000},
    {name = "grad_cnt", doc = "lane_cnt, as far as it goes; not read", offset = 10, bytes = 2, kind = ftypes.UINT16, mask = 0xfff},
    {name = "version", doc = "version of this extension", offset = 12, bytes = 1, kind = ftypes.UINT8, mask = 0xf0},
    {name = "op", doc = "how contributions combine", offset = 12, bytes = 1, kind = ftypes.UINT8, mask = 0xf, values = {[0] = "SUM", [1] = "MIN", [2] = "MAX", [3] = "AND", [4] = "OR", [5] = "XOR", [6] = "COPY"}},
    {name = "lane", doc = "log2 of the bytes in a lane", offset = 13, bytes = 1, kind = ftypes.UINT8, mask = 0xf0, values = {[0] = "8 bits", [1] = "16 bits", [2] = "32 bits", [3] = "64 bits"}},
    {name = "status", doc = "outcome, see Status", offset = 13, bytes = 1, kind = ftypes.UINT8, mask = 0xf, values = {[0] = "OK", [1] = "RANGE", [2] = "ABORT", [3] = "MISMATCH", [8] = "STALE", [9] = "REFUSED", [10] = "AGAIN"}},
    {name = "no_aging", doc = "the block waits for every source: it never ages out", offset = 14, bytes = 1, kind = ftypes.UINT8, mask = 0x80},
    {name = "backoff", doc = "on a result: a job of a higher priority is busy at the switch; else zero", offset = 14, bytes = 1, kind = ftypes.UINT8, mask = 0x40},
    {name = "query", doc = "of a child switch's contribution: it adds nothing, it asks whether the parent has a result", offset = 14, bytes = 1, kind = ftypes.UINT8, mask = 0x20},
    {name = "early", doc = "from a switch: a COPY's payload, ahead of the result", offset = 14, bytes = 1, kind = ftypes.UINT8, mask = 0x10},
    {name = "hop", doc = "between whom the packet travels, see Hop", offset = 14, bytes = 1, kind = ftypes.UINT8, mask = 0xc, values = {[0] = "HOST", [1] = "UP", [2] = "DOWN"}},
    {name = "reserved", doc = "zero", offset = 14, bytes = 1, kind = ftypes.UINT8, mask = 0x3},
    {name = "reason", doc = "of a REFUSED answer, see Outcome; else zero", offset = 15, bytes = 1, kind = ftypes.UINT8, values = {[8] = "UNKNOWN_JOB", [9] = "NOT_MEMBER", [10] = "WRONG_PORT", [11] = "FINGERPRINT_MISMATCH", [12] = "OUT_OF_WINDOW", [13] = "UNSUPPORTED", [14] = "BAD_KEY"}},
    {name = "dest", doc = "rank that gets the result; 65535: every member", offset = 16, bytes = 2, kind = ftypes.UINT16, values = {[65535] = "every member"}},
    {name = "worker_cnt", doc = "workers that have contributed, with or without payload", offset = 18, bytes = 2, kind = ftypes.UINT16},
    {name = "data_cnt", doc = "how many of the worker_cnt contributions carried a payload", offset = 20, bytes = 2, kind = ftypes.UINT16},
    {name = "lane_cnt", doc = "number of gradients (lanes) in the payload", offset = 22, bytes = 2, kind = ftypes.UINT16},
    {name = "call_fingerprint", doc = "of what the call is; 0: its first block says that", offset = 24, bytes = 7, kind = ftypes.UINT64},
    {name = "receiver_id", doc = "from a switch: the receiver's source id there", offset = 31, bytes = 1, kind = ftypes.UINT8},
    {name = "key", doc = "by which a member proves itself; zero: not used", offset = 32, bytes = 8, kind = ftypes.UINT64},
}
local RECORD = {
    {name = "kind", doc = "see PacketOutKind", offset = 0, bytes = 1, kind = ftypes.UINT8},
    {name = "slot", doc = "query: index into the record register; scan: the job's slot to begin with; claim: high half", offset = 1, bytes = 2, kind = ftypes.UINT16},
    {name = "cookie", doc = "returned as it came", offset = 3, bytes = 2, kind = ftypes.UINT16},
    {name = "closed", doc = "packet_in of a scan: blocks that it closed; of a query: the block's age, 1024 us (65535: or more); claim: low half", offset = 5, bytes = 2, kind = ftypes.UINT16},
    {name = "start", doc = "ingress timestamp of the block's first packet, microseconds", offset = 7, bytes = 6, kind = ftypes.UINT64},
    {name = "seen", doc = "sources seen, one bit each", offset = 13, bytes = 32, kind = ftypes.BYTES},
    {name = "epoch", doc = "epoch of the job that wrote the record", offset = 45, bytes = 4, kind = ftypes.UINT32},
    {name = "block_id", doc = "the block that the slot holds", offset = 49, bytes = 4, kind = ftypes.UINT32},
    {name = "call_fingerprint", doc = "fingerprint: of what the block's call is", offset = 53, bytes = 7, kind = ftypes.UINT64},
    {name = "gen_id", doc = "fingerprint: generation of the block", offset = 60, bytes = 2, kind = ftypes.UINT16},
    {name = "dest", doc = "fingerprint: rank that gets the result", offset = 62, bytes = 2, kind = ftypes.UINT16, values = {[65535] = "every member"}},
    {name = "op", doc = "fingerprint: operation", offset = 64, bytes = 1, kind = ftypes.UINT8, mask = 0xf0, values = {[0] = "SUM", [1] = "MIN", [2] = "MAX", [3] = "AND", [4] = "OR", [5] = "XOR", [6] = "COPY"}},
    {name = "lane", doc = "fingerprint: lane width", offset = 64, bytes = 1, kind = ftypes.UINT8, mask = 0xf, values = {[0] = "8 bits", [1] = "16 bits", [2] = "32 bits", [3] = "64 bits"}},
    {name = "lane_cnt", doc = "lanes in the payload; 0: no payload yet", offset = 65, bytes = 2, kind = ftypes.UINT16},
    {name = "worker_cnt", doc = "workers that have contributed", offset = 67, bytes = 2, kind = ftypes.UINT16},
    {name = "data_cnt", doc = "contributions with payload", offset = 69, bytes = 2, kind = ftypes.UINT16},
    {name = "status", doc = "highest status contributed", offset = 71, bytes = 1, kind = ftypes.UINT8, mask = 0xf0, values = {[0] = "OK", [1] = "RANGE", [2] = "ABORT", [3] = "MISMATCH", [8] = "STALE", [9] = "REFUSED", [10] = "AGAIN"}},
    {name = "state", doc = "see BlockState", offset = 71, bytes = 1, kind = ftypes.UINT8, mask = 0xe, values = {[0] = "EMPTY", [1] = "OPEN", [2] = "DONE", [3] = "SENT", [4] = "DEAD"}},
    {name = "fingerprinted", doc = "the fingerprint is set (a contribution that was not ABORT has come)", offset = 71, bytes = 1, kind = ftypes.UINT8, mask = 0x1},
    {name = "degraded", doc = "the sum is partial", offset = 72, bytes = 1, kind = ftypes.UINT8, mask = 0x80},
    {name = "chunks", doc = "payload size in chunks", offset = 72, bytes = 1, kind = ftypes.UINT8, mask = 0x7c},
    {name = "no_aging", doc = "never ages out", offset = 72, bytes = 1, kind = ftypes.UINT8, mask = 0x2},
    {name = "congested", doc = "a contribution came with the mark CE of a congested link (RFC 3168)", offset = 72, bytes = 1, kind = ftypes.UINT8, mask = 0x1},
}
local MEMORY_PORT = 12001
local MEMORY_VERSION = 1
local MEMORY_HEADER_BYTES = 56
local MAX_SEGMENTS = 16
local SEGMENT_BYTES = 8
local MEMORY_INSTRUCTION_BYTE = 1
local MEMORY_FLAGS_BYTE = 2
local MEMORY_STATUS_BYTE = 3
local MEMORY_SEGMENTS_BYTE = 5
local MEMORY_LENGTH_BYTE = 6
local MEMORY_CLIENT_BYTE = 24
local MEMORY_SEQUENCE_BYTE = 20
local MEMORY_ADDRESS_BYTE = 40
local INSTRUCTIONS = {[0] = "NOP", [1] = "READ", [2] = "WRITE", [3] = "ADD", [4] = "MIN", [5] = "MAX", [6] = "SUM_FORWARD", [7] = "FETCH_ADD", [8] = "COMPARE_SWAP", [9] = "COPY", [10] = "OPTIMIZE", [11] = "LOOKUP", [12] = "PUSH", [16] = "ORDER", [17] = "ACK", [18] = "RECORD", [19] = "STORE"}
local MEMORY_STATUSES = {[0] = "OK", [1] = "MALFORMED", [2] = "UNSUPPORTED", [3] = "NO_REGION", [4] = "FORBIDDEN", [5] = "CROSSES", [6] = "BOUNDS", [7] = "ALIGNMENT", [8] = "MISMATCH", [10] = "NOT_PRIMARY", [11] = "LOST", [12] = "BUSY", [13] = "EXPIRED", [14] = "TYPE"}
local FLAGS = {[1] = "REPLY", [2] = "REPLICATED", [4] = "COMPRESSED", [8] = "REPEAT", [16] = "SHARED", [32] = "POSITION"}
local MEMORY = {
    {name = "version", doc = "version of this header", offset = 0, bytes = 1, kind = ftypes.UINT8, mask = 0xf0},
    {name = "reserved", doc = "0", offset = 0, bytes = 1, kind = ftypes.UINT8, mask = 0xf},
    {name = "instruction", doc = "what to do, see Instruction", offset = 1, bytes = 1, kind = ftypes.UINT8, values = {[0] = "NOP", [1] = "READ", [2] = "WRITE", [3] = "ADD", [4] = "MIN", [5] = "MAX", [6] = "SUM_FORWARD", [7] = "FETCH_ADD", [8] = "COMPARE_SWAP", [9] = "COPY", [10] = "OPTIMIZE", [11] = "LOOKUP", [12] = "PUSH", [16] = "ORDER", [17] = "ACK", [18] = "RECORD", [19] = "STORE"}},
    {name = "flags", doc = "see Flag", offset = 2, bytes = 1, kind = ftypes.UINT8},
    {name = "status", doc = "on a reply: the outcome, see MemoryStatus; else 0", offset = 3, bytes = 1, kind = ftypes.UINT8, values = {[0] = "OK", [1] = "MALFORMED", [2] = "UNSUPPORTED", [3] = "NO_REGION", [4] = "FORBIDDEN", [5] = "CROSSES", [6] = "BOUNDS", [7] = "ALIGNMENT", [8] = "MISMATCH", [10] = "NOT_PRIMARY", [11] = "LOST", [12] = "BUSY", [13] = "EXPIRED", [14] = "TYPE"}},
    {name = "lane", doc = "type of the lanes, see LaneType", offset = 4, bytes = 1, kind = ftypes.UINT8, values = {[0] = "BYTES", [1] = "INT32", [2] = "INT64", [3] = "FLOAT32", [4] = "FLOAT64", [5] = "UINT32", [6] = "UINT64"}},
    {name = "segments", doc = "segments behind the header", offset = 5, bytes = 1, kind = ftypes.UINT8},
    {name = "length", doc = "bytes of the payload before compression; READ and COPY: bytes wanted", offset = 6, bytes = 2, kind = ftypes.UINT16},
    {name = "shard", doc = "0 from clients: the switch writes the shard's number in its region", offset = 8, bytes = 2, kind = ftypes.UINT16},
    {name = "replica", doc = "on a reply: the device's number in the shard's group, 0 is the primary", offset = 10, bytes = 2, kind = ftypes.UINT16},
    {name = "epoch", doc = "0 from clients: the switch writes the shard's epoch", offset = 12, bytes = 4, kind = ftypes.UINT32},
    {name = "region", doc = "0 from clients: the switch writes the region's id", offset = 16, bytes = 4, kind = ftypes.UINT32},
    {name = "sequence", doc = "serial number of the client's instruction, from 1; never wraps", offset = 20, bytes = 4, kind = ftypes.UINT32},
    {name = "client", doc = "random number of the client's life", offset = 24, bytes = 8, kind = ftypes.UINT64},
    {name = "key", doc = "access key of the region; on a reply: the shard's position", offset = 32, bytes = 8, kind = ftypes.UINT64},
    {name = "address", doc = "virtual address of the first byte", offset = 40, bytes = 8, kind = ftypes.UINT64},
    {name = "argument", doc = "by instruction: the last position that the client was told; COPY's source; step and worker", offset = 48, bytes = 8, kind = ftypes.UINT64},
}
-- generated: end

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

local room = ProtoField.bytes("netsum.room", "room for the result")
local lanes = {
    [0] = ProtoField.uint8("netsum.lane8", "gradient", base.DEC),
    [1] = ProtoField.uint16("netsum.lane16", "gradient", base.DEC),
    [2] = ProtoField.uint32("netsum.lane32", "gradient", base.DEC),
    [3] = ProtoField.uint64("netsum.lane64", "gradient", base.DEC),
}
netsum.fields = make("netsum", HEADER)
for _, field in pairs({room, lanes[0], lanes[1], lanes[2], lanes[3]}) do
    table.insert(netsum.fields, field)
end
record.fields = make("netsum_record", RECORD)

local memory = Proto("netsum_memory", "netsum memory in the network")
local flags = {}
memory.fields = make("netsum_memory", MEMORY)
for bit, name in pairs(FLAGS) do
    flags[bit] = ProtoField.bool("netsum_memory.flags." .. name:lower(), name, 8, nil, bit)
    table.insert(memory.fields, flags[bit])
end
local segment = ProtoField.uint64("netsum_memory.segment", "segment", base.HEX)
local payload = ProtoField.bytes("netsum_memory.payload", "payload")
table.insert(memory.fields, segment)
table.insert(memory.fields, payload)

local bad_length = ProtoExpert.new("netsum.bad_length", "lane_cnt and the UDP length disagree",
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
    local hop = buffer(FLAGS_BYTE, 1):bitfield(4, 2)
    local count = buffer(LANE_CNT_BYTE, 2):uint()
    local lane = buffer(LANE_BYTE, 1):bitfield(0, 4)
    local status = buffer(LANE_BYTE, 1):bitfield(4, 4)
    local op = buffer(VERSION_BYTE, 1):bitfield(4, 4)
    show_payload(tree, buffer, count, lane)
    local data_cnt, dest = buffer(DATA_CNT_BYTE, 2):uint(), buffer(DEST_BYTE, 2):uint()
    local what = kind(packet.src_port, hop, status, count, data_cnt, dest)
    local source = buffer(SRC_ID_BYTE, 1):uint()
    if source == SWITCH_SOURCE then
        source = buffer(RECEIVER_ID_BYTE, 1):uint()
    end
    packet.cols.protocol = "netsum"
    packet.cols.info = string.format("%s job %d block %d source %d: %s %s %d x %d bits", what, buffer(0, 1):uint(),
        buffer(1, 4):uint(), source, STATUSES[status] or status, OPS[op] or op, count,
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

function memory.dissector(buffer, packet, root)
    local segments = buffer:len() >= MEMORY_HEADER_BYTES and buffer(MEMORY_SEGMENTS_BYTE, 1):uint() or 0
    local start = MEMORY_HEADER_BYTES + segments * SEGMENT_BYTES
    if buffer:len() < start or segments > MAX_SEGMENTS or buffer(0, 1):bitfield(0, 4) ~= MEMORY_VERSION then
        return 0
    end
    local tree = root:add(memory, buffer())
    show(tree, buffer, MEMORY)
    for _, field in pairs(flags) do
        tree:add(field, buffer(MEMORY_FLAGS_BYTE, 1))
    end
    for index = 0, segments - 1 do
        tree:add(segment, buffer(MEMORY_HEADER_BYTES + index * SEGMENT_BYTES, SEGMENT_BYTES))
    end
    if buffer:len() > start then
        tree:add(payload, buffer(start))
    end
    local instruction, status = buffer(MEMORY_INSTRUCTION_BYTE, 1):uint(), buffer(MEMORY_STATUS_BYTE, 1):uint()
    local reply = packet.src_port == MEMORY_PORT and " " .. (MEMORY_STATUSES[status] or status) or ""
    packet.cols.protocol = "netsum memory"
    packet.cols.info = string.format("%s%s %d at 0x%s, client %s sequence %d", INSTRUCTIONS[instruction] or instruction,
        reply, buffer(MEMORY_LENGTH_BYTE, 2):uint(), buffer(MEMORY_ADDRESS_BYTE, 8):bytes():tohex(true),
        buffer(MEMORY_CLIENT_BYTE, 8):bytes():tohex(true), buffer(MEMORY_SEQUENCE_BYTE, 4):uint())
    return buffer:len()
end

DissectorTable.get("udp.port"):add(UDP_PORT, netsum)
DissectorTable.get("udp.port"):add(MEMORY_PORT, memory)
DissectorTable.get("wtap_encap"):add(wtap.USER0, record)
