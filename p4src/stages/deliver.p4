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
        bit<16> payload = (bit<16>)meta.record.chunks << 8;
        hdr.udp.length = payload + (UDP_BYTES + NETSUM_HEADER_BYTES);
        hdr.ipv4.total_length = payload + (IPV4_BYTES + UDP_BYTES + NETSUM_HEADER_BYTES);
        hdr.netsum.final = 0;
        hdr.netsum.degraded = meta.record.degraded;
        hdr.netsum.src_cnt = meta.record.src_cnt;
        hdr.netsum.gen_id = meta.record.gen_id;
        hdr.netsum.grad_cnt_high = meta.record.grad_cnt[15:12];
        hdr.netsum.grad_cnt = meta.record.grad_cnt[11:0];
        hdr.netsum.op = meta.record.op;
        hdr.netsum.lane = meta.record.lane;
        hdr.netsum.status = meta.record.status;
        hdr.netsum.dest = meta.record.dest;
        hdr.netsum.data_cnt = meta.record.data_cnt;
    }
    action multicast() {
        standard.mcast_grp = (bit<16>)hdr.netsum.job_id;
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
        if (meta.outcome == OUTCOME_COMPLETED || meta.outcome == OUTCOME_REPLAYED) {
            result();
            if (meta.header_only == 1) {
                header_only();
            }
            if (meta.outcome == OUTCOME_COMPLETED) {
                multicast();
            } else {
                unicast();
            }
        } else if (meta.outcome == OUTCOME_STALE) {
            answer(STATUS_STALE, 0);
        } else if (meta.outcome >= OUTCOME_UNKNOWN_JOB && meta.outcome <= OUTCOME_UNSUPPORTED) {
            answer(STATUS_REFUSED, meta.outcome[3:0]);
        } else {
            drop();
        }
    }
}
