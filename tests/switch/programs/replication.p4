// What happens after ingress and after egress: unicast, multicast, drop, clones, resubmit, recirculate, truncate.
// The operation is chosen by the first byte of the destination address; egress writes into `trace` what it saw.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<8> op; bit<8> argument; bit<32> rest; bit<48> src; bit<16> ether_type; }
header trace_t {
    bit<8>  instance_type;
    bit<16> egress_port;
    bit<16> egress_rid;
    bit<16> ingress_port;
    bit<16> packet_length;
    bit<8>  kept;
    bit<8>  lost;
    bit<8>  passes;
}
struct headers_t { trace_t trace; ethernet_t ethernet; }
struct metadata_t {
    @field_list(1) bit<8> kept;
    @field_list(1) bit<8> passes;
    bit<8> lost;
}

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        transition select(standard.instance_type) {
            4: recirculated;
            default: fresh;
        }
    }
    state recirculated { packet.extract(hdr.trace); transition fresh; }
    state fresh { packet.extract(hdr.ethernet); transition accept; }
}
control VerifyImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = (bit<9>)hdr.ethernet.argument;
        meta.lost = 0x77;
        if (standard.instance_type == 0) { meta.kept = 0x11; }
        meta.passes = meta.passes + 1;
        if (hdr.ethernet.op == 1) { standard.mcast_grp = (bit<16>)hdr.ethernet.argument; }
        else if (hdr.ethernet.op == 2) { mark_to_drop(standard); }
        else if (hdr.ethernet.op == 3) { clone_preserving_field_list(CloneType.I2E, 7, 1); hdr.ethernet.src = 1; }
        else if (hdr.ethernet.op == 4 && standard.instance_type == 0) {
            hdr.ethernet.src = 2;
            resubmit_preserving_field_list(1);
        }
        else if (hdr.ethernet.op == 5) { truncate(40); }
        else if (hdr.ethernet.op == 6) { standard.mcast_grp = 1; mark_to_drop(standard); standard.mcast_grp = 1; truncate(40); }
        else if (hdr.ethernet.op == 7) { clone(CloneType.I2E, 7); mark_to_drop(standard); }
        else if (hdr.ethernet.op == 10) { hdr.ethernet.setInvalid(); }
        else if (hdr.ethernet.op == 12) { exit; }
        else if (hdr.ethernet.op == 13) { standard.egress_rid = 0x99; }
        meta.passes = meta.passes + 16;
    }
}
control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.ethernet.op == 8 && standard.instance_type == 0) {
            hdr.ethernet.src = 3;
            clone_preserving_field_list(CloneType.E2E, 7, 1);
        } else if (hdr.ethernet.op == 9 && meta.passes == 17) {
            recirculate_preserving_field_list(1);
        } else if (hdr.ethernet.op == 11) {
            mark_to_drop(standard);
        }
        hdr.trace.setValid();
        hdr.trace.instance_type = (bit<8>)standard.instance_type;
        hdr.trace.egress_port = (bit<16>)standard.egress_port;
        hdr.trace.egress_rid = standard.egress_rid;
        hdr.trace.ingress_port = (bit<16>)standard.ingress_port;
        hdr.trace.packet_length = (bit<16>)standard.packet_length;
        hdr.trace.kept = meta.kept;
        hdr.trace.lost = meta.lost;
        hdr.trace.passes = meta.passes;
    }
}
control ComputeImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control DeparserImpl(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.trace); packet.emit(hdr.ethernet); } }
V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), ComputeImpl(), DeparserImpl()) main;
