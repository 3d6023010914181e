// Generated from hosts/netsum/wire/schema.py by `make p4`. Do not edit.

#ifndef WIRE_P4
#define WIRE_P4

const bit<16> NETSUM_PORT = 12000;
const bit<4> NETSUM_VERSION = 1;
const bit<16> NETSUM_HEADER_BYTES = 16;
const bit<16> MAX_PAYLOAD_BYTES = 4096;
const bit<8> EVERYONE = 255;
const bit<9> CPU_PORT = 510;
const bit<16> FLOOD_GROUP = 4000;
const bit<32> SLOTS = 8192;
const bit<32> OUTCOME_COUNTERS = 8192;
typedef bit<2048> chunk_t;
typedef bit<448> record_raw_t;
const chunk_t TOP_BITS_8 = 0x80808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080808080;
const chunk_t TOP_BITS_16 = 0x80008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000800080008000;
const chunk_t TOP_BITS_32 = 0x80000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000800000008000000080000000;
const chunk_t TOP_BITS_64 = 0x80000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000800000000000000080000000000000008000000000000000;

const bit<4> OP_SUM = 0;
const bit<4> OP_MIN = 1;
const bit<4> OP_MAX = 2;
const bit<4> OP_AND = 3;
const bit<4> OP_OR = 4;
const bit<4> OP_XOR = 5;
const bit<4> OP_COPY = 6;

const bit<4> LANE_L8 = 0;
const bit<4> LANE_L16 = 1;
const bit<4> LANE_L32 = 2;
const bit<4> LANE_L64 = 3;

const bit<4> STATUS_OK = 0;
const bit<4> STATUS_RANGE = 1;
const bit<4> STATUS_ABORT = 2;
const bit<4> STATUS_MISMATCH = 3;
const bit<4> STATUS_STALE = 8;
const bit<4> STATUS_REFUSED = 9;

const bit<2> STATE_EMPTY = 0;
const bit<2> STATE_OPEN = 1;
const bit<2> STATE_DONE = 2;
const bit<2> STATE_SENT = 3;

const bit<5> OUTCOME_ACCEPTED = 0;
const bit<5> OUTCOME_COMPLETED = 1;
const bit<5> OUTCOME_DUPLICATE = 2;
const bit<5> OUTCOME_REPLAYED = 3;
const bit<5> OUTCOME_STALE = 4;
const bit<5> OUTCOME_AGED = 5;
const bit<5> OUTCOME_UNKNOWN_JOB = 8;
const bit<5> OUTCOME_NOT_MEMBER = 9;
const bit<5> OUTCOME_WRONG_PORT = 10;
const bit<5> OUTCOME_SIGNATURE = 11;
const bit<5> OUTCOME_WINDOW = 12;
const bit<5> OUTCOME_UNSUPPORTED = 13;
const bit<5> OUTCOME_MALFORMED = 16;
const bit<5> OUTCOME_CHECKSUM = 17;

header netsum_h {
    bit<8>    job_id;          // the aggregation job
    bit<32>   block_id;        // serial number of the block within the job; wraps
    bit<4>    age_op;          // 0 normal, 1 aged out; on a REFUSED answer: the reason
    bit<1>    final;           // last block of the generation (informative)
    bit<1>    degraded;        // the sum is partial: fewer sources than the job has
    bit<2>    spare;           // zero
    bit<8>    src_id;          // the sender's source id at this switch; on a result: the receiver's
    bit<8>    src_cnt;         // workers that have contributed, with or without payload
    bit<16>   gen_id;          // generation: the collective call that the block belongs to
    bit<4>    grad_cnt_high;   // high bits of grad_cnt
    bit<12>   grad_cnt;        // number of gradients (lanes) in the payload
    bit<4>    version;         // version of this extension
    bit<4>    op;              // how contributions combine
    bit<4>    lane;            // log2 of the bytes in a lane
    bit<4>    status;          // outcome, see Status
    bit<8>    dest;            // rank that gets the result; 255: every member
    bit<8>    data_cnt;        // how many of the src_cnt contributions carried a payload
}

