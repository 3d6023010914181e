// SPDX-License-Identifier: MIT
// What a switch can add at all, for comparison with netsum: the 16 fields of a contribution of the first host go into registers,
// those of the others are added to them, and the packet is dropped or, if it is of the last host, sent to all with the sums.
// There is no job, no member and no block, and nothing is checked.

#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

const bit<9>  FIRST_PORT = 1;
const bit<9>  LAST_PORT  = 4;
const bit<16> ALL_PORTS  = 1;    // a multicast group

typedef bit<2048> chunk_t;

header head_h {                  // Ethernet, IPv4, UDP and netsum
    bit<344> before;
    bit<25>  lap;                // of block_id, whose low bits are the index into the registers
    bit<7>   slot;
    bit<280> behind;
}

header chunks_h {
    chunk_t f0;  chunk_t f1;  chunk_t f2;  chunk_t f3;  chunk_t f4;  chunk_t f5;  chunk_t f6;  chunk_t f7;
    chunk_t f8;  chunk_t f9;  chunk_t f10; chunk_t f11; chunk_t f12; chunk_t f13; chunk_t f14; chunk_t f15;
}

struct headers_t {
    head_h   head;
    chunks_h chunks;
}

struct metadata_t {}

parser AdderParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.head);
        packet.extract(hdr.chunks);
        transition accept;
    }
}

#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)

#define BUFFER(i) register<chunk_t, bit<7>>(128) buffer##i;
#define STORE(i)  buffer##i.write(hdr.head.slot, hdr.chunks.f##i);
#define ADD(i)    buffer##i.read(held, hdr.head.slot); \
                  hdr.chunks.f##i = hdr.chunks.f##i + held; \
                  STORE(i)

control AdderIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    EACH(BUFFER)
    chunk_t held;

    action store() {
        EACH(STORE)
    }
    action add() {
        EACH(ADD)
    }
    apply {
        if (standard.ingress_port == FIRST_PORT) {
            store();
        } else {
            add();
        }
        if (standard.ingress_port == LAST_PORT) {
            standard.mcast_grp = ALL_PORTS;
        } else {
            mark_to_drop(standard);
        }
    }
}

control AdderEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control AdderChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control AdderDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.head);
        packet.emit(hdr.chunks);
    }
}

V1Switch(AdderParser(), AdderChecksum(), AdderIngress(), AdderEgress(), AdderChecksum(), AdderDeparser()) main;
