// The packet's fate is decided here and nowhere else, and every outcome is counted here.

control Deliver(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(OUTCOME_COUNTERS, CounterType.packets) outcomes;

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
        hdr.netsum.degraded = RECORD_DEGRADED(meta.record);
        hdr.netsum.firm = RECORD_FIRM(meta.record);
        hdr.netsum.src_cnt = RECORD_SRC_CNT(meta.record);
        hdr.netsum.gen_id = RECORD_GEN_ID(meta.record);
        hdr.netsum.grad_cnt_high = RECORD_GRAD_CNT(meta.record)[15:12];
        hdr.netsum.grad_cnt = RECORD_GRAD_CNT(meta.record)[11:0];
        hdr.netsum.op = RECORD_OP(meta.record);
        hdr.netsum.lane = RECORD_LANE(meta.record);
        hdr.netsum.status = RECORD_STATUS(meta.record);
        hdr.netsum.dest = RECORD_DEST(meta.record);
        hdr.netsum.data_cnt = RECORD_DATA_CNT(meta.record);
    }
    action partial() {
        hdr.netsum.age_op = AGE_AGED;
    }
    action multicast(bit<16> groups) {
        standard.mcast_grp = groups + (bit<16>)hdr.netsum.job_id;
    }
    action unicast() {
        standard.egress_spec = standard.ingress_port;
        meta.replica = (bit<16>)hdr.netsum.src_id;
    }
    // Back to whoever sent it, header only: never more bytes than came.
    action answer(bit<4> status, bit<4> reason) {
        standard.egress_spec = standard.ingress_port;
        hdr.ethernet.dst_addr = hdr.ethernet.src_addr;
        hdr.ethernet.src_addr = meta.aggregator_mac;
        bit<32> asker = hdr.ipv4.src_addr;
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.ipv4.dst_addr = asker;
        hdr.ipv4.ttl = 64;
        hdr.udp.dst_port = hdr.udp.src_port;
        hdr.udp.src_port = NETSUM_PORT;
        hdr.udp.checksum = 0;
        hdr.netsum.age_op = reason;
        hdr.netsum.src_cnt = 0;
        hdr.netsum.data_cnt = 0;
        hdr.netsum.status = status;
        header_only();
    }
    action drop() {
        mark_to_drop(standard);
    }

    apply {
        outcomes.count((bit<32>)(hdr.netsum.job_id ++ meta.outcome));
        if (meta.outcome == OUTCOME_ACCEPTED) {
            drop();
        } else if (meta.outcome == OUTCOME_COMPLETED || meta.outcome == OUTCOME_REPLAYED
                || meta.outcome == OUTCOME_AGED) {
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
        } else if (meta.outcome == OUTCOME_STALE) {
            answer(STATUS_STALE, 0);
        } else if (meta.outcome == OUTCOME_SWEPT) {
            standard.egress_spec = CPU_PORT;
        } else if (meta.outcome >= OUTCOME_UNKNOWN_JOB && meta.outcome <= OUTCOME_UNSUPPORTED) {
            answer(STATUS_REFUSED, meta.outcome[3:0]);
        } else {
            drop();
        }
    }
}
