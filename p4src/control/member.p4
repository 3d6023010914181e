// SPDX-License-Identifier: MIT
// Is the sender a member of the job, on this port, in this epoch? The controller hands out new UDP source ports in every epoch,
// so a packet of an earlier epoch does not get through. The parent's packets are from SWITCH_SOURCE. A worker's own
// contribution with worker_cnt 0 is a pass: it answers, adds nothing, and says so (degraded). A child switch's partial may lack
// workers that passed, or that were evicted.

control Member(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    @id(MEMBER_COUNTER)
    direct_counter(CounterType.packets_and_bytes) member_traffic;

    @id(ACTION_SET_MEMBER)
    action set_member(bit<256> source, bit<16> workers, bit<16> udp_port) {
        member_traffic.count();
        meta.source = source;
        if (hdr.udp.src_port != udp_port) {
            meta.outcome = outcome_t.WRONG_PORT;
        } else if (hdr.netsum.hop == hop_t.DOWN
                || hdr.netsum.worker_cnt > workers
                || (workers == 1 && (hdr.netsum.worker_cnt == 0) != (hdr.netsum.degraded == 1))) {
            meta.outcome = outcome_t.MALFORMED;
        }
    }
    @id(ACTION_SET_PARENT)
    action set_parent(bit<16> udp_port) {
        member_traffic.count();
        meta.from = sender_t.PARENT;
        if (hdr.udp.src_port != udp_port) {
            meta.outcome = outcome_t.WRONG_PORT;
        } else if (hdr.netsum.hop != hop_t.DOWN || !STATUS_IS_KNOWN(hdr.netsum.status)) {
            meta.outcome = outcome_t.MALFORMED;
        }
    }
    @id(ACTION_NOT_MEMBER)
    action not_member() {
        member_traffic.count();
        meta.outcome = outcome_t.NOT_MEMBER;
    }
    @id(MEMBER_TABLE)
    @entry_restriction("ingress_port != 510")
    table member {
        key = {
            hdr.netsum.job_id:     exact @name("job_id") @refers_to("job", "job_id");
            hdr.netsum.src_id:     exact @name("src_id");
            standard_metadata.ingress_port: exact @name("ingress_port");
        }
        actions = { set_member; set_parent; not_member; }
        const default_action = not_member();
        counters = member_traffic;
        size = 4096;
    }
    apply {
        if (meta.outcome == outcome_t.PENDING && meta.from != sender_t.CONTROLLER) {
            member.apply();
        }
    }
}
