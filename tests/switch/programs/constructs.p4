// Meters, action profiles and selectors, loops in actions, stacks of header unions.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header call_t {
    bit<8>  op;
    bit<8>  index;
    bit<32> a;
    bit<32> b;
}

header byte_t {
    bit<8> kind;
    bit<8> value;
}

header word_t {
    bit<8>  kind;
    bit<16> value;
}

header_union unit_t {
    byte_t byte;
    word_t word;
}

struct headers_t {
    ethernet_t ethernet;
    call_t     call;
    unit_t[3]  units;
}

struct metadata_t {
    bit<2> color;
}

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.call);
        transition select(hdr.call.op) {
            0x40 &&& 0xc0: units;
            default: accept;
        }
    }
    state units {
        transition select(packet.lookahead<bit<8>>()) {
            1: byte;
            2: word;
            default: accept;
        }
    }
    state byte {
        packet.extract(hdr.units.next.byte);
        transition units;
    }
    state word {
        packet.extract(hdr.units.next.word);
        transition units;
    }
}

control VerifyImpl(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    meter(4, MeterType.packets) packets;
    meter(4, MeterType.bytes) bytes;
    direct_meter<bit<2>>(MeterType.packets) own;

    action note(bit<32> value) {
        hdr.call.b = value;
    }
    action add(bit<16> value) {
        hdr.call.b = hdr.call.b + (bit<32>)value;
    }

    action colored(bit<8> value) {
        own.read(meta.color);
        hdr.call.index = value;
    }
    table metered {
        key = { hdr.call.a: exact; }
        actions = { colored; NoAction; }
        default_action = NoAction();
        meters = own;
    }

    action_profile(16) notes;
    table first {
        key = { hdr.call.a: exact; }
        actions = { note; add; NoAction; }
        implementation = notes;
    }
    table second {
        key = { hdr.call.b: lpm; }
        actions = { note; add; NoAction; }
        implementation = notes;
    }

    action_selector(HashAlgorithm.crc16, 32w64, 32w16) balance;
    table balanced {
        key = {
            hdr.call.index: ternary;
            hdr.call.a: selector;
            hdr.ethernet.src: selector;
        }
        actions = { note; add; NoAction; }
        implementation = balance;
    }

    // b becomes the sum of the odd numbers below a, and index counts the turns; 100 ends it.
    action sum() {
        hdr.call.b = 0;
        hdr.call.index = 0;
        for (bit<32> i = 0; i < hdr.call.a; i = i + 1) {
            hdr.call.index = hdr.call.index + 1;
            if (i == 100) {
                break;
            }
            if (i & 1 == 0) {
                continue;
            }
            hdr.call.b = hdr.call.b + i;
        }
    }
    // b becomes the product, by counting.
    action count() {
        bit<32> product = 0;
        for (bit<32> i = 0; i < hdr.call.a; i = i + 1) {
            for (bit<32> j = 0; j < hdr.call.b; j = j + 1) {
                product = product + 1;
            }
        }
        hdr.call.b = product;
    }
    table loops {
        key = { hdr.call.op: exact; }
        actions = { sum; count; NoAction; }
        const entries = {
            5: sum();
            6: count();
        }
        const default_action = NoAction();
    }

    action pop() {
        hdr.units.pop_front(1);
    }
    action push() {
        hdr.units.push_front(1);
    }
    action grow() {
        hdr.units[1].byte.setValid();
        hdr.units[1].byte.kind = 1;
        hdr.units[1].byte.value = 0x77;
    }
    action copy() {
        hdr.units[2] = hdr.units[0];
    }
    table shapes {
        key = { hdr.call.op: exact; }
        actions = { pop; push; grow; copy; NoAction; }
        const entries = {
            0x41: pop();
            0x42: push();
            0x43: grow();
            0x44: copy();
        }
        const default_action = NoAction();
    }

    apply {
        standard.egress_spec = 1;
        if (hdr.call.op == 1) {
            packets.execute_meter((bit<32>)hdr.call.index, meta.color);
            hdr.call.b = (bit<32>)meta.color;
        } else if (hdr.call.op == 2) {
            bytes.execute_meter((bit<32>)hdr.call.index, meta.color);
            hdr.call.b = (bit<32>)meta.color;
        } else if (hdr.call.op == 3) {
            metered.apply();
            hdr.call.b = (bit<32>)meta.color;
        } else if (hdr.call.op == 4) {
            if (!balanced.apply().hit) {
                hdr.call.op = 0xff;
            }
        } else if (hdr.call.op == 7) {
            first.apply();
            switch (second.apply().action_run) {
                add: { hdr.call.index = 0xaa; }
                default: {}
            }
        } else {
            loops.apply();
            shapes.apply();
        }
        if (hdr.units[0].byte.isValid() || hdr.units[0].word.isValid()) {
            hdr.call.index = hdr.call.index + 1;
        }
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control UpdateImpl(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), UpdateImpl(), DeparserImpl()) main;
