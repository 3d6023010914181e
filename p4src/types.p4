// SPDX-License-Identifier: MIT
// Generated from hosts/netsum/wire/schema.py and memory.py by `make p4`. Do not edit.

#ifndef TYPES_P4
#define TYPES_P4

const bit<16> NETSUM_PORT = 12000;
const bit<4> NETSUM_VERSION = 2;
const bit<16> NETSUM_HEADER_BYTES = 40;
const bit<16> MAX_PAYLOAD_BYTES = 4096;
const bit<16> EVERYONE = 65535;
const bit<8> SWITCH_SOURCE = 255;
const bit<9> CPU_PORT = 510;
const bit<16> FLOOD_GROUP = 4000;
const bit<16> SCAN_SLOTS = 8;
const bit<16> SCAN_GROUPS = 256;
const bit<16> SCAN_REPLICA = 1000;
const bit<16> IP_MULTICAST_GROUPS = 512;
const bit<48> BACKOFF_US = 20000;
const bit<32> SLOTS = 8192;
const bit<32> OUTCOME_COUNTERS = 8192;
typedef bit<2048> chunk_t;
typedef bit<528> record_raw_t;
typedef bit<320> progress_raw_t;
const chunk_t TOP_BITS_8 = 0x80808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080;
const chunk_t TOP_BITS_16 = 0x80008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000;
const chunk_t TOP_BITS_32 = 0x80000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000;
const chunk_t TOP_BITS_64 = 0x80000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000;

enum bit<4> op_t {
    SUM                  = 0,
    MIN                  = 1,
    MAX                  = 2,
    AND                  = 3,
    OR                   = 4,
    XOR                  = 5,
    COPY                 = 6
}

enum bit<4> lane_t {
    L8                   = 0,
    L16                  = 1,
    L32                  = 2,
    L64                  = 3
}

enum bit<4> status_t {
    OK                   = 0,
    RANGE                = 1,
    ABORT                = 2,
    MISMATCH             = 3,
    STALE                = 8,
    REFUSED              = 9,
    AGAIN                = 10
}

enum bit<4> age_op_t {
    NORMAL               = 0,
    AGED                 = 1,
    LATE                 = 2
}

enum bit<2> hop_t {
    HOST                 = 0,
    UP                   = 1,
    DOWN                 = 2
}

enum bit<3> state_t {
    EMPTY                = 0,
    OPEN                 = 1,
    DONE                 = 2,
    SENT                 = 3,
    DEAD                 = 4
}

enum bit<3> role_t {
    ROOT                 = 1,
    LEAF                 = 2
}

enum bit<5> outcome_t {
    ACCEPTED             = 0,
    COMPLETED            = 1,
    DUPLICATE            = 2,
    REPLAYED             = 3,
    STALE                = 4,
    AGED                 = 5,
    SCANNED              = 6,
    UNKNOWN_JOB          = 8,
    NOT_MEMBER           = 9,
    WRONG_PORT           = 10,
    FINGERPRINT_MISMATCH = 11,
    OUT_OF_WINDOW        = 12,
    UNSUPPORTED          = 13,
    BAD_KEY              = 14,
    MALFORMED            = 16,
    CHECKSUM             = 17,
    RESENT               = 18,
    PARENT_RESULT        = 19,
    PARENT_STATUS        = 20,
    IGNORED              = 21,
    QUERIED_PARENT       = 22,
    EARLY_PAYLOAD        = 23,
    PAYLOAD_MISSING      = 24,
    PENDING              = 31
}

enum bit<8> packet_out_kind_t {
    QUERY                = 0,
    SCAN                 = 1,
    CLAIM                = 2
}

// How the payload of a packet meets the slot's buffer. STORE: the first payload overwrites it; LOAD: it becomes the
// packet's payload; an operation: both become what they combine to.
enum bit<8> combine_t {
    NOTHING              = 0,
    STORE                = 1,
    LOAD                 = 2,
    SUM                  = 16,
    MIN                  = 17,
    MAX                  = 18,
    AND                  = 19,
    OR                   = 20,
    XOR                  = 21
}

#define COMBINE_BY(op) (combine_t)(8w16 + (bit<8>)(bit<4>)(op))

// Which values of a field belong together. Nothing else may ask for an order among them.

