// The block record: one per slot, read once and written once per packet. Decides whether a contribution opens a block,
// joins it, repeats itself, comes late or does not fit. Rules and their reasons: docs/protocol.md. A root's complete block is
// DONE; a leaf's is SENT, and what the packet becomes is the partial for the parent (uplink.p4).
//
// The record stays one number (RECORD_x cuts a field out, AS_x puts a value in its place): BMv2 pays for every field that
// is written, so adding a contribution is one assignment, not one for each counter.

register<frontier_raw_t>(256) frontier_register;    // by job

control Block(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    bit<32> delta;    // from the slot's block to the packet's, as a serial number
    bit<32> behind;   // from the packet's block to the job's newest

    action load_record() {
        record_register.read(meta.record, meta.slot);
    }
    action load_frontier() {
        meta.job = (bit<32>)hdr.netsum.job_id;
        frontier_register.read(meta.frontier, meta.job);
    }
    action fresh_frontier() {
        meta.frontier = FRESH_FRONTIER(meta);
    }
    action heard_again() {
        meta.frontier = meta.frontier & ~AS_SUSPECTS(meta.source);
        frontier_register.write(meta.job, meta.frontier);
    }
    action newest() {
        meta.frontier = (meta.frontier & ~AS_NEWEST(32w0xffffffff)) | AS_NEWEST(hdr.netsum.block_id);
        frontier_register.write(meta.job, meta.frontier);
    }
    action suspect_the_missing() {
        meta.frontier = SUSPECT_THE_MISSING(meta);
        frontier_register.write(meta.job, meta.frontier);
    }
    // A slot that is empty or was written in another epoch reads as the closed block one lap before the first lap.
    action read_as_closed() {
        meta.record = AS_BLOCK_ID(meta.first_block_id - meta.lap
            + ((hdr.netsum.block_id - meta.first_block_id) & (meta.lap - 1)));
    }
    action open_block() {
        meta.record = AS_START(standard.ingress_global_timestamp) | AS_EPOCH(meta.epoch)
            | AS_BLOCK_ID(hdr.netsum.block_id) | AS_STATE(STATE_OPEN);
    }
    // So far only members that gave up: their result still needs a generation.
    action sign_for_now() {
        meta.record = (meta.record & ~SIGNATURE_BITS) | SIGNATURE(hdr.netsum);
    }
    action sign() {
        meta.record = (meta.record & ~SIGNATURE_BITS) | SIGNATURE(hdr.netsum) | AS_SIGNED(1w1)
            | AS_FIRM(hdr.netsum.firm);
    }
    action take_first_payload() {
        meta.record = meta.record | AS_GRAD_CNT(meta.grad_cnt) | AS_CHUNKS(meta.room);
        meta.combine = COMBINE_STORE;
    }
    action count_in() {
        meta.record = (meta.record | AS_SEEN(meta.source) | AS_DEGRADED(hdr.netsum.degraded))
            + (AS_SRC_CNT(hdr.netsum.src_cnt) + AS_DATA_CNT(hdr.netsum.data_cnt));
        meta.outcome = OUTCOME_ACCEPTED;
    }
    action raise_status() {
        meta.record = meta.record + AS_STATUS(hdr.netsum.status - RECORD_STATUS(meta.record));
    }
    action complete() {
        meta.record = meta.record + AS_STATE(meta.role);
        meta.outcome = OUTCOME_COMPLETED;
    }
    // Closed without the sources that are late, or without those that were evicted.
    action close(bit<1> late) {
        meta.record = (meta.record | AS_DEGRADED(late)) + AS_STATE(meta.role);
        meta.outcome = OUTCOME_AGED;
    }
    action store_record() {
        record_register.write(meta.slot, meta.record);
    }

    apply {
        if (meta.outcome == OUTCOME_PENDING) {
            load_record();
            if (RECORD_EPOCH(meta.record) != meta.epoch || RECORD_STATE(meta.record) == STATE_EMPTY) {
                read_as_closed();
            }
            if (meta.block_exp != 0) {
                load_frontier();
                if (FRONTIER_FRONTIER_EPOCH(meta.frontier) != meta.epoch) {
                    fresh_frontier();
                }
                behind = FRONTIER_NEWEST(meta.frontier) - hdr.netsum.block_id;
                if (!IS_QUESTION(hdr.netsum) && (FRONTIER_SUSPECTS(meta.frontier) & meta.source) != 0
                        && (behind < meta.window || behind[31:31] == 1)) {
                    heard_again();
                }
            }
            delta = hdr.netsum.block_id - RECORD_BLOCK_ID(meta.record);

            // The slot: exactly one lap ahead of a closed block opens it; behind is stale; anything else is refused.
            if (delta == 0) {
                if (RECORD_STATE(meta.record) == STATE_OPEN) {
                    if ((RECORD_SEEN(meta.record) & meta.source) != 0) {
                        meta.outcome = OUTCOME_DUPLICATE;
                        if (ALL_IN(meta.record, meta)) {
                            close(0);
                        } else if (EXPIRED(meta.record, meta, standard.ingress_global_timestamp)) {
                            close(1);
                            suspect_the_missing();
                        } else if (meta.role == ROLE_LEAF && meta.block_exp != 0) {
                            meta.outcome = OUTCOME_ASKED;    // the parent may have gone on without this switch
                        }
                        if (meta.outcome == OUTCOME_AGED) {
                            store_record();
                            meta.combine = COMBINE_LOAD;
                        }
                    }
                } else if (RECORD_STATE(meta.record) == STATE_DONE) {
                    meta.outcome = OUTCOME_REPLAYED;
                    meta.combine = COMBINE_LOAD;
                } else if (RECORD_STATE(meta.record) == STATE_SENT) {
                    meta.outcome = OUTCOME_RESENT;
                    meta.combine = COMBINE_LOAD;
                    if (hdr.netsum.status > RECORD_STATUS(meta.record)) {
                        raise_status();
                        store_record();
                    }
                } else {
                    meta.outcome = OUTCOME_STALE;    // empty, or dead
                }
            } else if (delta[31:31] == 1) {
                meta.outcome = OUTCOME_STALE;
            } else if (delta == meta.lap && !UNDER_WAY(meta.record)) {
                open_block();
            } else {
                meta.outcome = OUTCOME_WINDOW;
            }

            if (meta.outcome == OUTCOME_PENDING && IS_QUESTION(hdr.netsum)) {
                meta.outcome = OUTCOME_ASKED;
            }

            // The signature: ABORT and MISMATCH are exempt, so that a member that disagrees can say so.
            if (meta.outcome == OUTCOME_PENDING) {
                if (hdr.netsum.status >= STATUS_ABORT) {
                    if (RECORD_SIGNED(meta.record) == 0) {
                        sign_for_now();
                    }
                } else if (hdr.netsum.op > OP_COPY) {
                    meta.outcome = OUTCOME_UNSUPPORTED;
                } else if (RECORD_SIGNED(meta.record) == 0) {
                    sign();
                } else if ((meta.record & SIGNATURE_BITS) != SIGNATURE(hdr.netsum)) {
                    meta.outcome = OUTCOME_SIGNATURE;
                }
            }
            if (meta.outcome == OUTCOME_PENDING && meta.grad_cnt != 0) {
                if (RECORD_DATA_CNT(meta.record) == 0) {
                    take_first_payload();
                } else if (RECORD_GRAD_CNT(meta.record) != meta.grad_cnt || hdr.netsum.op == OP_COPY) {
                    meta.outcome = OUTCOME_SIGNATURE;
                } else {
                    meta.combine = COMBINE_BY + hdr.netsum.op;
                }
            }

            if (meta.outcome == OUTCOME_PENDING) {
                count_in();
                if (hdr.netsum.status > RECORD_STATUS(meta.record)) {
                    raise_status();
                }
                if (ALL_IN(meta.record, meta)) {
                    complete();
                } else if (meta.block_exp != 0) {
                    if (behind[31:31] == 1) {
                        newest();
                    }
                    if (ALL_BUT_SUSPECTS(meta.record, meta)) {
                        close(1);
                    }
                }
                if (meta.outcome != OUTCOME_ACCEPTED && meta.combine == COMBINE_NOTHING) {
                    meta.combine = COMBINE_LOAD;    // an empty contribution was the last: the sum is in the slot
                }
                store_record();
            }

            // A result takes its payload out only in a packet that came in with room for it: BMv2's buffers grow by 512
            // bytes at most, and a switch that never sends more than it received amplifies nobody's forgeries. Without
            // room, the header tells the member that the result is there to be fetched, by its contribution padded.
            if (RECORD_STATUS(meta.record) != STATUS_OK || RECORD_CHUNKS(meta.record) > meta.room) {
                meta.header_only = 1;
                if (meta.combine == COMBINE_LOAD) {
                    meta.combine = COMBINE_NOTHING;
                }
            }
        }
    }
}
