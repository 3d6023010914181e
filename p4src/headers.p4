// SPDX-License-Identifier: MIT
// Every header that the parser knows and every field of metadata, one line of comment each.

#ifndef HEADERS_P4
#define HEADERS_P4

#include "types.p4"
#include "ids.p4"

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP  = 0x0806;
const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_OUTER_VLAN = 0x88a8;    // a tag before a tag
const bit<8>  PROTOCOL_UDP   = 17;
const bit<16> ARP_REQUEST    = 1;
const bit<16> ARP_REPLY      = 2;
const bit<16> IPV4_BYTES     = 20;
const bit<16> UDP_BYTES      = 8;
const bit<16> HEADERS        = UDP_BYTES + NETSUM_HEADER_BYTES;    // what UDP's length counts besides the payload

header ethernet_h {
    bit<48> dst_addr;
    bit<48> src_addr;
    bit<16> ether_type;
}

header arp_h {                      // IPv4 over Ethernet
    bit<16> hardware;
    bit<16> protocol;
    bit<16> lengths;
    bit<16> operation;
    bit<48> sender_mac;
    bit<32> sender_ip;
    bit<48> target_mac;
    bit<32> target_ip;
}

header ipv4_h {
    bit<16> version_ihl_tos;        // some in one field: BMv2 pays for each
    bit<16> total_length;
    bit<32> identification_fragment;    // fragment: flags and offset
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src_addr;
    bit<32> dst_addr;
}

// A congested link has marked the packet, CE (RFC 3168). The block's result bears the mark, whatever its outcome; nothing else
// depends on it.
const bit<16> ECN_CE = 3;           // the two low bits of tos
#define IS_CONGESTED(ip) ((ip.version_ihl_tos & ECN_CE) == ECN_CE)

header udp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

header record_h {                   // payload of the answer to a query
    record_raw_t raw;
}

struct headers_t {
    packet_out_h packet_out;
    packet_in_h  packet_in;
    record_h     record;
    ethernet_h   ethernet;
    arp_h        arp;
    ipv4_h       ipv4;
    udp_h        udp;
    netsum_h     netsum;
    memory_h     memory;                // never both
    // A payload of k chunks is these headers by the bits of k: 16 chunks are one header, 5 are chunks4 and chunks1.
    chunks16_h   chunks16;
    chunks8_h    chunks8;
    chunks4_h    chunks4;
    chunks2_h    chunks2;
    chunks1_h    chunks1;
}

// v1model's instance_type of a packet that recirculated.
const bit<32> RECIRCULATED = 4;

// Who sends the packet.
const bit<2> FROM_MEMBER     = 0;   // or a stranger: member.p4 finds out
const bit<2> FROM_PARENT     = 1;
const bit<2> FROM_CONTROLLER = 2;
const bit<2> FROM_CLIENT     = 3;   // to memory's virtual address

// How the payload of this packet meets the slot's buffer: block.p4 and parent.p4 decide, aggregate.p4 does it.
const bit<8> COMBINE_NOTHING = 0;
const bit<8> COMBINE_STORE   = 1;   // first payload: overwrite the buffer
const bit<8> COMBINE_LOAD    = 2;   // the buffer becomes the packet's payload
const bit<8> COMBINE_BY      = 16;  // plus the operation: buffer and payload both become what they combine to

// What the packet becomes, and for whom: deliver.p4 decides, reply.p4 writes it. An answer is STALE, REFUSED or AGAIN, without
// payload; a result or a partial is what the slot holds.
const bit<3> REPLY_NOTHING       = 0;
const bit<3> REPLY_PARTIAL       = 1;   // for the switch's parent
const bit<3> REPLY_ANSWER        = 2;   // for the sender of the packet
const bit<3> REPLY_ANSWER_TO_ALL = 3;   // for the job's sources
const bit<3> REPLY_EARLY         = 4;   // the same: a COPY's payload, ahead of its result
const bit<3> REPLY_RESULT_TO_ALL = 5;   // the same
const bit<3> REPLY_RESULT        = 6;   // for the source that sent the packet
#define REPLY_IS_ANSWER(x)    (x == REPLY_ANSWER || x == REPLY_ANSWER_TO_ALL)
#define REPLY_IS_RESULT(x)    (x >= REPLY_RESULT_TO_ALL)
#define REPLY_TO_SOURCES(x)   (x >= REPLY_ANSWER_TO_ALL)    // rewrite.p4 knows their addresses