// SUM, MIN, MAX, AND, OR, XOR, COPY
#define OP_IS_KNOWN(x) ((bit<4>)(x) <= 6)
// MIN, MAX
#define OP_COMPARES(x) ((bit<4>)(x) >= 1 && (bit<4>)(x) <= 2)
// L8, L16, L32, L64
#define LANE_IS_KNOWN(x) ((bit<4>)(x) <= 3)
// HOST, UP, DOWN
#define HOP_IS_KNOWN(x) ((bit<2>)(x) <= 2)
// OK, RANGE, ABORT, MISMATCH, STALE, REFUSED, AGAIN
#define STATUS_IS_KNOWN(x) (((bit<4>)(x) <= 3) || ((bit<4>)(x) >= 8 && (bit<4>)(x) <= 10))
// OK, RANGE, ABORT, MISMATCH
#define STATUS_IS_MEMBERS(x) ((bit<4>)(x) <= 3)
// ABORT, MISMATCH
#define STATUS_GIVES_UP(x) (((bit<4>)(x) & 0xe) == 2)
// OPEN, SENT
#define STATE_IS_IN_PROGRESS(x) (((bit<3>)(x) & 0x5) == 1)
// COMPLETED, AGED
#define OUTCOME_IS_CLOSING(x) (((bit<5>)(x) & 0x1b) == 1)
// COMPLETED, AGED, RESENT, QUERIED_PARENT
#define OUTCOME_GOES_UP(x) (((bit<5>)(x) == 1) || ((bit<5>)(x) == 5) || ((bit<5>)(x) == 18) || ((bit<5>)(x) == 22))
// UNKNOWN_JOB, NOT_MEMBER, WRONG_PORT, FINGERPRINT_MISMATCH, OUT_OF_WINDOW, UNSUPPORTED, BAD_KEY
#define OUTCOME_IS_REFUSAL(x) ((bit<5>)(x) >= 8 && (bit<5>)(x) <= 14)
// The reason that a REFUSED answer gives.
#define REASON(x) (bit<8>)((bit<5>)(x))

header netsum_h {
    bit<8>             job_id;            // the aggregation job
    bit<32>            block_id;          // serial number of the block within the job; wraps
    age_op_t           age_op;            // of a result: whether the block aged out, see AgeOp
    bit<1>             final;             // last block of the generation (informative)
    bit<1>             degraded;          // partial: fewer workers than the job has; on a contribution: than the source has
    bit<2>             reserved_flags;    // zero
    bit<8>             src_id;            // the sender's source id at this switch; 255: a switch, of a result or an answer
    bit<8>             src_cnt;           // worker_cnt, as far as it goes; not read
    bit<16>            gen_id;            // generation: the collective call that the block belongs to
    bit<4>             reserved_cnt;      // zero
    bit<12>            grad_cnt;          // lane_cnt, as far as it goes; not read
    bit<4>             version;           // version of this extension
    op_t               op;                // how contributions combine
    lane_t             lane;              // log2 of the bytes in a lane
    status_t           status;            // outcome, see Status
    bit<1>             no_aging;          // the block waits for every source: it never ages out
    bit<1>             backoff;           // on a result: a job of a higher priority is busy at the switch; else zero
    bit<1>             query;             // of a child switch's contribution: it adds nothing, it asks whether the parent has a result
    bit<1>             early;             // from a switch: a COPY's payload, ahead of the result
    hop_t              hop;               // between whom the packet travels, see Hop
    bit<2>             reserved;          // zero
    bit<8>             reason;            // of a REFUSED answer, see Outcome; else zero
    bit<16>            dest;              // rank that gets the result; 65535: every member
    bit<16>            worker_cnt;        // workers that have contributed, with or without payload
    bit<16>            data_cnt;          // how many of the worker_cnt contributions carried a payload
    bit<16>            lane_cnt;          // number of gradients (lanes) in the payload
    bit<56>            call_fingerprint;  // of what the call is; 0: its first block says that
    bit<8>             receiver_id;       // from a switch: the receiver's source id there
    bit<64>            key;               // by which a member proves itself; zero: not used
}

// What fields of the Trio-ML header repeat of the extension, as far as they go.
#define AS_SRC_CNT_OF(x) ((bit<8>)(16w255 - (16w255 |-| (x))))
#define AS_GRAD_CNT_OF(x) ((bit<12>)(16w4095 - (16w4095 |-| (x))))

header chunks1_h {
    bit<2048>          f0;                // one chunk
}

header chunks2_h {
    bit<2048>          f0;                // one chunk
    bit<2048>          f1;                // one chunk
}

