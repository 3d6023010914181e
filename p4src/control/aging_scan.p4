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
    if (meta.outcome == outcome_t.PENDING && POSITION(hdr) + i < meta.scan_range) { \
        select_slot(i); \
        load_record.apply(meta.record, meta.slot); \
        if (HAS_STATE(meta.record, state_t.OPEN) && RECORD_EPOCH(meta.record) == meta.epoch \
                && (ALL_IN(meta) || EXPIRED(meta, meta.scan_now))) { \
            meta.outcome = outcome_t.AGED; \
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
        meta.scan_base = meta.slot - (hdr.netsum.block_id & (meta.num_slots - 1));
        meta.header_only = 1;
    }
    // Open blocks are less than a window behind the newest.
    action scan_window() {
        meta.scan_first = PROGRESS_NEWEST_BLOCK(meta.progress) + 1 - (bit<32>)meta.window;
        meta.scan_range = (bit<32>)meta.window;
    }
    action scan_all() {
        meta.scan_first = 0;
        meta.scan_range = meta.num_slots;
    }
    // Relative to where the pass begins.
    action select_slot(bit<32> ahead) {
        meta.slot = meta.scan_base + ((meta.scan_first + POSITION(hdr) + ahead) & (meta.num_slots - 1));
    }
    action set_closed_block() {
        hdr.netsum.block_id = RECORD_BLOCK_ID(meta.record);
        meta.scan_closed = meta.scan_closed + 1;
    }
    action skip_slots() {
        meta.outcome = outcome_t.SCANNED;
        hdr.packet_out.slot = hdr.packet_out.slot + SCAN_SLOTS;
    }
    action end_scan() {
        meta.outcome = outcome_t.SCANNED;
        meta.scan_range = 0;
    }

    apply {
        if (meta.outcome == outcome_t.PENDING) {
            begin_pass();
            if (meta.block_exp != 0) {
                load_progress.apply(hdr, meta);
            }
            if (hdr.packet_out.slot == 0) {
                meta.scan_now = standard_metadata.ingress_global_timestamp;
                if (meta.block_exp != 0) {
                    scan_window();
                } else {
                    scan_all();
                }
            }
            SCAN_SLOT(0) SCAN_SLOT(1) SCAN_SLOT(2) SCAN_SLOT(3) SCAN_SLOT(4) SCAN_SLOT(5) SCAN_SLOT(6) SCAN_SLOT(7)
            if (meta.outcome == outcome_t.PENDING) {
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
        hdr.netsum.age_op = age_op_t.NORMAL;
        hdr.netsum.degraded = 0;
        hdr.netsum.status = status_t.OK;
        hdr.netsum.src_cnt = 1;
        hdr.netsum.worker_cnt = 1;
        hdr.netsum.data_cnt = 0;
        hdr.netsum.grad_cnt = 0;
        hdr.netsum.lane_cnt = 0;
        hdr.netsum.backoff = 0;
        hdr.ipv4.version_ihl_tos = hdr.ipv4.version_ihl_tos & ~ECN_CE;
        recirculate_preserving_field_list(SCAN_FIELDS);
    }
    action end() {
        hdr.packet_in.setValid();
        hdr.packet_in.kind = hdr.packet_out.kind;
        hdr.packet_in.slot = hdr.packet_out.slot;
        hdr.packet_in.cookie = hdr.packet_out.cookie;
        hdr.packet_in.closed = meta.scan_closed;
        hdr.packet_out.setInvalid();
        hdr.ethernet.setInvalid();
        hdr.ipv4.setInvalid();
        hdr.udp.setInvalid();
        hdr.netsum.setInvalid();
    }

    apply {
        if ((bit<32>)hdr.packet_out.slot < meta.scan_range) {
            next_pass();
        } else {
            end();
        }
    }
}
