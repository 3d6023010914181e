// The block record: one per slot, read once and written once per packet. Decides whether a contribution opens a block,
// joins it, repeats itself, comes late or does not fit. Rules and their reasons: docs/protocol.md.

control Block(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    record_raw_t raw;
    bit<32> lap;      // block ids between two blocks of a slot
    bit<32> delta;    // from the slot's block to the packet's, as a serial number

    action load_record() {
        record_register.read(raw, meta.slot);
        SPLIT_RECORD(meta.record, raw)
        lap = (bit<32>)meta.slot_mask + 1;
    }
    // A slot that is empty or was written in another epoch reads as the closed block one lap before the first lap.
    action read_as_closed() {
        meta.record.block_id = meta.first_block_id - lap
            + ((hdr.netsum.block_id - meta.first_block_id) & (bit<32>)meta.slot_mask);
        meta.record.state_ = STATE_EMPTY;
    }
    action open_block() {
        meta.record.seen = 0;
        meta.record.start = standard.ingress_global_timestamp;
        meta.record.epoch = meta.epoch;
        meta.record.block_id = hdr.netsum.block_id;
        meta.record.grad_cnt = 0;
        meta.record.src_cnt = 0;
        meta.record.data_cnt = 0;
        meta.record.status = STATUS_OK;
        meta.record.state_ = STATE_OPEN;
        meta.record.signed = 0;
        meta.record.degraded = 0;
        meta.record.chunks = 0;
    }
    action sign() {
        meta.record.gen_id = hdr.netsum.gen_id;
        meta.record.dest = hdr.netsum.dest;
        meta.record.op = hdr.netsum.op;
        meta.record.lane = hdr.netsum.lane;
    }
    action take_payload() {
        meta.record.grad_cnt = meta.grad_cnt;
        meta.record.chunks = meta.room;
    }
    action count_in() {
        meta.record.seen = meta.record.seen | meta.source;
        meta.record.src_cnt = meta.record.src_cnt + hdr.netsum.src_cnt;
        meta.record.data_cnt = meta.record.data_cnt + hdr.netsum.data_cnt;
        meta.outcome = OUTCOME_ACCEPTED;
    }
    action complete() {
        meta.record.state_ = STATE_DONE;
        meta.outcome = OUTCOME_COMPLETED;
    }
    action store_record() {
        record_register.write(meta.slot, JOIN_RECORD(meta.record));
    }

    apply {
        if (meta.outcome == OUTCOME_PENDING) {
            load_record();
            if (meta.record.epoch != meta.epoch || meta.record.state_ == STATE_EMPTY) {
                read_as_closed();
            }
            delta = hdr.netsum.block_id - meta.record.block_id;

            // The slot: exactly one lap ahead of a closed block opens it; behind is stale; anything else is refused.
            if (delta == 0) {
                if (meta.record.state_ == STATE_EMPTY) {
                    meta.outcome = OUTCOME_STALE;
                } else if (meta.record.state_ == STATE_DONE) {
                    meta.outcome = OUTCOME_REPLAYED;
                    meta.combine = COMBINE_LOAD;
                } else if ((meta.record.seen & meta.source) != 0) {
                    meta.outcome = OUTCOME_DUPLICATE;
                }
            } else if (delta[31:31] == 1) {
                meta.outcome = OUTCOME_STALE;
            } else if (delta == lap && meta.record.state_ != STATE_OPEN) {
                open_block();
            } else {
                meta.outcome = OUTCOME_WINDOW;
            }

            // The signature: ABORT and MISMATCH are exempt, so that a member that disagrees can say so.
            if (meta.outcome == OUTCOME_PENDING && hdr.netsum.status < STATUS_ABORT) {
                if (hdr.netsum.op != OP_SUM && hdr.netsum.op != OP_MAX && hdr.netsum.op != OP_COPY) {
                    meta.outcome = OUTCOME_UNSUPPORTED;
                } else if (meta.record.signed == 0) {
                    sign();
                    meta.record.signed = 1;
                } else if (hdr.netsum.gen_id != meta.record.gen_id || hdr.netsum.dest != meta.record.dest
                        || hdr.netsum.op != meta.record.op || hdr.netsum.lane != meta.record.lane) {
                    meta.outcome = OUTCOME_SIGNATURE;
                }
                if (meta.outcome == OUTCOME_PENDING && meta.grad_cnt != 0 && meta.record.data_cnt != 0
                    && (meta.grad_cnt != meta.record.grad_cnt || hdr.netsum.op == OP_COPY)) {
                    meta.outcome = OUTCOME_SIGNATURE;
                }
            }

            if (meta.outcome == OUTCOME_PENDING) {
                if (meta.record.signed == 0) {
                    sign();     // so far only members that gave up: their result still needs a generation
                }
                if (meta.grad_cnt != 0) {
                    take_payload();
                    if (meta.record.data_cnt == 0) {
                        meta.combine = COMBINE_STORE;
                    } else if (hdr.netsum.op == OP_SUM) {
                        meta.combine = COMBINE_SUM;
                    } else {
                        meta.combine = COMBINE_MAX;
                    }
                }
                count_in();
                if (hdr.netsum.status > meta.record.status) {
                    meta.record.status = hdr.netsum.status;
                }
                if (meta.record.seen == meta.all_sources) {
                    complete();
                    if (meta.combine == COMBINE_NOTHING) {
                        meta.combine = COMBINE_LOAD;    // an empty contribution was the last: the sum is in the slot
                    }
                }
                store_record();
            }

            // A result takes its payload out only in a packet that came in with room for it: BMv2's buffers grow by 512
            // bytes at most, and a switch that never sends more than it received amplifies nobody's forgeries. Without
            // room, the header tells the member that the result is there to be fetched, by its contribution padded.
            if (meta.record.status != STATUS_OK || meta.record.chunks > meta.room) {
                meta.header_only = 1;
                if (meta.combine == COMBINE_LOAD) {
                    meta.combine = COMBINE_NOTHING;
                }
            }
        }
    }
}