header chunks4_h {
    bit<2048>          f0;                // one chunk
    bit<2048>          f1;                // one chunk
    bit<2048>          f2;                // one chunk
    bit<2048>          f3;                // one chunk
}

header chunks8_h {
    bit<2048>          f0;                // one chunk
    bit<2048>          f1;                // one chunk
    bit<2048>          f2;                // one chunk
    bit<2048>          f3;                // one chunk
    bit<2048>          f4;                // one chunk
    bit<2048>          f5;                // one chunk
    bit<2048>          f6;                // one chunk
    bit<2048>          f7;                // one chunk
}

header chunks16_h {
    bit<2048>          f0;                // one chunk
    bit<2048>          f1;                // one chunk
    bit<2048>          f2;                // one chunk
    bit<2048>          f3;                // one chunk
    bit<2048>          f4;                // one chunk
    bit<2048>          f5;                // one chunk
    bit<2048>          f6;                // one chunk
    bit<2048>          f7;                // one chunk
    bit<2048>          f8;                // one chunk
    bit<2048>          f9;                // one chunk
    bit<2048>          f10;               // one chunk
    bit<2048>          f11;               // one chunk
    bit<2048>          f12;               // one chunk
    bit<2048>          f13;               // one chunk
    bit<2048>          f14;               // one chunk
    bit<2048>          f15;               // one chunk
}

// The block record, 528 bits in one register cell:
//   start           48  ingress timestamp of the block's first packet, microseconds
//   seen           256  sources seen, one bit each
//   epoch           32  epoch of the job that wrote the record
//   block_id        32  the block that the slot holds
//   call_fingerprint  56  fingerprint: of what the block's call is
//   gen_id          16  fingerprint: generation of the block
//   dest            16  fingerprint: rank that gets the result
//   op               4  fingerprint: operation
//   lane             4  fingerprint: lane width
//   lane_cnt        16  lanes in the payload; 0: no payload yet
//   worker_cnt      16  workers that have contributed
//   data_cnt        16  contributions with payload
//   status           4  highest status contributed
//   state            3  see BlockState
//   fingerprinted    1  the fingerprint is set (a contribution that was not ABORT has come)
//   degraded         1  the sum is partial
//   chunks           5  payload size in chunks
//   no_aging         1  never ages out
//   congested        1  a contribution came with the mark CE of a congested link (RFC 3168)

