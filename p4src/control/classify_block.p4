// SPDX-License-Identifier: MIT
// Which block a contribution is of: that in its slot, the one that may open the slot next, or another. The outcome stays
// PENDING if it may join the block.

control ClassifyBlock(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    bit<32> delta;    // from the slot's block to the packet's, as a serial number

    LoadRecord()       load_record;
    StoreRecord()      store_record;
    ReadAsClosed()     read_as_closed;
    OpenBlock()        open_block;
    LoadResult()       load_result;
    CloseBlock()       close_block;
    CloseWithoutLate() close_without_late;
    RaiseStatus()      raise_status;
    LoadProgress()     load_progress;
    MarkStragglers()   mark_stragglers;
    ClearStraggler()   clear_straggler;

    apply {
        load_record.apply(meta.record, meta.slot);
        if (RECORD_EPOCH(meta.record) != meta.epoch || HAS_STATE(meta.record, state_t.EMPTY)) {
            read_as_closed.apply(hdr, meta);
        }
        if (meta.block_exp != 0) {
            load_progress.apply(hdr, meta);
            if (!IS_QUERY(hdr.netsum) && (PROGRESS_STRAGGLERS(meta.progress) & meta.source) != 0
                    && (BEHIND(hdr, meta) < (bit<32>)meta.window || IS_NEWEST(hdr, meta))) {
                clear_straggler.apply(hdr, meta);
            }
        }
        delta = hdr.netsum.block_id - RECORD_BLOCK_ID(meta.record);

        if (hdr.netsum.block_id == RECORD_BLOCK_ID(meta.record)) {
            if (HAS_STATE(meta.record, state_t.OPEN)) {
                if ((RECORD_SEEN(meta.record) & meta.source) != 0) {
                    meta.outcome = outcome_t.DUPLICATE;
                    if (ALL_IN(meta)) {
                        close_block.apply(meta);
                        meta.outcome = outcome_t.AGED;
                    } else if (EXPIRED(meta, standard_metadata.ingress_global_timestamp)) {
                        close_without_late.apply(meta);
                        meta.outcome = outcome_t.AGED;
                        mark_stragglers.apply(hdr, meta);
                    } else if (meta.role == role_t.LEAF && meta.block_exp != 0) {
                        meta.outcome = outcome_t.QUERIED_PARENT;    // the parent may have gone on without this switch
                    }
                    if (meta.outcome == outcome_t.AGED) {
                        store_record.apply(meta);
                        load_result.apply(meta);
                    }
                }
            } else if (HAS_STATE(meta.record, state_t.DONE)) {
                meta.outcome = outcome_t.REPLAYED;
                load_result.apply(meta);
            } else if (HAS_STATE(meta.record, state_t.SENT)) {
                meta.outcome = outcome_t.RESENT;
                if ((bit<4>)hdr.netsum.status > (bit<4>)RECORD_STATUS(meta.record)) {
                    raise_status.apply(hdr, meta);
                    store_record.apply(meta);
                }
                load_result.apply(meta);
            } else {
                meta.outcome = outcome_t.STALE;    // of a slot that is empty, or of a dead block
            }
        } else if (delta >= 0x80000000) {
            meta.outcome = outcome_t.STALE;
        } else if (delta == meta.num_slots && !STATE_IS_IN_PROGRESS(RECORD_STATE(meta.record))) {
            open_block.apply(hdr, meta, standard_metadata);    // exactly one lap ahead of a closed one
        } else {
            meta.outcome = outcome_t.OUT_OF_WINDOW;
        }
    }
}
