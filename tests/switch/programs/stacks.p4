// Header stacks, header unions, validity, header assignment and comparison.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }
header label_t { bit<7> value; bit<1> last; }
header order_t { bit<8> op; bit<8> index; }
header report_t { bit<8> count; bit<8> first; bit<8> equal; bit<8> stale; }
header short_t { bit<8> kind; bit<8> value; }
header long_t { bit<8> kind; bit<24> value; }
header_union either_t { short_t short; long_t long; }
struct headers_t { ethernet_t ethernet; order_t order; report_t report; label_t[4] labels; label_t spare; either_t either; }
struct metadata_t { }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.order);
        transition labels;
    }
    state labels {
        packet.extract(hdr.labels.next);
        transition select(hdr.labels.last.last) {
            0: labels;
            default: either;
        }
    }
    state either {
        transition select(packet.lookahead<bit<8>>()) {
            1: short;
            2: long;
            default: accept;
        }
    }
    state short { packet.extract(hdr.either.short); transition accept; }
    state long { packet.extract(hdr.either.long); transition accept; }
}
control VerifyImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        hdr.report.setValid();
        if (standard.parser_error != error.NoError) { hdr.report.stale = 0xee; }
        if (hdr.order.op == 1) { hdr.labels.push_front(1); hdr.labels[0].setValid(); hdr.labels[0] = { 0x55, 0 }; }
        else if (hdr.order.op == 2) { hdr.labels.pop_front(1); }
        else if (hdr.order.op == 3) { hdr.spare = hdr.labels[0]; hdr.labels[0].setInvalid(); }
        else if (hdr.order.op == 4) { hdr.labels[hdr.order.index].value = 0x2a; }
        else if (hdr.order.op == 5) { hdr.labels.push_front(3); }
        else if (hdr.order.op == 6) { hdr.labels.pop_front(3); }
        else if (hdr.order.op == 7) { hdr.spare = hdr.labels[3]; }
        else if (hdr.order.op == 8) { hdr.either.long.setValid(); hdr.either.long = { 2, 0xabcdef }; }
        else if (hdr.order.op == 9) { hdr.labels[0].setInvalid(); hdr.labels[0].setValid(); hdr.labels[0].last = 1; }
        if (hdr.labels[0].isValid()) { hdr.report.first = 1w1 ++ hdr.labels[0].value; }
        if (hdr.labels[0] == hdr.labels[1]) { hdr.report.equal = 1; }
        if (hdr.either.isValid()) { hdr.report.count = hdr.report.count + 8; }
        if (hdr.labels[1].isValid()) { hdr.report.count = hdr.report.count + 1; }
        if (hdr.labels[3].isValid()) { hdr.report.count = hdr.report.count + 2; }
    }
}
control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control ComputeImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet); packet.emit(hdr.report); packet.emit(hdr.spare); packet.emit(hdr.labels);
        packet.emit(hdr.either);
    }
}
V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), ComputeImpl(), DeparserImpl()) main;