#define RECORD_START(r)                r[527:480]
#define AS_START(x)                    ((x) ++ 480w0)
#define RECORD_SEEN(r)                 r[479:224]
#define AS_SEEN(x)                     ((record_raw_t)(x) << 224)
#define RECORD_EPOCH(r)                r[223:192]
#define AS_EPOCH(x)                    ((record_raw_t)(x) << 192)
#define RECORD_BLOCK_ID(r)             r[191:160]
#define AS_BLOCK_ID(x)                 ((record_raw_t)(x) << 160)
#define RECORD_CALL_FINGERPRINT(r)     r[159:104]
#define AS_CALL_FINGERPRINT(x)         ((record_raw_t)(x) << 104)
#define RECORD_GEN_ID(r)               r[103:88]
#define AS_GEN_ID(x)                   ((record_raw_t)(x) << 88)
#define RECORD_DEST(r)                 r[87:72]
#define AS_DEST(x)                     ((record_raw_t)(x) << 72)
#define RECORD_OP(r)                   (op_t)r[71:68]
#define AS_OP(x)                       ((record_raw_t)(bit<4>)(x) << 68)
#define RECORD_LANE(r)                 (lane_t)r[67:64]
#define AS_LANE(x)                     ((record_raw_t)(bit<4>)(x) << 64)
#define RECORD_LANE_CNT(r)             r[63:48]
#define AS_LANE_CNT(x)                 ((record_raw_t)(x) << 48)
#define RECORD_WORKER_CNT(r)           r[47:32]
#define AS_WORKER_CNT(x)               ((record_raw_t)(x) << 32)
#define RECORD_DATA_CNT(r)             r[31:16]
#define AS_DATA_CNT(x)                 ((record_raw_t)(x) << 16)
#define RECORD_STATUS(r)               (status_t)r[15:12]
#define AS_STATUS(x)                   ((record_raw_t)(bit<4>)(x) << 12)
#define RECORD_STATE(r)                (state_t)r[11:9]
#define AS_STATE(x)                    ((record_raw_t)(bit<3>)(x) << 9)
#define RECORD_FINGERPRINTED(r)        r[8:8]
#define AS_FINGERPRINTED(x)            ((record_raw_t)(x) << 8)
#define RECORD_DEGRADED(r)             r[7:7]
#define AS_DEGRADED(x)                 ((record_raw_t)(x) << 7)
#define RECORD_CHUNKS(r)               r[6:2]
#define AS_CHUNKS(x)                   ((record_raw_t)(x) << 2)
#define RECORD_NO_AGING(r)             r[1:1]
#define AS_NO_AGING(x)                 ((record_raw_t)(x) << 1)
#define RECORD_CONGESTED(r)            r[0:0]
#define AS_CONGESTED(x)                ((record_raw_t)(x) << 0)
#define HAS_START(r, x)                ((r & 0xffffffffffff000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000) == AS_START(x))
#define HAS_SEEN(r, x)                 ((r & 0xffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff00000000000000000000000000000000000000000000000000000000) == AS_SEEN(x))
#define HAS_EPOCH(r, x)                ((r & 0xffffffff000000000000000000000000000000000000000000000000) == AS_EPOCH(x))
#define HAS_BLOCK_ID(r, x)             ((r & 0xffffffff0000000000000000000000000000000000000000) == AS_BLOCK_ID(x))
#define HAS_CALL_FINGERPRINT(r, x)     ((r & 0xffffffffffffff00000000000000000000000000) == AS_CALL_FINGERPRINT(x))
#define HAS_GEN_ID(r, x)               ((r & 0xffff0000000000000000000000) == AS_GEN_ID(x))
#define HAS_DEST(r, x)                 ((r & 0xffff000000000000000000) == AS_DEST(x))
#define HAS_OP(r, x)                   ((r & 0xf00000000000000000) == AS_OP(x))
#define HAS_LANE(r, x)                 ((r & 0xf0000000000000000) == AS_LANE(x))
#define HAS_LANE_CNT(r, x)             ((r & 0xffff000000000000) == AS_LANE_CNT(x))
#define HAS_WORKER_CNT(r, x)           ((r & 0xffff00000000) == AS_WORKER_CNT(x))
#define HAS_DATA_CNT(r, x)             ((r & 0xffff0000) == AS_DATA_CNT(x))
#define HAS_STATUS(r, x)               ((r & 0xf000) == AS_STATUS(x))
#define HAS_STATE(r, x)                ((r & 0xe00) == AS_STATE(x))
#define HAS_FINGERPRINTED(r, x)        ((r & 0x100) == AS_FINGERPRINTED(x))
#define HAS_DEGRADED(r, x)             ((r & 0x80) == AS_DEGRADED(x))
#define HAS_CHUNKS(r, x)               ((r & 0x7c) == AS_CHUNKS(x))
#define HAS_NO_AGING(r, x)             ((r & 0x2) == AS_NO_AGING(x))
#define HAS_CONGESTED(r, x)            ((r & 0x1) == AS_CONGESTED(x))
const record_raw_t FINGERPRINT_BITS = 0xffffffffffffffffffffffff0000000000000000;
const record_raw_t START_BITS = 0xffffffffffff000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000;
const record_raw_t SEEN_BITS = 0xffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff00000000000000000000000000000000000000000000000000000000;
const record_raw_t PAYLOAD_BITS = 0xffff00000000007c;

// A job's progress, 320 bits in one register cell:
//   stragglers     256  sources that a block was closed without, and that have not been heard of since
//   epoch           32  epoch of the job that this is about
//   newest_block    32  the newest block that a source has come to

#define PROGRESS_STRAGGLERS(r)         r[319:64]
#define AS_PROGRESS_STRAGGLERS(x)      ((progress_raw_t)(x) << 64)
#define PROGRESS_EPOCH(r)              r[63:32]
#define AS_PROGRESS_EPOCH(x)           ((progress_raw_t)(x) << 32)
#define PROGRESS_NEWEST_BLOCK(r)       r[31:0]
#define AS_PROGRESS_NEWEST_BLOCK(x)    ((progress_raw_t)(x) << 0)

@controller_header("packet_out")
header packet_out_h {
    packet_out_kind_t  kind;              // see PacketOutKind
    bit<16>            slot;              // query: index into the record register; scan: the job's slot to begin with; claim: high half
    bit<16>            cookie;            // returned as it came
    bit<16>            closed;            // packet_in of a scan: blocks that it closed; of a query: the block's age, 1024 us (65535: or more); claim: low half
}

