// SPDX-License-Identifier: MIT
// The controller reads a slot's block record: a PacketOut names the slot, the PacketIn brings the record back.
// (simple_switch_grpc does not serve registers over P4Runtime.)

control Query(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    LoadRecord() load_record;

    action find_slot() {
        meta.slot = (bit<32>)hdr.packet_out.slot;
    }
    apply {
        hdr.record.setValid();
        find_slot();
        load_record.apply(hdr.record.raw, meta.slot);
        hdr.packet_in.setValid();
        hdr.packet_in.kind = hdr.packet_out.kind;
        // How long ago the block began, in units of 1024 microseconds, as far as the field goes.
        bit<48> age = standard_metadata.ingress_global_timestamp - RECORD_START(hdr.record.raw);
        hdr.packet_in.closed = age[25:10];
        if (age[47:26] != 0) {
            hdr.packet_in.closed = 0xffff;
        }
        hdr.packet_in.slot = hdr.packet_out.slot;
        hdr.packet_in.cookie = hdr.packet_out.cookie;
        hdr.packet_out.setInvalid();
        standard_metadata.egress_spec = CPU_PORT;
    }
}
