// State that packets leave: registers of each type that p4c takes, and tables whose entries time out. All packets go to port 2.
#include <core.p4>
#include <v1model.p4>

type bit<9> place_t;

@p4runtime_translation("netsum/tests/label", bit<32>)
type bit<12> label_t;

@p4runtime_translation("netsum/tests/name", string)
type bit<8> name_t;

enum color_t { red, green, blue }

enum bit<16> kind_t {
    one = 0x0100,
    two = 0x0200
}

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

// With type 0x9007: what is done with a cell, and its value before or after.
header request_t {
    bit<8>  operation;
    bit<8>  index;
    bit<32> value;
}

struct headers_t {
    ethernet_t ethernet;
    request_t request;
}

struct metadata_t { }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            0x9007: parse_request;
            default: accept;
        }
    }
    state parse_request {
        packet.extract(hdr.request);
        transition accept;
    }
}

control VerifyImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(8) words;
    register<int<12>>(4) signs;
    register<bit<300>>(3) wides;
    register<bit<1>>(2) flags;
    register<place_t>(2) places;
    register<label_t>(2) labels;
    register<color_t>(2) colors;
    register<kind_t>(2) kinds;
    register<name_t>(2) names;  // P4Runtime serves none of strings

    action_profile(4) members;

    action mark(bit<16> ether_type) {
        hdr.ethernet.ether_type = ether_type;
    }

    table exact_timed {
        key = { hdr.ethernet.dst : exact; }
        actions = { mark; NoAction; }
        size = 1024;
        support_timeout = true;
        default_action = NoAction();
    }
    table lpm_timed {
        key = { hdr.ethernet.src : lpm; }
        actions = { mark; NoAction; }
        support_timeout = true;
        default_action = NoAction();
    }
    table ternary_timed {
        key = { hdr.ethernet.dst : ternary; hdr.ethernet.src : optional; }
        actions = { mark; NoAction; }
        support_timeout = true;
        default_action = NoAction();
    }
    table member_timed {
        key = { hdr.ethernet.dst : exact; }
        actions = { mark; NoAction; }
        implementation = members;
        support_timeout = true;
    }
    table const_timed {
        key = { hdr.ethernet.dst : exact; }
        actions = { mark; NoAction; }
        support_timeout = true;
        const default_action = NoAction();
        const entries = {
            0xC0 : mark(0x9001);
        }
    }
    table untimed {
        key = { hdr.ethernet.dst : exact; }
        actions = { mark; NoAction; }
        default_action = NoAction();
    }

    apply {
        standard.egress_spec = 2;
        bit<32> index = (bit<32>) hdr.request.index;
        bit<32> value = hdr.request.value;
        if (hdr.request.isValid()) {
            if (hdr.request.operation == 1) {
                words.read(value, index);
            } else if (hdr.request.operation == 2) {
                words.write(index, value);
            } else if (hdr.request.operation == 3) {  // two cells that are always the same
                words.read(value, 0);
                words.write(0, value + 1);
                words.read(value, 1);
                words.write(1, value + 1);
            } else if (hdr.request.operation == 4) {
                int<12> sign;
                signs.read(sign, index);
                value = (bit<32>) (int<32>) sign;
                signs.write(index, sign - 1);
            } else if (hdr.request.operation == 5) {
                bit<300> wide;
                wides.read(wide, index);
                value = wide[31:0];
                wides.write(index, wide + 1);
            } else if (hdr.request.operation == 6) {
                color_t color;
                colors.read(color, index);
                if (color == color_t.green) {
                    value = 1;
                }
                colors.write(index, color_t.blue);
            } else if (hdr.request.operation == 7) {
                kind_t kind;
                kinds.read(kind, index);
                value = (bit<32>) (bit<16>) kind;
                kinds.write(index, kind_t.two);
                places.write(index, (place_t) standard.ingress_port);
                labels.write(index, (label_t) 12w5);
                names.write(index, (name_t) 8w6);
                flags.write(index, 1);
            }
            hdr.request.value = value;
        } else {
            exact_timed.apply();
            lpm_timed.apply();
            ternary_timed.apply();
            member_timed.apply();
            const_timed.apply();
            untimed.apply();
        }
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control ComputeImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.request);
    }
}

V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), ComputeImpl(), DeparserImpl()) main;
