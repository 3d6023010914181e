// SPDX-License-Identifier: MIT
// Stragglers (Trio-ML, section 5: timer threads that age out blocks). BMv2 has no timers, so the controller sends a scan, a
// PacketOut, at least twice in every block_exp: it walks through the job's slots, a few in each pass, and closes what has
// waited long enough. So a straggler is detected between one and two block_exp after its block began, also when no host
// sends anything.
//
//   PacketOut -> pass: closes one block -> multicast: its result to the members, and the scan itself -> next pass
//                pass: nothing to close -> next pass               ... last pass -> PacketIn
//
// A scan has no room for payloads: its results are notices, and the members fetch them (see "Room" in block.p4). A leaf's
// partial does not fit either: the members are asked to send again, which brings it up.

// Where the pass looks, relative to the scan's first block.
#define POSITION(h) ((bit<32>)h.packet_out.slot)

#define SCAN_SLOT(i) \
    if (meta.outcome == OUTCOME_PENDING && POSITION(hdr) + i < SCAN_RANGE(meta)) { \
        select_slot(i); \
        load_record.apply(meta.record, meta.slot); \
        if (HAS_STATE(meta.record, STATE_OPEN) && RECORD_EPOCH(meta.record) == meta.epoch \
                && (ALL_IN(meta) || EXPIRED(meta, SCAN_NOW(meta)))) { \
            meta.outcome = OUTCOME_AGED; \
            hdr.packet_out.slot = hdr.packet_out.slot + (i + 1); \
        } \
    }

control AgingScan(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    LoadRecord()       load_record;
    StoreRecord()      store_record;
    CloseBlock()       close_block;
    CloseWithoutLate() close_without_late;
    LoadProgress()     load_progress;
    MarkStragglers()   mark_stragglers;

    action begin_pass() {
        SCAN_BASE(meta) = meta.slot - (hdr.netsum.block_id & (JOB_NUM_SLOTS(meta) - 1));
        meta.header_only = 1;
    }
    // Open blocks are less than a window behind the newest.
    action scan_window() {
        SCAN_FIRST(meta) = PROGRESS_NEWEST_BLOCK(meta.progress) + 1 - (bit<32>)AGING_WINDOW(meta);
        SCAN_RANGE(meta) = (bit<32>)AGING_WINDOW(meta);
    }
    action scan_all() {
        SCAN_FIRST(meta) = 0;
        SCAN_RANGE(meta) = JOB_NUM_SLOTS(meta);
    }
    // Relative to where the pass begins.
    action select_slot(bit<32> ahead) {
        meta.slot = SCAN_BASE(meta) + ((SCAN_FIRST(meta) + POSITION(hdr) + ahead) & (JOB_NUM_SLOTS(meta) - 1));
    }
    action set_closed_block() {
        hdr.netsum.block_id = RECORD_BLOCK_ID(meta.record);
        SCAN_CLOSED(meta) = SCAN_CLOSED(meta) + 1;
    }
    action skip_slots() {
        meta.outcome = OUTCOME_SCANNED;
        hdr.packet_out.slot = hdr.packet_out.slot + SCAN_SLOTS;
    }
    action end_scan() {
        meta.outcome = OUTCOME_SCANNED;
        SCAN_RANGE(meta) = 0;
    }

    apply {
        if (meta.outcome == OUTCOME_PENDING) {
            begin_pass();
            if (meta.aging != 0) {
                load_progress.apply(hdr, meta);
            }
            if (hdr.packet_out.slot == 0) {
                SCAN_NOW(meta) = standard_metadata.ingress_global_timestamp;
                if (meta.aging != 0) {
                    scan_window();
                } else {
                    scan_all();
                }
            }
            SCAN_SLOT(0) SCAN_SLOT(1) SCAN_SLOT(2) SCAN_SLOT(3) SCAN_SLOT(4) SCAN_SLOT(5) SCAN_SLOT(6) SCAN_SLOT(7)
            if (meta.outcome == OUTCOME_PENDING) {
                skip_slots();
            } else {
                if (ALL_IN(meta)) {
                    close_block.apply(meta);
                } else {
                    close_without_late.apply(meta);
                    mark_stragglers.apply(hdr, meta);
                }
                store_record.apply(meta);
                set_closed_block();
            }
        } else {
            end_scan();
        }
    }
}

// Egress: the scan's own copy goes round for the next pass, or back to the controller.
control NextScanPass(inout headers_t hdr, in metadata_t meta, in standard_metadata_t standard_metadata) {
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
        hdr.netsum.backoff = 0;
        hdr.ipv4.version_ihl_tos = hdr.ipv4.version_ihl_tos & ~ECN_CE;
        recirculate_preserving_field_list(SCAN_FIELDS);
    }
    action end() {
        hdr.packet_in.setValid();
        hdr.packet_in.kind = hdr.packet_out.kind;
        hdr.packet_in.slot = hdr.packet_out.slot;
        hdr.packet_in.cookie = hdr.packet_out.cookie;
        hdr.packet_in.closed = SCAN_CLOSED(meta);
        hdr.packet_out.setInvalid();
        hdr.ethernet.setInvalid();
        hdr.ipv4.setInvalid();
        hdr.udp.setInvalid();
        hdr.netsum.setInvalid();
    }

    apply {
        if ((bit<32>)hdr.packet_out.slot < SCAN_RANGE(meta)) {
            next_pass();
        } else {
            end();
        }
    }
}
