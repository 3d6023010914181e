// Is the sender a member of the job, on this port, in this epoch? The controller hands out the UDP source ports anew for
// every epoch, so a packet of an earlier one does not pass. A contribution that stands for fewer workers than the source has
// says so: it is degraded. A worker's own with src_cnt 0 is a pass: it answers, and adds nothing.

control Member(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    direct_counter(CounterType.packets_and_bytes) member_traffic;

    action member_here(bit<256> source, bit<8> workers, bit<16> udp_port) {
        meta.source = source;
        meta.workers = workers;
        meta.udp_port = udp_port;
        member_traffic.count();
    }
    action not_member() {
        meta.outcome = OUTCOME_NOT_MEMBER;
        member_traffic.count();
    }
    table member {
        key = {
            hdr.netsum.job_id:     exact @name("job_id");
            hdr.netsum.src_id:     exact @name("src_id");
            standard.ingress_port: exact @name("ingress_port");
        }
        actions = { member_here; not_member; }
        const default_action = not_member();
        counters = member_traffic;
        size = 4096;
    }
    apply {
        if (meta.outcome == OUTCOME_PENDING) {
            member.apply();
            if (meta.outcome == OUTCOME_PENDING) {
                if (hdr.udp.src_port != meta.udp_port) {
                    meta.outcome = OUTCOME_WRONG_PORT;
                } else if (hdr.netsum.src_cnt > meta.workers
                        || (hdr.netsum.src_cnt < meta.workers) != (hdr.netsum.degraded == 1)) {
                    meta.outcome = OUTCOME_MALFORMED;
                }
            }
        }
    }
}
