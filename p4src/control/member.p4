// SPDX-License-Identifier: MIT
// Is the sender a member of the job, on this port, in this epoch? The controller hands out new UDP source ports in every epoch,
// so a packet of an earlier epoch does not get through. Where several members share a port, their addresses prove nothing: such
// a member has a key instead, new in every epoch, and may be at any address of the port; the latest gets its results. A packet
// that was copied from the wire and comes from elsewhere redirects them, which is a loss: the member's next packet mends it. The
// parent's packets are from SWITCH_SOURCE. A worker's own contribution with worker_cnt 0 is a pass: it answers, adds nothing, and
// says so (degraded). A child switch's partial may lack workers that passed, or that were evicted.

#define IS_NO_PARTIAL(h, workers) (h.hop == hop_t.DOWN \
    || h.worker_cnt > workers \
    || (workers == 1 && (h.worker_cnt == 0) != (h.degraded == 1)))

control Member(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    @id(MEMBER_COUNTER)
    direct_counter(CounterType.packets_and_bytes) member_traffic;

    @id(ACTION_SET_MEMBER)
    action set_member(bit<256> source, bit<16> workers, bit<16> udp_port) {
        member_traffic.count();
        meta.source = source;
        if (hdr.udp.src_port != udp_port) {
            meta.outcome = outcome_t.WRONG_PORT;
        } else if (hdr.netsum.key != 0 || IS_NO_PARTIAL(hdr.netsum, workers)) {
            meta.outcome = outcome_t.MALFORMED;
        }
    }
    @id(ACTION_SET_KEYED_MEMBER)
    action set_keyed_member(bit<256> source, bit<16> workers, bit<64> key) {
        member_traffic.count();
        meta.source = source;
        if (hdr.netsum.key != key) {
            meta.outcome = outcome_t.BAD_KEY;
        } else if (IS_NO_PARTIAL(hdr.netsum, workers)) {
            meta.outcome = outcome_t.MALFORMED;
        }
    }
    @id(ACTION_SET_PARENT)
    action set_parent(bit<16> udp_port) {
        member_traffic.count();
        meta.from = sender_t.PARENT;
        if (hdr.udp.src_port != udp_port) {
            meta.outcome = outcome_t.WRONG_PORT;
        } else if (hdr.netsum.key != 0 || hdr.netsum.hop != hop_t.DOWN || !STATUS_IS_KNOWN(hdr.netsum.status)) {
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
        actions = { set_member; set_keyed_member; set_parent; not_member; }
        const default_action = not_member();
        counters = member_traffic;
        size = 4096;
    }
    apply {
        if (meta.outcome == outcome_t.PENDING && meta.from != sender_t.CONTROLLER) {
            switch (member.apply().action_run) {
                set_keyed_member: {
                    if (meta.outcome == outcome_t.PENDING) {
                        address_register.write(hdr.netsum.job_id ++ hdr.netsum.src_id, ADDRESS_OF(hdr, meta));
                    }
                }
            }
        }
    }
}
