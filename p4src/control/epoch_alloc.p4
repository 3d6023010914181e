// SPDX-License-Identifier: MIT
// The controller claims all epoch numbers up to the one it names, and is told up to which they had been claimed: those above are
// its own. The switch keeps them because it forgets them only together with its records, whereas the controller's file can be
// lost, old, or there twice.

@id(CLAIM_REGISTER)
register<bit<32>, bit<1>>(1) claim_register;

control EpochAlloc(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    bit<32> claimed;    // the last epoch that was claimed before
    bit<32> last;       // that is claimed now

    apply {
        last = hdr.packet_out.slot ++ hdr.packet_out.closed;
        claim_register.read(claimed, 0);
        if (last > claimed) {
            claim_register.write(0, last);
        }
        hdr.packet_in.setValid();
        hdr.packet_in.kind = hdr.packet_out.kind;
        hdr.packet_in.slot = claimed[31:16];
        hdr.packet_in.cookie = hdr.packet_out.cookie;
        hdr.packet_in.closed = claimed[15:0];
        hdr.packet_out.setInvalid();
        standard_metadata.egress_spec = CPU_PORT;
    }
}
