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

typedef bit<48> mac_addr_t;
typedef bit<32> ipv4_addr_t;
typedef bit<9>  port_id_t;

header ethernet_h {
    mac_addr_t dst_addr;
    mac_addr_t src_addr;
    bit<16> ether_type;
}

header arp_h {                      // IPv4 over Ethernet
    bit<16> hardware;
    bit<16> protocol;
    bit<16> lengths;
    bit<16> operation;
    mac_addr_t sender_mac;
    ipv4_addr_t sender_ip;
    mac_addr_t target_mac;
    ipv4_addr_t target_ip;
}

header ipv4_h {
    bit<16> version_ihl_tos;        // some in one field: BMv2 pays for each
    bit<16> total_length;
    bit<32> identification_fragment;    // fragment: flags and offset
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    ipv4_addr_t src_addr;
    ipv4_addr_t dst_addr;
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
#ifdef WITH_MEMORY
    memory_h     memory;                // never both
#endif
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
enum bit<2> sender_t {
    MEMBER     = 0,     // or an untrusted sender: member.p4 finds out
    PARENT     = 1,
    CONTROLLER = 2,
    CLIENT     = 3      // to memory's virtual address
}

// What the packet becomes, and for whom: deliver.p4 decides, reply.p4 writes it. An answer is STALE, REFUSED or AGAIN, without
// payload; a result or a partial is what the slot holds.
enum bit<3> reply_t {
    NOTHING       = 0,
    PARTIAL       = 1,  // for the switch's parent
    ANSWER        = 2,  // for the sender of the packet
    ANSWER_TO_ALL = 3,  // for the job's sources
    EARLY         = 4,  // the same: a COPY's payload, ahead of its result
    RESULT_TO_ALL = 5,  // the same
    RESULT        = 6   // for the source that sent the packet
}
#define REPLY_IS_ANSWER(x)    (x == reply_t.ANSWER || x == reply_t.ANSWER_TO_ALL)
#define REPLY_IS_RESULT(x)    ((bit<3>)(x) >= 5)
#define REPLY_TO_SOURCES(x)   ((bit<3>)(x) >= 3)     // rewrite.p4 knows their addresses

// What a scan keeps when it recirculates.
const bit<8> SCAN_FIELDS = 0;

// BMv2 clears every field for each packet and copies it for each replica, used or not (docs/performance.md). The same goes for a
// control's variables, and for those that p4c adds where an argument is not a plain field.
struct metadata_t {
    sender_t       from;
    outcome_t      outcome;           // fate of a contribution, PENDING until a stage decides
    mac_addr_t     my_mac;            // the switch's own MAC, 0 when the packet is not for its address
    bit<1>         not_admitted;      // a contribution to another switch, or a packet from an address that is not behind its port
    ipv4_addr_t    target_ip;         // where a contribution or an instruction goes, or what an ARP request asks for
    ipv4_addr_t    sender_ip;         // of any other packet
    // The job's record (job.p4).
    bit<32>        epoch;
    bit<256>       all_sources;       // one bit for each source
    bit<32>        first_block;       // of the epoch
    bit<32>        num_slots;         // how far apart the ids of two blocks of a slot are
    bit<8>         stripe_mask;       // leaf: the bits of a block's id that say which parent it has
    bit<8>         stripe;            // leaf: which parent the block has
    role_t         role;              // what the switch does with a complete block
    bit<8>         priority;          // class among jobs that compete; 0: it does not compete
    bit<32>        block_exp;         // age at which a block may be closed, microseconds; 0: never
    bit<16>        quorum;            // workers that a block needs for that
    bit<16>        window;            // blocks that may be open at a time
    bit<1>         multicast;         // some members have joined the job's IP multicast group
    // The sender, and its block.
    bit<256>       source;            // its bit
    bit<32>        slot;              // index into the registers
    record_raw_t   record;            // the slot's block record, see RECORD_* and AS_* in types.p4
    progress_raw_t progress;          // of a job whose blocks age out, see PROGRESS_* in types.p4
    combine_t      combine;
    bit<5>         payload_capacity;  // chunks that the packet's UDP payload has room for
    bit<1>         header_only;       // the result, or this copy of it, goes out without payload
    reply_t        reply;
    bit<32>        outcome_index;     // of the outcomes counter
    // What a scan knows from its earlier passes.
    @field_list(SCAN_FIELDS)
    bit<32>        scan_base;         // the job's first slot
    @field_list(SCAN_FIELDS)
    bit<32>        scan_first;        // block that it began with
    @field_list(SCAN_FIELDS)
    bit<32>        scan_range;        // how many blocks it looks at
    @field_list(SCAN_FIELDS)
    bit<48>        scan_now;          // when it began; a packet that recirculates has no timestamp
    @field_list(SCAN_FIELDS)
    bit<16>        scan_closed;       // blocks closed so far
#ifdef WITH_MEMORY
    ipv4_addr_t    virtual_ip;        // that a device's reply gets; 0: none
    ipv4_addr_t    device_ip;         // of the device that an instruction goes to
    bit<16>        device_group;      // multicast group of a shard's devices; 0: it has one
    bit<32>        ipv4_change;       // what changes the checksums (checksums.p4)
    bit<32>        udp_change;
#endif
}

#endif
