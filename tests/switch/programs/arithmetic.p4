// Expressions: every operator of BMv2 at several widths. The packet brings operands and takes results back.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }
header operands_t {
    bit<8>    op;
    bit<32>   a;
    bit<32>   b;
    bit<8>    small;
    bit<13>   odd;
    bit<3>    rest;
    bit<2048> wide;
    bit<2048> other;
}
header results_t {
    bit<32>   sum;
    bit<32>   difference;
    bit<32>   product;
    bit<32>   left;
    bit<32>   right;
    bit<32>   bits;
    bit<64>   joined;
    bit<16>   slice;
    bit<8>    negated;
    bit<8>    saturated_sum;
    bit<8>    saturated_difference;
    int<8>    signed_sum;
    int<8>    signed_saturated;
    int<8>    signed_right;
    bit<8>    signed_less;
    bit<8>    less;
    bit<13>   odd;
    bit<3>    chosen;
    bit<2048> wide;
    bit<1024> wide_left;
}
struct headers_t { ethernet_t ethernet; operands_t operands; results_t results; }
struct metadata_t { }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.operands);
        transition accept;
    }
}
control VerifyImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        hdr.results.setValid();
        hdr.results.sum = hdr.operands.a + hdr.operands.b;
        hdr.results.difference = hdr.operands.a - hdr.operands.b;
        hdr.results.product = hdr.operands.a * hdr.operands.b;
        hdr.results.left = hdr.operands.a << hdr.operands.small;
        hdr.results.right = hdr.operands.a >> hdr.operands.small;
        hdr.results.bits = ((hdr.operands.a & hdr.operands.b) | 0x00ff0000) ^ ~hdr.operands.b;
        hdr.results.joined = hdr.operands.a ++ hdr.operands.b;
        hdr.results.slice = hdr.operands.a[23:8];
        hdr.results.negated = -hdr.operands.small;
        hdr.results.saturated_sum = hdr.operands.a[7:0] |+| hdr.operands.b[7:0];
        hdr.results.saturated_difference = hdr.operands.a[7:0] |-| hdr.operands.b[7:0];
        hdr.results.signed_sum = (int<8>)hdr.operands.a[7:0] + (int<8>)hdr.operands.b[7:0];
        hdr.results.signed_saturated = (int<8>)hdr.operands.a[7:0] |+| (int<8>)hdr.operands.b[7:0];
        hdr.results.signed_right = (int<8>)hdr.operands.a[7:0] >> 2;
        hdr.results.signed_less = (int<8>)hdr.operands.a[7:0] < (int<8>)hdr.operands.b[7:0] ? 8w1 : 8w0;
        hdr.results.less = hdr.operands.a < hdr.operands.b && !(hdr.operands.a == 0) ? 8w1 : 8w0;
        hdr.results.odd = hdr.operands.odd + 13w0x1fff;
        hdr.results.chosen = hdr.operands.op == 1 ? hdr.operands.rest : hdr.operands.odd[12:10];
        hdr.results.wide = hdr.operands.wide + hdr.operands.other;
        hdr.results.wide_left = hdr.operands.wide[1023:0] << hdr.operands.small;
        hdr.operands.a[15:8] = hdr.operands.small;
        hdr.operands.wide[111:64] = hdr.ethernet.src;
    }
}
control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control ComputeImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.ethernet); packet.emit(hdr.results); packet.emit(hdr.operands); }
}
V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), ComputeImpl(), DeparserImpl()) main;
