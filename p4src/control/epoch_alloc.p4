// SPDX-License-Identifier: MIT
// The controller claims all epoch numbers up to the one it names, and is told up to which they had been claimed: those above are
// its own. The switch keeps them because it forgets them only together with its records, whereas the controller's file can be
// lost, old, or there twice.

@id(CLAIM_REGISTER)
register<bit<32>, bit<1>>(1) claim_register;

control EpochAlloc(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action find_last() {        // which epoch it claims last; apart, or p4c would add a variable
        meta.slot = hdr.packet_out.slot ++ hdr.packet_out.closed;
    }
    apply {
        find_last();
        claim_register.read(meta.epoch, 0);    // what had been claimed before
        if (meta.slot > meta.epoch) {
            claim_register.write(0, meta.slot);
        }
        hdr.packet_in.setValid();
        hdr.packet_in.kind = hdr.packet_out.kind;
        hdr.packet_in.slot = meta.epoch[31:16];
        hdr.packet_in.cookie = hdr.packet_out.cookie;
        hdr.packet_in.closed = meta.epoch[15:0];
        hdr.packet_out.setInvalid();
        standard_metadata.egress_spec = CPU_PORT;
    }
}
