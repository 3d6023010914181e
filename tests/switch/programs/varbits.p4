// Headers with a varbit field: extracted, copied, exchanged, compared, and under a checksum.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }
header option_t { bit<8> kind; bit<8> length; varbit<64> data; bit<16> behind; }
header result_t { bit<16> checksum; bit<8> problem; bit<8> equal; bit<16> size; }
struct headers_t { ethernet_t ethernet; result_t result; option_t first; option_t second; option_t third; }
struct metadata_t { }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    bit<16> ahead;
    state start {
        packet.extract(hdr.ethernet);
        ahead = packet.lookahead<bit<16>>();
        packet.extract(hdr.first, (bit<32>)ahead[7:0]);
        ahead = packet.lookahead<bit<16>>();
        packet.extract(hdr.second, (bit<32>)ahead[7:0]);
        transition accept;
    }
}
control VerifyImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        hdr.result.setValid();
        if (standard.parser_error == error.PacketTooShort) { hdr.result.problem = 1; }
        if (standard.parser_error == error.HeaderTooShort) { hdr.result.problem = 4; }
        if (standard.parser_error == error.ParserInvalidArgument) { hdr.result.problem = 6; }
        if (hdr.first == hdr.second) { hdr.result.equal = 1; }
        if (hdr.first.kind == 1) { hdr.third = hdr.first; hdr.third.behind = 0x1234; }
        if (hdr.first.kind == 2) { hdr.first.data = hdr.second.data; }
        if (hdr.first.kind == 3) { hdr.first.setInvalid(); }
    }
}
control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { hdr.result.size = (bit<16>)standard.packet_length; }
}
control ComputeImpl(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(true, { hdr.first.kind, hdr.first.length, hdr.first.data, hdr.first.behind }, hdr.result.checksum,
            HashAlgorithm.csum16);
    }
}
control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet); packet.emit(hdr.result); packet.emit(hdr.first); packet.emit(hdr.second);
        packet.emit(hdr.third);
    }
}
V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), ComputeImpl(), DeparserImpl()) main;
