// The packet's fate is decided here and nowhere else, and every outcome is counted here.

control Deliver(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(OUTCOME_COUNTERS, CounterType.packets) outcomes;
    Priority() priority;
    Uplink()   uplink;

    action header_only() {
        hdr.ipv4.total_length = IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES;
        hdr.udp.length = UDP_BYTES + NETSUM_HEADER_BYTES;
        hdr.netsum.grad_cnt_high = 0;
        hdr.netsum.grad_cnt = 0;
        hdr.chunks16.setInvalid();
        hdr.chunks8.setInvalid();
        hdr.chunks4.setInvalid();
        hdr.chunks2.setInvalid();
        hdr.chunks1.setInvalid();
    }
    // From the switch's address; rewrite.p4 fills in the receiver's.
    action result() {
        hdr.ethernet.src_addr = meta.aggregator_mac;
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.ipv4.ttl = 64;
        hdr.udp.src_port = NETSUM_PORT;
        hdr.udp.checksum = 0;
        bit<16> payload = (bit<16>)RECORD_CHUNKS(meta.record) << 8;
        hdr.udp.length = payload + (UDP_BYTES + NETSUM_HEADER_BYTES);
        hdr.ipv4.total_length = payload + (IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES);
        hdr.netsum.final = 0;
        hdr.netsum.hop = HOP_HOST;
        hdr.netsum.age_op = AGE_NORMAL;
        hdr.netsum.degraded = RECORD_DEGRADED(meta.record);
        hdr.netsum.firm = RECORD_FIRM(meta.record);
        hdr.netsum.src_cnt = RECORD_SRC_CNT(meta.record);
        hdr.netsum.gen_id = RECORD_GEN_ID(meta.record);
        hdr.netsum.grad_cnt_high = RECORD_GRAD_CNT(meta.record)[13:12];
        hdr.netsum.grad_cnt = RECORD_GRAD_CNT(meta.record)[11:0];
        hdr.netsum.op = RECORD_OP(meta.record);
        hdr.netsum.lane = RECORD_LANE(meta.record);
        hdr.netsum.status = RECORD_STATUS(meta.record);
        hdr.netsum.dest = RECORD_DEST(meta.record);
        hdr.netsum.give_way = hdr.netsum.give_way | meta.give_way;
        hdr.netsum.data_cnt = RECORD_DATA_CNT(meta.record);
    }
    action partial() {
        hdr.netsum.age_op = AGE_AGED;
    }
    action multicast(bit<16> groups) {
        standard.mcast_grp = groups + (bit<16>)hdr.netsum.job_id;
        meta.copies = COPY_TO_ALL;
    }
    action unicast() {
        standard.egress_spec = standard.ingress_port;
        meta.replica = (bit<16>)hdr.netsum.src_id;
        meta.copies = COPY_TO_ONE;
    }
    // Back to whoever sent it.
    action to_asker() {
        standard.egress_spec = standard.ingress_port;
        hdr.ethernet.dst_addr = hdr.ethernet.src_addr;
        bit<32> asker = hdr.ipv4.src_addr;
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.ipv4.dst_addr = asker;
    }
    // A host's answer comes from the port that it sent to; a switch knows one by its hop, and by the port that is its own.
    action ports_of_host() {
        hdr.udp.dst_port = hdr.udp.src_port;
        hdr.udp.src_port = NETSUM_PORT;
    }
    action ports_of_switch() {
        hdr.netsum.hop = HOP_DOWN;
    }
    // To all children; rewrite.p4 fills in their addresses.
    action to_children() {
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.udp.src_port = NETSUM_PORT;
        hdr.netsum.hop = HOP_HOST;
        hdr.netsum.final = 0;
        hdr.netsum.gen_id = RECORD_GEN_ID(meta.record);
    }
    // Header only: never more bytes than came.
    action answer(bit<4> status, bit<4> reason) {
        hdr.ethernet.src_addr = meta.aggregator_mac;
        hdr.ipv4.ttl = 64;
        hdr.udp.checksum = 0;
        hdr.netsum.age_op = reason;
        hdr.netsum.src_cnt = 0;
        hdr.netsum.data_cnt = 0;
        hdr.netsum.status = status;
        header_only();
    }
    // AGAIN says how much room is needed.
    action how_much() {
        hdr.netsum.grad_cnt_high = RECORD_GRAD_CNT(meta.record)[13:12];
        hdr.netsum.grad_cnt = RECORD_GRAD_CNT(meta.record)[11:0];
        hdr.netsum.lane = RECORD_LANE(meta.record);
    }
    action drop() {
        mark_to_drop(standard);
    }

    apply {
        outcomes.count((bit<32>)(hdr.netsum.job_id ++ meta.outcome));
        if (meta.outcome == OUTCOME_ACCEPTED) {
            drop();
        } else if ((RECORD_STATE(meta.record) == STATE_SENT && (meta.outcome == OUTCOME_COMPLETED
                || meta.outcome == OUTCOME_AGED || meta.outcome == OUTCOME_RESENT))
                || (meta.outcome == OUTCOME_ASKED && meta.role == ROLE_LEAF)) {
            // A leaf's partial: up if there is room for it; else whoever can bring it up with room is asked to. Or its question.
            if (meta.priority != 0) {
                priority.apply(meta, standard);
            }
            if (hdr.packet_out.isValid()) {
                answer(STATUS_AGAIN, 0);
                how_much();
                to_children();
                multicast(SWEEP_GROUPS);
            } else if (meta.header_only == 1 && RECORD_STATUS(meta.record) == STATUS_OK && meta.outcome != OUTCOME_ASKED) {
                to_asker();
                answer(STATUS_AGAIN, 0);
                how_much();
                if (hdr.netsum.hop == HOP_UP) {
                    ports_of_switch();
                } else {
                    ports_of_host();
                }
            } else {
                result();
                uplink.apply(hdr, meta, standard);
            }
        } else if (meta.outcome == OUTCOME_COMPLETED || meta.outcome == OUTCOME_AGED
                || meta.outcome == OUTCOME_REPLAYED || meta.outcome == OUTCOME_RETURNED) {
            if (meta.priority != 0) {
                priority.apply(meta, standard);
            }
            result();
            if (RECORD_DEGRADED(meta.record) == 1) {
                partial();
            }
            if (meta.header_only == 1) {
                header_only();
            }
            if (meta.outcome == OUTCOME_REPLAYED) {
                unicast();
            } else if (hdr.packet_out.isValid()) {
                multicast(SWEEP_GROUPS);
            } else {
                multicast(0);
            }
        } else if (meta.outcome == OUTCOME_SWEPT) {
            standard.egress_spec = CPU_PORT;
        } else if (meta.outcome == OUTCOME_TOLD) {
            if (hdr.netsum.status == STATUS_STALE) {
                answer(STATUS_STALE, 0);
            } else if (hdr.netsum.status == STATUS_REFUSED) {
                answer(STATUS_REFUSED, hdr.netsum.age_op);
            } else {
                answer(STATUS_AGAIN, 0);
                how_much();
            }
            to_children();
            multicast(0);
        } else if (hdr.netsum.hop == HOP_DOWN || meta.outcome > OUTCOME_UNSUPPORTED
                || (meta.outcome < OUTCOME_UNKNOWN_JOB && meta.outcome != OUTCOME_STALE)) {
            drop();
        } else {
            to_asker();
            if (meta.outcome == OUTCOME_STALE) {
                answer(STATUS_STALE, 0);
            } else {
                answer(STATUS_REFUSED, meta.outcome[3:0]);
            }
            if (hdr.netsum.hop == HOP_UP) {
                ports_of_switch();
            } else {
                ports_of_host();
            }
        }
    }
}