@controller_header("packet_in")
header packet_in_h {
    packet_out_kind_t  kind;              // see PacketOutKind
    bit<16>            slot;              // query: index into the record register; scan: the job's slot to begin with; claim: high half
    bit<16>            cookie;            // returned as it came
    bit<16>            closed;            // packet_in of a scan: blocks that it closed; of a query: the block's age, 1024 us (65535: or more); claim: low half
}

// Memory in the network.

const bit<16> MEMORY_PORT = 12001;
const bit<4> MEMORY_VERSION = 1;
const bit<16> MEMORY_HEADER_BYTES = 56;
const bit<16> MEMORY_MAX_PAYLOAD = 8192;
const bit<8> MAX_SEGMENTS = 16;
const bit<16> SEGMENT_BYTES = 8;
const bit<64> ADDRESS_STEP = 8192;

enum bit<8> instruction_t {
    NOP                  = 0,
    READ                 = 1,
    WRITE                = 2,
    ADD                  = 3,
    MIN                  = 4,
    MAX                  = 5,
    SUM_FORWARD          = 6,
    FETCH_ADD            = 7,
    COMPARE_SWAP         = 8,
    COPY                 = 9,
    OPTIMIZE             = 10,
    LOOKUP               = 11,
    PUSH                 = 12,
    ORDER                = 16,
    ACK                  = 17,
    RECORD               = 18,
    STORE                = 19
}

const bit<8> FLAG_REPLY = 1;
const bit<8> FLAG_REPLICATED = 2;
const bit<8> FLAG_COMPRESSED = 4;
const bit<8> FLAG_REPEAT = 8;
const bit<8> FLAG_SHARED = 16;
const bit<8> FLAG_POSITION = 32;

enum bit<8> memory_status_t {
    OK                   = 0,
    MALFORMED            = 1,
    UNSUPPORTED          = 2,
    NO_REGION            = 3,
    FORBIDDEN            = 4,
    CROSSES              = 5,
    BOUNDS               = 6,
    ALIGNMENT            = 7,
    MISMATCH             = 8,
    NOT_PRIMARY          = 10,
    LOST                 = 11,
    BUSY                 = 12,
    EXPIRED              = 13,
    TYPE                 = 14
}

// NOP, READ, WRITE, ADD, MIN, MAX, SUM_FORWARD, FETCH_ADD, COMPARE_SWAP, COPY, OPTIMIZE, LOOKUP, PUSH, ORDER, ACK, RECORD, STORE
#define INSTRUCTION_IS_KNOWN(x) (((bit<8>)(x) <= 12) || ((bit<8>)(x) >= 16 && (bit<8>)(x) <= 19))
// NOP, READ, LOOKUP
#define INSTRUCTION_IS_IDEMPOTENT(x) (((bit<8>)(x) <= 1) || ((bit<8>)(x) == 11))
// ORDER, ACK, RECORD, STORE
#define INSTRUCTION_IS_INTERNAL(x) (((bit<8>)(x) & 0xfc) == 16)
// WRITE, ADD, MIN, MAX, SUM_FORWARD, FETCH_ADD, COMPARE_SWAP, COPY, OPTIMIZE, PUSH
#define INSTRUCTION_IS_CHANGING(x) (((bit<8>)(x) >= 2 && (bit<8>)(x) <= 10) || ((bit<8>)(x) == 12))

header memory_h {
    bit<4>             version;           // version of this header
    bit<4>             reserved;          // 0
    instruction_t      instruction;       // what to do, see Instruction
    bit<8>             flags;             // see Flag
    memory_status_t    status;            // on a reply: the outcome, see MemoryStatus; else 0
    bit<8>             lane;              // type of the lanes, see LaneType
    bit<8>             segments;          // segments behind the header
    bit<16>            length;            // bytes of the payload before compression; READ and COPY: bytes wanted
    bit<16>            shard;             // 0 from clients: the switch writes the shard's number in its region
    bit<16>            replica;           // on a reply: the device's number in the shard's group, 0 is the primary
    bit<32>            epoch;             // 0 from clients: the switch writes the shard's epoch
    bit<32>            region;            // 0 from clients: the switch writes the region's id
    bit<32>            sequence;          // serial number of the client's instruction, from 1; never wraps
    bit<64>            client;            // random number of the client's life
    bit<64>            key;               // access key of the region; on a reply: the shard's position
    bit<64>            address;           // virtual address of the first byte
    bit<64>            argument;          // by instruction: the last position that the client was told; COPY's source; step and worker
}

#endif
