// Parser errors whose numbers begin with the program's own, so that "no error" is not 0.
error { Odd, Strange }
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }
header result_t { bit<8> ingress; bit<8> egress; }
header more_t { bit<32> data; }
struct headers_t { ethernet_t ethernet; result_t result; more_t more; }
struct metadata_t { }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        verify(hdr.ethernet.ether_type != 0x1111, error.Odd);
        verify(hdr.ethernet.ether_type != 0x2222, error.Strange);
        transition select(hdr.ethernet.ether_type) {
            0x3333: more;
            default: accept;
        }
    }
    state more { packet.extract(hdr.more); transition accept; }
}
control VerifyImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        hdr.result.setValid();
        if (standard.parser_error == error.NoError) { hdr.result.ingress = 1; }
        else if (standard.parser_error == error.Odd) { hdr.result.ingress = 2; }
        else if (standard.parser_error == error.Strange) { hdr.result.ingress = 3; }
        else if (standard.parser_error == error.PacketTooShort) { hdr.result.ingress = 4; }
        clone(CloneType.I2E, 9);
    }
}
control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.result.setValid();
        if (standard.parser_error == error.NoError) { hdr.result.egress = 1; }
        else if (standard.parser_error == error.Odd) { hdr.result.egress = 2; }
        else if (standard.parser_error == error.Strange) { hdr.result.egress = 3; }
        else if (standard.parser_error == error.PacketTooShort) { hdr.result.egress = 4; }
    }
}
control ComputeImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.ethernet); packet.emit(hdr.result); packet.emit(hdr.more); }
}
V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), ComputeImpl(), DeparserImpl()) main;
