// SPDX-License-Identifier: MIT
// What a contribution does to the block record of its slot, which is read once and written once (state.p4). It opens a block,
// joins it, repeats what is there, comes late or does not fit. The rules: S10 to S28 in PROTOCOL.md.

control Block(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    ClassifyBlock()    classify_block;
    CheckFingerprint() check_fingerprint;
    AcceptPayload()    accept_payload;
    JoinBlock()        join_block;

    // Room: a result leaves with its payload only in a packet that came in with room for it. BMv2's buffers grow by
    // 512 bytes at most, and a switch that never sends more than it received amplifies no forged packet. Without
    // room, the header tells the members that the result can be fetched with a padded contribution.
    action leave_out_payload() {
        meta.header_only = 1;
    }

    apply {
        if (meta.outcome == outcome_t.PENDING) {
            classify_block.apply(hdr, meta, standard_metadata);
            if (meta.outcome == outcome_t.PENDING) {
                check_fingerprint.apply(hdr, meta);
                accept_payload.apply(hdr, meta);
                join_block.apply(hdr, meta);
            }
            if (meta.outcome != outcome_t.ACCEPTED
                    && (!HAS_STATUS(meta.record, status_t.OK) || RECORD_CHUNKS(meta.record) > meta.payload_capacity)) {
                leave_out_payload();
                if (meta.combine == combine_t.LOAD) {
                    meta.combine = combine_t.NOTHING;
                }
            }
        }
    }
}
