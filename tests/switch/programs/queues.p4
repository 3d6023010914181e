// Egress queues: what a queue does to a packet, priorities, and packets that start over many times.
#include <core.p4>
#include <v1model.p4>

enum bit<8> Operation { UNICAST = 0, MULTICAST = 1, CLONE = 2, RECIRCULATE = 3, RESUBMIT = 4 }

// To `target` with `priority`; `passes`: how often the packet starts over.
header request_t { Operation operation; bit<8> target; bit<8> priority; bit<8> padding; bit<32> passes; }
header trace_t { bit<32> enq_timestamp; bit<32> enq_qdepth; bit<32> deq_timedelta; bit<32> deq_qdepth; bit<16> egress_port; bit<16> egress_rid; }
struct headers_t { request_t request; trace_t trace; }
struct metadata_t { @field_list(1) bit<32> passes; }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.request); transition accept; }
}
control VerifyImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = (bit<9>)hdr.request.target;
        standard.priority = (bit<3>)hdr.request.priority;
        if (hdr.request.operation == Operation.MULTICAST) {
            standard.mcast_grp = (bit<16>)hdr.request.target;
        } else if (hdr.request.operation == Operation.CLONE) {
            clone(CloneType.I2E, 7);
        } else if (hdr.request.operation == Operation.RESUBMIT && meta.passes < hdr.request.passes) {
            meta.passes = meta.passes + 1;
            resubmit_preserving_field_list(1);
        }
    }
}
control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.request.operation == Operation.RECIRCULATE && meta.passes < hdr.request.passes) {
            meta.passes = meta.passes + 1;
            recirculate_preserving_field_list(1);
        } else {
            hdr.trace = { standard.enq_timestamp, (bit<32>)standard.enq_qdepth, standard.deq_timedelta, (bit<32>)standard.deq_qdepth,
                          (bit<16>)standard.egress_port, standard.egress_rid };
        }
    }
}
control ComputeImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control DeparserImpl(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.trace); packet.emit(hdr.request); } }
V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), ComputeImpl(), DeparserImpl()) main;
