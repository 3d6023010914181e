// SPDX-License-Identifier: MIT
// A COPY's payload comes down from a leaf's parent ahead of its result. It is stored, so that a header completes the block
// later, and goes on to the children. None of those may have come to the block yet: then it opens the slot, by the same rule as
// a contribution (block.p4), since a source has sent this block.

control EarlyPayload(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    LoadRecord()   load_record;
    StoreRecord()  store_record;
    ReadAsClosed() read_as_closed;
    OpenBlock()    open_block;

    action ignore() {
        meta.outcome = outcome_t.IGNORED;
    }
    action set_fingerprint() {
        meta.record = (meta.record & ~FINGERPRINT_BITS) | FINGERPRINT(hdr.netsum) | AS_FINGERPRINTED(1w1)
            | AS_NO_AGING(hdr.netsum.no_aging);
    }
    action take_payload() {
        meta.record = meta.record | AS_LANE_CNT(hdr.netsum.lane_cnt) | AS_CHUNKS(meta.payload_capacity);
        meta.combine = combine_t.STORE;
    }
    action carry_on() {
        meta.outcome = outcome_t.EARLY_PAYLOAD;
    }

    apply {
        if (meta.outcome == outcome_t.PENDING && hdr.netsum.early == 1 && BRINGS_COPY(hdr.netsum)) {
            load_record.apply(meta.record, meta.slot);
            if (RECORD_EPOCH(meta.record) != meta.epoch || HAS_STATE(meta.record, state_t.EMPTY)) {
                read_as_closed.apply(hdr, meta);
            }
            if (STATE_IS_IN_PROGRESS(RECORD_STATE(meta.record))) {
                if (hdr.netsum.block_id != RECORD_BLOCK_ID(meta.record)) {
                    ignore();
                }
            } else if (hdr.netsum.block_id - RECORD_BLOCK_ID(meta.record) == meta.num_slots) {
                open_block.apply(hdr, meta, standard_metadata);
            } else {
                ignore();
            }
            if (meta.outcome == outcome_t.PENDING) {
                if (HAS_FINGERPRINTED(meta.record, 0)) {
                    set_fingerprint();
                }
                if ((meta.record & FINGERPRINT_BITS) != FINGERPRINT(hdr.netsum)) {
                    ignore();
                } else if (HAS_CHUNKS(meta.record, 0)) {
                    take_payload();
                    carry_on();
                    store_record.apply(meta);
                } else if (RECORD_LANE_CNT(meta.record) != hdr.netsum.lane_cnt) {
                    ignore();
                } else {
                    carry_on();
                }
            }
        }
    }
}
