// SPDX-License-Identifier: MIT
// How a contribution's payload meets that of its block. A COPY has one, which may come ahead of the contribution that counts it.

control AcceptPayload(in headers_t hdr, inout metadata_t meta) {
    StoreRecord() store_record;

    action take_first_payload() {
        meta.record = meta.record | AS_LANE_CNT(hdr.netsum.lane_cnt) | AS_CHUNKS(meta.payload_capacity);
        meta.combine = combine_t.STORE;
    }

    apply {
        if (meta.outcome == outcome_t.PENDING && hdr.netsum.lane_cnt != 0) {
            if (HAS_CHUNKS(meta.record, 0)) {
                take_first_payload();
                if (IS_QUERY(hdr.netsum)) {
                    meta.outcome = outcome_t.EARLY_PAYLOAD;
                    store_record.apply(meta);
                }
            } else if (RECORD_LANE_CNT(meta.record) != hdr.netsum.lane_cnt) {
                meta.outcome = outcome_t.FINGERPRINT_MISMATCH;
            } else if (hdr.netsum.op != op_t.COPY) {
                meta.combine = COMBINE_BY(hdr.netsum.op);
            } else if (!HAS_DATA_CNT(meta.record, 0) || hdr.netsum.hop != hop_t.UP) {
                meta.outcome = outcome_t.FINGERPRINT_MISMATCH;    // a second payload
            } else if (IS_QUERY(hdr.netsum)) {
                meta.outcome = outcome_t.DUPLICATE;
            }
        } else if (meta.outcome == outcome_t.PENDING && hdr.netsum.data_cnt != 0) {
            // Its payload has gone ahead.
            if (HAS_CHUNKS(meta.record, 0)) {
                meta.outcome = outcome_t.PAYLOAD_MISSING;
            } else if (!HAS_DATA_CNT(meta.record, 0)) {
                meta.outcome = outcome_t.FINGERPRINT_MISMATCH;
            }
        }
    }
}
