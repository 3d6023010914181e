// SPDX-License-Identifier: MIT
// What comes down from a leaf's parent: the result of a block, which is stored and goes on to the children, or an answer to a
// partial, which the children are told. The rules: S52 to S67 in PROTOCOL.md.

// A notice is all that is missing if the payload has come ahead of it. That of a child may be another than the result's, if it
// came too late for that.
#define COMPLETES_COPY(h, m) (h.op == op_t.COPY && !HAS_CHUNKS(m.record, 0) && HAS_FINGERPRINTED(m.record, 1) \
    && (m.record & FINGERPRINT_BITS) == FINGERPRINT(h) && (h.age_op != age_op_t.LATE || HAS_DATA_CNT(m.record, 0)))

control Parent(inout headers_t hdr, inout metadata_t meta) {
    LoadRecord()     load_record;
    StoreRecord()    store_record;
    LoadProgress()   load_progress;
    MarkStragglers() mark_stragglers;

    action ignore() {
        meta.outcome = outcome_t.IGNORED;
    }
    action notify_children() {
        meta.outcome = outcome_t.PARENT_STATUS;
    }
    // The parent has recycled the block: it is lost for this switch and all below.
    action mark_dead() {
        meta.record = meta.record + AS_STATE((bit<3>)state_t.DEAD - (bit<3>)RECORD_STATE(meta.record));
    }
    // From now on the slot holds the result. Which sources contributed here is kept for those that come late.
    action take() {
        meta.record = (meta.record & (START_BITS | SEEN_BITS)) | AS_EPOCH(meta.epoch)
            | AS_BLOCK_ID(hdr.netsum.block_id) | FINGERPRINT(hdr.netsum) | AS_FINGERPRINTED(1w1) | AS_LANE_CNT(hdr.netsum.lane_cnt)
            | AS_CHUNKS(meta.payload_capacity) | AS_WORKER_CNT(hdr.netsum.worker_cnt) | AS_DATA_CNT(hdr.netsum.data_cnt)
            | AS_STATUS(hdr.netsum.status) | AS_DEGRADED(hdr.netsum.degraded) | AS_NO_AGING(hdr.netsum.no_aging)
            | AS_STATE(state_t.DONE)
            | AS_CONGESTED(hdr.ipv4.version_ihl_tos[1:1] & hdr.ipv4.version_ihl_tos[0:0]);
        meta.outcome = outcome_t.PARENT_RESULT;
    }
    action keep_payload() {
        hdr.netsum.lane_cnt = RECORD_LANE_CNT(meta.record);
        meta.payload_capacity = RECORD_CHUNKS(meta.record);
        meta.header_only = 1;
    }
    action nothing_in_it() {
        meta.payload_capacity = 0;
        meta.header_only = 1;
    }
    // The parent closed the block without this subtree.
    action all_late() {
        meta.record = meta.record & ~SEEN_BITS;
    }
    action store_payload() {
        meta.combine = combine_t.STORE;
    }

    apply {
        if (meta.outcome == outcome_t.PENDING) {
            load_record.apply(meta.record, meta.slot);
            if (RECORD_EPOCH(meta.record) != meta.epoch || RECORD_BLOCK_ID(meta.record) != hdr.netsum.block_id
                    || !STATE_IS_IN_PROGRESS(RECORD_STATE(meta.record))) {
                ignore();
            } else if (!STATUS_IS_MEMBERS(hdr.netsum.status)
                    || (hdr.netsum.status == status_t.OK && hdr.netsum.data_cnt != 0 && hdr.netsum.lane_cnt == 0
                        && !COMPLETES_COPY(hdr.netsum, meta))) {
                // An answer, or a notice: it brought no room for the payload, so the children must ask again.
                if (HAS_STATE(meta.record, state_t.OPEN) && hdr.netsum.status == status_t.REFUSED) {
                    ignore();
                } else {
                    notify_children();
                    if (hdr.netsum.status == status_t.STALE) {
                        mark_dead();
                        store_record.apply(meta);
                    }
                }
            } else {
                if (meta.block_exp != 0 && HAS_STATE(meta.record, state_t.OPEN)) {
                    // The parent did not wait for this switch, so this switch does not wait for those it still lacked.
                    // Otherwise each result would find the next block open, and nothing would ever go up again.
                    load_progress.apply(hdr, meta);
                    mark_stragglers.apply(hdr, meta);
                }
                if (hdr.netsum.lane_cnt != 0) {
                    store_payload();
                } else if (hdr.netsum.status == status_t.OK && hdr.netsum.data_cnt != 0) {
                    keep_payload();
                } else {
                    nothing_in_it();
                }
                take();
                if (hdr.netsum.age_op == age_op_t.LATE) {
                    all_late();
                }
                store_record.apply(meta);
            }
        }
    }
}
