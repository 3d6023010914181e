// The program of the P4Runtime contract tests: one table per kind of match, counters, a register, multicast, clones,
// digests and packet I/O. What a packet does is chosen by its destination address, so that tests need few entries.
#include <core.p4>
#include <v1model.p4>

typedef bit<9> port_t;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> padding;
    bit<16> reason;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<7> padding;
    bit<16> tag;
}

struct learn_t {
    bit<48> address;
    bit<9> port;
}

struct headers_t {
    packet_out_t packet_out;
    packet_in_t packet_in;
    ethernet_t ethernet;
}

struct metadata_t {
    bit<9> nine;
}

const port_t CPU_PORT = 510;

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control VerifyImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(16, CounterType.packets_and_bytes) seen;
    counter(8, CounterType.packets) seen_packets;
    direct_counter(CounterType.packets_and_bytes) forwarded;
    direct_counter(CounterType.packets) masked_packets;
    register<bit<32>>(4) last;

    action drop() {
        mark_to_drop(standard);
    }
    action forward(port_t port) {
        standard.egress_spec = port;
    }
    action rewrite(port_t port, bit<48> src, bit<16> ether_type) {
        standard.egress_spec = port;
        hdr.ethernet.src = src;
        hdr.ethernet.ether_type = ether_type;
    }
    action multicast(bit<16> group) {
        standard.mcast_grp = group;
    }
    action to_controller(bit<16> reason) {
        standard.egress_spec = CPU_PORT;
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = standard.ingress_port;
        hdr.packet_in.reason = reason;
    }
    action clone_to(port_t port) {
        standard.egress_spec = port;
        clone(CloneType.I2E, 5);
    }
    action learn_and_forward(port_t port) {
        standard.egress_spec = port;
        digest<learn_t>(1, { hdr.ethernet.src, standard.ingress_port });
    }
    action mark(bit<16> ether_type) {
        hdr.ethernet.ether_type = ether_type;
    }

    // Every action that a packet can meet is here; small, so that it can be filled.
    table exact_table {
        key = { hdr.ethernet.dst : exact; }
        actions = {
            drop; forward; rewrite; multicast; to_controller; clone_to; learn_and_forward; @defaultonly NoAction;
        }
        counters = forwarded;
        size = 8;
        default_action = NoAction();
    }
    table lpm_table {
        key = { hdr.ethernet.dst : lpm; }
        actions = { mark; NoAction; }
        size = 64;
        default_action = NoAction();
    }
    table ternary_table {
        key = { hdr.ethernet.dst : ternary; hdr.ethernet.ether_type : ternary; }
        actions = { mark; @tableonly drop; NoAction; }
        counters = masked_packets;
        size = 64;
        default_action = NoAction();
    }
    table range_table {
        key = { hdr.ethernet.ether_type : range; standard.ingress_port : range; }
        actions = { mark; NoAction; }
        size = 64;
        default_action = NoAction();
    }
    table optional_table {
        key = { hdr.ethernet.dst : optional; hdr.ethernet.ether_type : optional; }
        actions = { mark; NoAction; }
        size = 64;
        default_action = NoAction();
    }
    table mixed_table {
        key = { standard.ingress_port : exact; hdr.ethernet.dst : lpm; hdr.ethernet.ether_type : ternary; }
        actions = { mark; NoAction; }
        size = 64;
        default_action = NoAction();
    }
    table nine_table {
        key = { meta.nine : lpm; }
        actions = { mark; NoAction; }
        size = 64;
        default_action = NoAction();
    }
    table const_table {
        key = { hdr.ethernet.ether_type : exact; }
        actions = { mark; NoAction; }
        const default_action = NoAction();
        const entries = {
            0x9001 : mark(0x9002);
            0x9003 : mark(0x9004);
        }
    }

    apply {
        seen.count((bit<32>) standard.ingress_port & 15);
        seen_packets.count((bit<32>) standard.ingress_port & 7);
        meta.nine = (bit<9>) hdr.ethernet.ether_type;
        last.write(0, (bit<32>) standard.ingress_port);
        if (hdr.packet_out.isValid()) {
            standard.egress_spec = hdr.packet_out.egress_port;
            hdr.ethernet.ether_type = hdr.packet_out.tag;
            hdr.packet_out.setInvalid();
        } else {
            exact_table.apply();
            lpm_table.apply();
            ternary_table.apply();
            range_table.apply();
            optional_table.apply();
            mixed_table.apply();
            nine_table.apply();
            const_table.apply();
        }
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    // The replica id is seen on the wire: it replaces the low bits of the source address of multicast and cloned frames.
    action number_replica() {
        hdr.ethernet.src[15:0] = standard.egress_rid;
    }
    apply {
        if (standard.egress_rid != 0) {
            number_replica();
        }
    }
}

control ComputeImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
    }
}

V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), ComputeImpl(), DeparserImpl()) main;
