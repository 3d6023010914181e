// SPDX-License-Identifier: MIT
// Adds a contribution to its open block, and closes the block if it was the last one missing, or if only stragglers are.

control JoinBlock(in headers_t hdr, inout metadata_t meta) {
    StoreRecord()        store_record;
    LoadResult()         load_result;
    CloseBlock()         close_block;
    CloseWithoutLate()   close_without_late;
    RaiseStatus()        raise_status;
    AdvanceNewestBlock() advance_newest_block;

    action add_contribution() {
        meta.record = (meta.record | AS_SEEN(meta.source))
            + (AS_WORKER_CNT(hdr.netsum.worker_cnt) + AS_DATA_CNT(hdr.netsum.data_cnt));
        meta.outcome = outcome_t.ACCEPTED;
    }
    action mark_congested() {
        meta.record = meta.record | AS_CONGESTED(1w1);
    }
    action mark_degraded() {
        meta.record = meta.record | AS_DEGRADED(1w1);
    }

    apply {
        if (meta.outcome == outcome_t.PENDING) {
            add_contribution();
            if (IS_CONGESTED(hdr.ipv4)) {
                mark_congested();
            }
            if (hdr.netsum.degraded == 1) {
                mark_degraded();
            }
            if (hdr.netsum.status != status_t.OK) {
                if ((bit<4>)hdr.netsum.status > (bit<4>)RECORD_STATUS(meta.record)) {
                    raise_status.apply(hdr, meta);
                }
            }
            if (ALL_IN(meta)) {
                close_block.apply(meta);
                meta.outcome = outcome_t.COMPLETED;
            } else if (meta.block_exp != 0) {
                if (IS_NEWEST(hdr, meta)) {
                    advance_newest_block.apply(hdr, meta);
                }
                if (ALL_BUT_STRAGGLERS(meta)) {
                    close_without_late.apply(meta);
                    meta.outcome = outcome_t.AGED;
                }
            }
            store_record.apply(meta);
            if (meta.outcome != outcome_t.ACCEPTED && meta.combine == combine_t.NOTHING) {
                load_result.apply(meta);    // the last contribution was empty: the sum is in the slot
            }
        }
    }
}