// No stage has decided the packet's fate yet.
const bit<5> OUTCOME_PENDING = 31;

// What a scan keeps when it recirculates.
const bit<8> SCAN_FIELDS = 0;

// BMv2 clears every field for each packet and copies it for each replica, used or not: a field costs 0.3 % of a contribution
// (docs/performance.md), so what few packets need shares one. The same goes for a control's variables, and for those that p4c adds
// where an argument is not a plain field.
struct metadata_t {
    bit<2>         from;              // see FROM_*
    bit<5>         outcome;           // fate of a contribution, OUTCOME_PENDING until a stage decides
    bit<48>        my_mac;            // the switch's own MAC, 0 when the packet is not for its address
    bit<1>         not_admitted;      // a contribution to another switch, or a packet from an address that is not behind its port
    bit<32>        address;           // where a contribution or an instruction goes, or what an ARP request asks for; then, unless it is
                                      // a contribution: where it is from
    bit<16>        grad_cnt;          // lanes in the contribution, both parts joined
    bit<32>        epoch;             // job: its epoch; claim: the last epoch that had been claimed; memory: see ADJUST in checksums.p4
    bit<256>       all_sources;       // job: one bit for each source
    bit<88>        job;               // job: what few packets ask for, see JOB_*
    bit<56>        aging;             // job: when a block may be closed, see AGING_*; 0: never
    bit<8>         stripe;            // leaf: which parent the block has
    bit<256>       source;            // member: its bit
    bit<32>        slot;              // index into the registers; claim: which epochs; deliver: index into the counters; memory: see ADJUST
    bit<8>         combine;           // see COMBINE_*
    bit<5>         payload_capacity;  // chunks that the packet's UDP payload has room for
    bit<1>         header_only;       // the result, or this copy of it, goes out without payload
    bit<3>         reply;             // see REPLY_*
    @field_list(SCAN_FIELDS)
    bit<160>       aging_scan;        // what it knows from its earlier passes, see SCAN_*
    progress_raw_t progress;          // of a job whose blocks age out, see PROGRESS_* in types.p4
    record_raw_t   record;            // the slot's block record, see RECORD_* and AS_* in types.p4
}

// meta.job, as job.p4 puts it together.
#define JOB_FIRST_BLOCK(m) m.job[87:56]    // of the epoch
#define JOB_NUM_SLOTS(m)         m.job[55:24]    // how many slots it has, so how far apart the ids of two blocks of a slot are
#define JOB_STRIPES(m)     m.job[23:16]    // leaf: the bits of a block's id that say which parent it has
#define JOB_ROLE(m)        m.job[15:8]     // see ROLE_*, what the switch does with a complete block
#define JOB_PRIORITY(m)    m.job[7:0]      // its class among jobs that compete; 0: it does not compete

// meta.aging
#define AGING_EXP(m)      m.aging[55:24]    // age at which a block may be closed, microseconds
#define AGING_QUORUM(m)   m.aging[23:16]    // workers that a block needs for that
#define AGING_WINDOW(m)   m.aging[15:0]     // blocks that may be open at a time

// meta.aging_scan
#define SCAN_BASE(m)      m.aging_scan[159:128]    // the job's first slot
#define SCAN_FIRST(m)     m.aging_scan[127:96]     // block that it began with
#define SCAN_RANGE(m)     m.aging_scan[95:64]      // how many blocks it looks at
#define SCAN_NOW(m)       m.aging_scan[63:16]      // when it began; a packet that recirculates has no timestamp
#define SCAN_CLOSED(m)    m.aging_scan[15:0]       // blocks closed so far

#endif
