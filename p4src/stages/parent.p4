// What comes down from a leaf's parent: the result of a block, which is stored and goes on down to the children, or an answer to
// a partial, which they are told. Rules and their reasons: docs/protocol.md, "Trees".

control Parent(in headers_t hdr, inout metadata_t meta) {
    action load_record() {
        record_register.read(meta.record, meta.slot);
    }
    action ignore() {
        meta.outcome = OUTCOME_IGNORED;
    }
    action tell() {
        meta.outcome = OUTCOME_TOLD;
    }
    // The parent has recycled the block: it is lost for this switch and all below.
    action die() {
        meta.record = meta.record + AS_STATE(STATE_DEAD - RECORD_STATE(meta.record));
    }
    action load_frontier() {
        meta.job = (bit<32>)hdr.netsum.job_id;
        frontier_register.read(meta.frontier, meta.job);
    }
    action fresh_frontier() {
        meta.frontier = FRESH_FRONTIER(meta);
    }
    action suspect_the_missing() {
        meta.frontier = SUSPECT_THE_MISSING(meta);
        frontier_register.write(meta.job, meta.frontier);
    }
    // The result is what the slot holds from now on. Who has contributed here stays known, for whoever comes late.
    action take() {
        meta.record = AS_SEEN(RECORD_SEEN(meta.record)) | AS_START(RECORD_START(meta.record)) | AS_EPOCH(meta.epoch)
            | AS_BLOCK_ID(hdr.netsum.block_id) | SIGNATURE(hdr.netsum) | AS_SIGNED(1w1) | AS_GRAD_CNT(meta.grad_cnt)
            | AS_CHUNKS(meta.room) | AS_SRC_CNT(hdr.netsum.src_cnt) | AS_DATA_CNT(hdr.netsum.data_cnt)
            | AS_STATUS(hdr.netsum.status) | AS_DEGRADED(hdr.netsum.degraded) | AS_FIRM(hdr.netsum.firm)
            | AS_STATE(STATE_DONE);
        meta.outcome = OUTCOME_RETURNED;
    }
    action nothing_in_it() {
        meta.room = 0;
        meta.header_only = 1;
    }
    // It is without anything from here.
    action all_late() {
        meta.record = meta.record & ~SEEN_BITS;
    }
    action store_record() {
        record_register.write(meta.slot, meta.record);
    }
    action store_payload() {
        meta.combine = COMBINE_STORE;
    }

    apply {
        if (meta.outcome == OUTCOME_PENDING) {
            load_record();
            if (RECORD_EPOCH(meta.record) != meta.epoch || RECORD_BLOCK_ID(meta.record) != hdr.netsum.block_id
                    || !UNDER_WAY(meta.record)) {
                ignore();
            } else if (hdr.netsum.status >= STATUS_STALE
                    || (hdr.netsum.status == STATUS_OK && hdr.netsum.data_cnt != 0 && meta.grad_cnt == 0)) {
                // An answer; or a notice, and here is no room either: the children must ask again.
                if (RECORD_STATE(meta.record) == STATE_OPEN && hdr.netsum.status == STATUS_REFUSED) {
                    ignore();
                } else {
                    tell();
                    if (hdr.netsum.status == STATUS_STALE) {
                        die();
                        store_record();
                    }
                }
            } else {
                if (meta.block_exp != 0 && RECORD_STATE(meta.record) == STATE_OPEN) {
                    // The parent did not wait for this switch, and this switch will not wait for those it still lacked: else
                    // each result would find the next block open, and nothing would ever go up again.
                    load_frontier();
                    if (FRONTIER_FRONTIER_EPOCH(meta.frontier) != meta.epoch) {
                        fresh_frontier();
                    }
                    suspect_the_missing();
                }
                if (meta.grad_cnt == 0) {
                    nothing_in_it();
                }
                take();
                if (hdr.netsum.age_op == AGE_LATE) {
                    all_late();
                }
                store_record();
                if (meta.grad_cnt != 0) {
                    store_payload();
                }
            }
        }
    }
}
