// Digests, log_msg, assert; timestamps and queueing metadata.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }
header times_t { bit<48> ingress; bit<48> egress; bit<32> enqueued; bit<32> waited; bit<32> depth; }
struct learnt_t { bit<48> address; bit<9> port; }
struct headers_t { ethernet_t ethernet; times_t times; }
struct metadata_t { }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}
control VerifyImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        if (hdr.ethernet.ether_type == 0x1111) { digest<learnt_t>(1, { hdr.ethernet.src, standard.ingress_port }); }
        if (hdr.ethernet.ether_type == 0x2222) { log_msg("100% of {} on port {}", { hdr.ethernet.src, standard.ingress_port }); }
        assert(hdr.ethernet.ether_type != 0x3333);
        hdr.times.setValid();
        hdr.times.ingress = standard.ingress_global_timestamp;
    }
}
control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.times.egress = standard.egress_global_timestamp;
        hdr.times.enqueued = standard.enq_timestamp;
        hdr.times.waited = standard.deq_timedelta;
        hdr.times.depth = (bit<32>)standard.deq_qdepth;
    }
}
control ComputeImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control DeparserImpl(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); packet.emit(hdr.times); } }
V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), ComputeImpl(), DeparserImpl()) main;
