// Stragglers (Trio-ML, section 5: timer threads that age out blocks). BMv2 has no timers, so the controller sends a sweep, a
// PacketOut, at least twice in every block_exp: it walks through the job's slots, a few in each pass, and closes what has
// waited long enough. So a straggler is detected between one and two block_exp after its block began, also when no host
// sends anything.
//
//   PacketOut -> pass: closes one block -> multicast: its result to the members, and the sweep itself -> next pass
//                pass: nothing to close -> next pass               ... last pass -> PacketIn
//
// A sweep has no room for payloads: its results are notices, and the members fetch them (see "Room" in block.p4). A leaf's
// partial does not fit either: the members are asked to send again, which brings it up.

// Where the pass looks, relative to the sweep's first block.
#define POSITION(h) ((bit<32>)h.packet_out.slot)

#define LOOK(i) \
    if (meta.outcome == OUTCOME_PENDING && POSITION(hdr) + i < SWEEP_RANGE(meta)) { \
        look_at(i); \
        load_record.apply(meta.record, meta.slot); \
        if (HAS_STATE(meta.record, STATE_OPEN) && RECORD_EPOCH(meta.record) == meta.epoch \
                && (ALL_IN(meta) || EXPIRED(meta, SWEEP_NOW(meta)))) { \
            meta.outcome = OUTCOME_AGED; \
            hdr.packet_out.slot = hdr.packet_out.slot + (i + 1); \
        } \
    }

control Sweep(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    LoadRecord()       load_record;
    StoreRecord()      store_record;
    CloseBlock()       close_block;
    CloseWithoutLate() close_without_late;
    LoadFrontier()     load_frontier;
    SuspectMissing()   suspect_missing;

    action begin_pass() {
        SWEEP_BASE(meta) = meta.slot - (hdr.netsum.block_id & (JOB_LAP(meta) - 1));
        meta.header_only = 1;
    }
    // Open blocks are less than a window behind the newest.
    action look_at_window() {
        SWEEP_FIRST(meta) = FRONTIER_NEWEST(meta.frontier) + 1 - (bit<32>)AGEING_WINDOW(meta);
        SWEEP_RANGE(meta) = (bit<32>)AGEING_WINDOW(meta);
    }
    action look_at_all() {
        SWEEP_FIRST(meta) = 0;
        SWEEP_RANGE(meta) = JOB_LAP(meta);
    }
    // Relative to where the pass begins.
    action look_at(bit<32> ahead) {
        meta.slot = SWEEP_BASE(meta) + ((SWEEP_FIRST(meta) + POSITION(hdr) + ahead) & (JOB_LAP(meta) - 1));
    }
    action tell() {
        hdr.netsum.block_id = RECORD_BLOCK_ID(meta.record);
        SWEEP_CLOSED(meta) = SWEEP_CLOSED(meta) + 1;
    }
    action go_on() {
        meta.outcome = OUTCOME_SWEPT;
        hdr.packet_out.slot = hdr.packet_out.slot + SWEEP_SLOTS;
    }
    action give_up() {
        meta.outcome = OUTCOME_SWEPT;
        SWEEP_RANGE(meta) = 0;
    }

    apply {
        if (meta.outcome == OUTCOME_PENDING) {
            begin_pass();
            if (meta.ageing != 0) {
                load_frontier.apply(hdr, meta);
            }
            if (hdr.packet_out.slot == 0) {
                SWEEP_NOW(meta) = standard.ingress_global_timestamp;
                if (meta.ageing != 0) {
                    look_at_window();
                } else {
                    look_at_all();
                }
            }
            LOOK(0) LOOK(1) LOOK(2) LOOK(3) LOOK(4) LOOK(5) LOOK(6) LOOK(7)
            if (meta.outcome == OUTCOME_PENDING) {
                go_on();
            } else {
                if (ALL_IN(meta)) {
                    close_block.apply(meta);
                } else {
                    close_without_late.apply(meta);
                    suspect_missing.apply(hdr, meta);
                }
                store_record.apply(meta);
                tell();
            }
        } else {
            give_up();
        }
    }
}

// Egress: the sweep's own copy goes round for the next pass, or back to the controller.
control SweepOn(inout headers_t hdr, in metadata_t meta, in standard_metadata_t standard) {
    action next_pass() {
        // Undo what the result that it carried changed.
        hdr.netsum.block_id = 0;
        hdr.netsum.age_op = 0;
        hdr.netsum.degraded = 0;
        hdr.netsum.status = STATUS_OK;
        hdr.netsum.src_cnt = 1;
        hdr.netsum.data_cnt = 0;
        hdr.netsum.grad_cnt_high = 0;
        hdr.netsum.grad_cnt = 0;
        hdr.netsum.give_way = 0;
        hdr.ipv4.version_ihl_tos = hdr.ipv4.version_ihl_tos & ~ECN_CE;
        recirculate_preserving_field_list(SWEEP_FIELDS);
    }
    action end() {
        hdr.packet_in.setValid();
        hdr.packet_in.kind = hdr.packet_out.kind;
        hdr.packet_in.slot = hdr.packet_out.slot;
        hdr.packet_in.cookie = hdr.packet_out.cookie;
        hdr.packet_in.closed = SWEEP_CLOSED(meta);
        hdr.packet_out.setInvalid();
        hdr.ethernet.setInvalid();
        hdr.ipv4.setInvalid();
        hdr.udp.setInvalid();
        hdr.netsum.setInvalid();
    }

    apply {
        if ((bit<32>)hdr.packet_out.slot < SWEEP_RANGE(meta)) {
            next_pass();
        } else {
            end();
        }
    }
}
