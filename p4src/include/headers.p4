// Every header that the parser knows and every field of metadata, one line of comment each.

#ifndef HEADERS_P4
#define HEADERS_P4

#include "wire.p4"
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
    bit<8>  version_ihl;
    bit<8>  tos;
    bit<16> total_length;
    bit<16> identification;
    bit<16> fragment;               // flags and offset
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src_addr;
    bit<32> dst_addr;
}

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

// How the payload of this packet meets the slot's buffer: block.p4 and parent.p4 decide, aggregate.p4 does it.
const bit<8> COMBINE_NOTHING = 0;
const bit<8> COMBINE_STORE   = 1;   // first payload: overwrite the buffer
const bit<8> COMBINE_LOAD    = 2;   // the buffer becomes the packet's payload
const bit<8> COMBINE_BY      = 16;  // plus the operation: buffer and payload both become what they combine to

// What the packet becomes: deliver.p4 decides, reply.p4 writes it.
const bit<2> REPLY_NOTHING = 0;
const bit<2> REPLY_RESULT  = 1;   // what the slot holds, for the job's sources
const bit<2> REPLY_PARTIAL = 2;   // what the slot holds, for the switch's parent
const bit<2> REPLY_ANSWER  = 3;   // STALE, REFUSED or AGAIN, without payload

// Which copies get their addresses from rewrite.p4: none, one (to the source that asks), or one for each source.
const bit<2> COPY_TO_NONE = 0;
const bit<2> COPY_TO_ONE  = 1;
const bit<2> COPY_TO_ALL  = 2;

// No stage has decided the packet's fate yet.
const bit<5> OUTCOME_PENDING = 31;

// What a sweep keeps when it recirculates.
const bit<8> SWEEP_FIELDS = 0;

// BMv2 clears every field for each packet and copies it for each replica, used or not: a field costs 0.2 % of a contribution.
// The same goes for a control's variables, and for those that p4c adds where an argument is not a plain field.
struct metadata_t {
    bit<2>   from;            // see FROM_*
    bit<5>   outcome;         // fate of a contribution, OUTCOME_PENDING until a stage decides
    bit<48>  aggregator_mac;  // the switch's own MAC, 0 when the packet is not for its address
    bit<1>   elsewhere;       // that address is another switch's
    bit<32>  address;         // where a contribution goes, or what an ARP request asks for; other traffic: where it is from
    bit<1>   imposter;        // that address is not behind the port
    bit<16>  grad_cnt;        // lanes in the contribution, both parts joined
    bit<32>  epoch;           // job: its epoch; claim: the last epoch that had been claimed
    bit<256> all_sources;     // job: one bit for each source
    bit<32>  lap;             // job: how many slots it has, so how far apart the ids of two blocks of a slot are
    bit<32>  first_block_id;  // job: first block of the epoch
    bit<32>  block_exp;       // job: age at which a block may be closed, microseconds; 0: never, and the next two are 0 as well
    bit<8>   quorum;          // job: workers that a block needs for that
    bit<32>  window;          // job: blocks that may be open at a time
    bit<8>   role;            // job: see ROLE_*, what the switch does with a complete block
    bit<8>   stripe;          // job, leaf: which parent the block has
    bit<8>   priority;        // job: its class among jobs that compete; 0: it does not compete
    bit<256> source;          // member: its bit
    bit<32>  slot;            // index into the registers
    bit<8>   combine;         // see COMBINE_*
    bit<5>   room;            // chunks that the packet's UDP payload has room for
    bit<1>   header_only;     // the result, or this copy of it, goes out without payload
    bit<1>   give_way;        // a job of a higher priority is busy
    bit<2>   reply;           // see REPLY_*
    bit<2>   copies;          // see COPY_TO_*
    bit<16>  replica;         // egress: source id of the receiver
    @field_list(SWEEP_FIELDS)
    bit<16>  closed;          // sweep: blocks closed so far
    @field_list(SWEEP_FIELDS)
    bit<48>  now;             // sweep: when it began; a packet that recirculates has no timestamp
    @field_list(SWEEP_FIELDS)
    bit<32>  first;           // sweep: block that it began with
    @field_list(SWEEP_FIELDS)
    bit<32>  range;           // sweep: how many blocks it looks at
    frontier_raw_t frontier;  // of a job whose blocks age out, see FRONTIER_* in wire.p4
    record_raw_t record;      // the slot's block record, see RECORD_* and AS_* in wire.p4
}

#endif