header chunks1_h {
    bit<2048> f0;              // one chunk
}

header chunks2_h {
    bit<2048> f0;              // one chunk
    bit<2048> f1;              // one chunk
}

header chunks4_h {
    bit<2048> f0;              // one chunk
    bit<2048> f1;              // one chunk
    bit<2048> f2;              // one chunk
    bit<2048> f3;              // one chunk
}

header chunks8_h {
    bit<2048> f0;              // one chunk
    bit<2048> f1;              // one chunk
    bit<2048> f2;              // one chunk
    bit<2048> f3;              // one chunk
    bit<2048> f4;              // one chunk
    bit<2048> f5;              // one chunk
    bit<2048> f6;              // one chunk
    bit<2048> f7;              // one chunk
}

header chunks16_h {
    bit<2048> f0;              // one chunk
    bit<2048> f1;              // one chunk
    bit<2048> f2;              // one chunk
    bit<2048> f3;              // one chunk
    bit<2048> f4;              // one chunk
    bit<2048> f5;              // one chunk
    bit<2048> f6;              // one chunk
    bit<2048> f7;              // one chunk
    bit<2048> f8;              // one chunk
    bit<2048> f9;              // one chunk
    bit<2048> f10;             // one chunk
    bit<2048> f11;             // one chunk
    bit<2048> f12;             // one chunk
    bit<2048> f13;             // one chunk
    bit<2048> f14;             // one chunk
    bit<2048> f15;             // one chunk
}

struct record_t {
    bit<256>  seen;            // sources seen, one bit each
    bit<48>   start;           // ingress timestamp of the block's first packet, microseconds
    bit<32>   epoch;           // epoch of the job that wrote the record
    bit<32>   block_id;        // the block that the slot holds
    bit<16>   gen_id;          // signature: generation of the block
    bit<8>    dest;            // signature: rank that gets the result
    bit<4>    op;              // signature: operation
    bit<4>    lane;            // signature: lane width
    bit<16>   grad_cnt;        // lanes in the payload; 0: no payload yet
    bit<8>    src_cnt;         // workers that have contributed
    bit<8>    data_cnt;        // contributions with payload
    bit<4>    status;          // highest status contributed
    bit<2>    state_;          // see BlockState
    bit<1>    signed;          // the signature is set (a contribution that was not ABORT has come)
    bit<1>    degraded;        // the sum is partial
    bit<5>    chunks;          // payload size in chunks
    bit<3>    padding;         // zero
}

#define SPLIT_RECORD(r, raw) \
    r.seen = raw[447:192]; \
    r.start = raw[191:144]; \
    r.epoch = raw[143:112]; \
    r.block_id = raw[111:80]; \
    r.gen_id = raw[79:64]; \
    r.dest = raw[63:56]; \
    r.op = raw[55:52]; \
    r.lane = raw[51:48]; \
    r.grad_cnt = raw[47:32]; \
    r.src_cnt = raw[31:24]; \
    r.data_cnt = raw[23:16]; \
    r.status = raw[15:12]; \
    r.state_ = raw[11:10]; \
    r.signed = raw[9:9]; \
    r.degraded = raw[8:8]; \
    r.chunks = raw[7:3]; \
    r.padding = raw[2:0];
#define JOIN_RECORD(r) (r.seen ++ r.start ++ r.epoch ++ r.block_id ++ r.gen_id ++ r.dest ++ r.op ++ r.lane ++ r.grad_cnt ++ r.src_cnt ++ r.data_cnt ++ r.status ++ r.state_ ++ r.signed ++ r.degraded ++ r.chunks ++ r.padding)

@controller_header("packet_out")
header packet_out_h {
    bit<16>   slot;            // index into the record register
    bit<16>   cookie;          // returned as it came
}

@controller_header("packet_in")
header packet_in_h {
    bit<16>   slot;            // index into the record register
    bit<16>   cookie;          // returned as it came
}

#endif
