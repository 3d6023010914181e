// SPDX-License-Identifier: MIT
// What a contribution does to the block record of its slot, which is read once and written once (state.p4). It opens a block,
// joins it, repeats what is there, comes late or does not fit. The rules and their reasons: docs/protocol.md.

// A child switch that may not close a block asks whether its parent has: nothing of it is added.
#define IS_QUESTION(h) (h.hop == HOP_UP && h.final == 1)

// But the payload of a COPY that comes with it is taken: it goes ahead of the contribution that counts it.
#define BRINGS_COPY(h, m) (h.op == OP_COPY && m.grad_cnt != 0)

// From the packet's block to the job's newest, as a serial number.
#define BEHIND (PROGRESS_NEWEST_BLOCK(meta.progress) - hdr.netsum.block_id)
#define IS_NEWEST (BEHIND >= 0x80000000)

control Block(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    bit<32> delta;    // from the slot's block to the packet's, as a serial number

    LoadRecord()       load_record;
    StoreRecord()      store_record;
    ReadAsClosed()     read_as_closed;
    OpenBlock()        open_block;
    LoadResult()       load_result;
    CloseBlock()       close_block;
    CloseWithoutLate() close_without_late;
    LoadProgress()     load_progress;
    AdvanceNewestBlock()     advance_newest_block;
    MarkStragglers()   mark_stragglers;
    ClearStraggler()     clear_straggler;

    // Only members that gave up have contributed so far, but a result needs a generation.
    action set_provisional_fingerprint() {
        meta.record = (meta.record & ~FINGERPRINT_BITS) | FINGERPRINT(hdr.netsum);
    }
    action set_fingerprint() {
        meta.record = (meta.record & ~FINGERPRINT_BITS) | FINGERPRINT(hdr.netsum) | AS_FINGERPRINTED(1w1)
            | AS_NO_AGING(hdr.netsum.no_aging);
    }
    action take_first_payload() {
        meta.record = meta.record | AS_GRAD_CNT(meta.grad_cnt) | AS_CHUNKS(meta.payload_capacity);
        meta.combine = COMBINE_STORE;
    }
    action add_contribution() {
        meta.record = (meta.record | AS_SEEN(meta.source))
            + (AS_SRC_CNT(hdr.netsum.src_cnt) + AS_DATA_CNT(hdr.netsum.data_cnt));
        meta.outcome = OUTCOME_ACCEPTED;
    }
    action mark_congested() {
        meta.record = meta.record | AS_CONGESTED(1w1);
    }
    action mark_degraded() {
        meta.record = meta.record | AS_DEGRADED(1w1);
    }
    action raise_status() {
        meta.record = meta.record + AS_STATUS(hdr.netsum.status - RECORD_STATUS(meta.record));
    }

    apply {
        if (meta.outcome == OUTCOME_PENDING) {
            load_record.apply(meta.record, meta.slot);
            if (RECORD_EPOCH(meta.record) != meta.epoch || HAS_STATE(meta.record, STATE_EMPTY)) {
                read_as_closed.apply(hdr, meta);
            }
            if (meta.aging != 0) {
                load_progress.apply(hdr, meta);
                if (!IS_QUESTION(hdr.netsum) && (PROGRESS_STRAGGLERS(meta.progress) & meta.source) != 0
                        && (BEHIND < (bit<32>)AGING_WINDOW(meta) || IS_NEWEST)) {
                    clear_straggler.apply(hdr, meta);
                }
            }
            delta = hdr.netsum.block_id - RECORD_BLOCK_ID(meta.record);

            // The slot: a block exactly one lap ahead of a closed one opens it, one behind is stale, any other is refused.
            if (hdr.netsum.block_id == RECORD_BLOCK_ID(meta.record)) {
                if (HAS_STATE(meta.record, STATE_OPEN)) {
                    if ((RECORD_SEEN(meta.record) & meta.source) != 0) {
                        meta.outcome = OUTCOME_DUPLICATE;
                        if (ALL_IN(meta)) {
                            close_block.apply(meta);
                            meta.outcome = OUTCOME_AGED;
                        } else if (EXPIRED(meta, standard_metadata.ingress_global_timestamp)) {
                            close_without_late.apply(meta);
                            meta.outcome = OUTCOME_AGED;
                            mark_stragglers.apply(hdr, meta);
                        } else if (JOB_ROLE(meta) == ROLE_LEAF && meta.aging != 0) {
                            meta.outcome = OUTCOME_QUERIED_PARENT;    // the parent may have gone on without this switch
                        }
                        if (meta.outcome == OUTCOME_AGED) {
                            store_record.apply(meta);
                            load_result.apply(meta);
                        }
                    }
                } else if (HAS_STATE(meta.record, STATE_DONE)) {
                    meta.outcome = OUTCOME_REPLAYED;
                    load_result.apply(meta);
                } else if (HAS_STATE(meta.record, STATE_SENT)) {
                    meta.outcome = OUTCOME_RESENT;
                    if (hdr.netsum.status > RECORD_STATUS(meta.record)) {
                        raise_status();
                        store_record.apply(meta);
                    }
                    load_result.apply(meta);
                } else {
                    meta.outcome = OUTCOME_STALE;    // of a slot that is empty, or of a dead block
                }
            } else if (delta >= 0x80000000) {
                meta.outcome = OUTCOME_STALE;
            } else if (delta == JOB_NUM_SLOTS(meta) && !STATE_IS_IN_PROGRESS(RECORD_STATE(meta.record))) {
                open_block.apply(hdr, meta, standard_metadata);
            } else {
                meta.outcome = OUTCOME_OUT_OF_WINDOW;
            }

            // The fingerprint: ABORT and MISMATCH are exempt, so that a member that disagrees can say so.
            if (meta.outcome == OUTCOME_PENDING) {
                if (IS_QUESTION(hdr.netsum) && !BRINGS_COPY(hdr.netsum, meta)) {
                    meta.outcome = OUTCOME_QUERIED_PARENT;
                } else if (STATUS_GIVES_UP(hdr.netsum.status)) {
                    if (HAS_FINGERPRINTED(meta.record, 0)) {
                        set_provisional_fingerprint();
                    }
                } else if (!OP_IS_KNOWN(hdr.netsum.op)) {
                    meta.outcome = OUTCOME_UNSUPPORTED;
                } else if (HAS_FINGERPRINTED(meta.record, 0)) {
                    set_fingerprint();
                } else if ((meta.record & FINGERPRINT_BITS) != FINGERPRINT(hdr.netsum)) {
                    meta.outcome = OUTCOME_FINGERPRINT_MISMATCH;
                }
            }
            if (meta.outcome == OUTCOME_PENDING && meta.grad_cnt != 0) {
                if (HAS_CHUNKS(meta.record, 0)) {
                    take_first_payload();
                    if (IS_QUESTION(hdr.netsum)) {
                        meta.outcome = OUTCOME_EARLY_PAYLOAD;
                        store_record.apply(meta);
                    }
                } else if (RECORD_GRAD_CNT(meta.record) != meta.grad_cnt) {
                    meta.outcome = OUTCOME_FINGERPRINT_MISMATCH;
                } else if (hdr.netsum.op != OP_COPY) {
                    meta.combine = COMBINE_BY + (bit<8>)hdr.netsum.op;
                } else if (!HAS_DATA_CNT(meta.record, 0) || hdr.netsum.hop != HOP_UP) {
                    meta.outcome = OUTCOME_FINGERPRINT_MISMATCH;    // a second payload
                } else if (IS_QUESTION(hdr.netsum)) {
                    meta.outcome = OUTCOME_DUPLICATE;
                }
            } else if (meta.outcome == OUTCOME_PENDING && hdr.netsum.data_cnt != 0) {
                // Its payload has gone ahead.
                if (HAS_CHUNKS(meta.record, 0)) {
                    meta.outcome = OUTCOME_PAYLOAD_MISSING;
                } else if (!HAS_DATA_CNT(meta.record, 0)) {
                    meta.outcome = OUTCOME_FINGERPRINT_MISMATCH;
                }
            }

            if (meta.outcome == OUTCOME_PENDING) {
                add_contribution();
                if (IS_CONGESTED(hdr.ipv4)) {
                    mark_congested();
                }
                if (hdr.netsum.degraded == 1) {
                    mark_degraded();
                }
                if (hdr.netsum.status != STATUS_OK) {
                    if (hdr.netsum.status > RECORD_STATUS(meta.record)) {
                        raise_status();
                    }
                }
                if (ALL_IN(meta)) {
                    close_block.apply(meta);
                    meta.outcome = OUTCOME_COMPLETED;
                } else if (meta.aging != 0) {
                    if (IS_NEWEST) {
                        advance_newest_block.apply(hdr, meta);
                    }
                    if (ALL_BUT_STRAGGLERS(meta)) {
                        close_without_late.apply(meta);
                        meta.outcome = OUTCOME_AGED;
                    }
                }
                store_record.apply(meta);
                if (meta.outcome != OUTCOME_ACCEPTED && meta.combine == COMBINE_NOTHING) {
                    load_result.apply(meta);    // the last contribution was empty: the sum is in the slot
                }
            }

            // Room: a result leaves with its payload only in a packet that came in with room for it. BMv2's buffers grow by
            // 512 bytes at most, and a switch that never sends more than it received amplifies no forged packet. Without
            // room, the header tells the members that the result can be fetched with a padded contribution.
            if (meta.outcome != OUTCOME_ACCEPTED) {
                if (!HAS_STATUS(meta.record, STATUS_OK) || RECORD_CHUNKS(meta.record) > meta.payload_capacity) {
                    meta.header_only = 1;
                    if (meta.combine == COMBINE_LOAD) {
                        meta.combine = COMBINE_NOTHING;
                    }
                }
            }
        }
    }
}
