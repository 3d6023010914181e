// Who gets what: the packet's fate is decided here and nowhere else, and every outcome is counted here. What a reply says is
// written by reply.p4.

#define LACKS_ROOM(m) (m.header_only == 1 && HAS_STATUS(m.record, STATUS_OK) && m.outcome != OUTCOME_ASKED)

control Deliver(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @id(OUTCOMES_COUNTER)
    counter<bit<13>>(OUTCOME_COUNTERS, CounterType.packets) outcomes;

    // Who gets it.
    action nobody() {
        mark_to_drop(standard);
    }
    action sender() {           // whoever sent the packet, even a stranger
        standard.egress_spec = standard.ingress_port;
    }
    action source() {           // the source that sent the packet
        standard.egress_spec = standard.ingress_port;
        meta.replica = (bit<16>)hdr.netsum.src_id;
        meta.copies = COPY_TO_ONE;
    }
    action sources() {          // all that the job has here, hosts and child switches
        standard.mcast_grp = (bit<16>)hdr.netsum.job_id;
        meta.copies = COPY_TO_ALL;
    }
    action sources_and_sweep() {
        standard.mcast_grp = SWEEP_GROUPS + (bit<16>)hdr.netsum.job_id;
        meta.copies = COPY_TO_ALL;
    }
    action controller() {
        standard.egress_spec = CPU_PORT;
    }

    // What they get.
    action result() {
        meta.reply = REPLY_RESULT;
    }
    action partial() {          // to the parent: uplink.p4 knows the way
        meta.reply = REPLY_PARTIAL;
    }
    action answer(bit<4> status, bit<4> reason) {
        meta.reply = REPLY_ANSWER;
        hdr.netsum.status = status;
        hdr.netsum.age_op = reason;
    }

    apply {
        outcomes.count(hdr.netsum.job_id ++ meta.outcome);

        if (meta.outcome == OUTCOME_ACCEPTED)                   { nobody(); }

        // A leaf's partial goes up in a packet that has room for it; else whoever can bring such a packet is asked to.
        // Or its question goes up, which has no payload.
        else if (meta.role == ROLE_LEAF && OUTCOME_GOES_UP(meta.outcome)) {
            if (meta.from == FROM_CONTROLLER)                   { sources_and_sweep(); answer(STATUS_AGAIN, 0); }
            else if (LACKS_ROOM(meta))                          { sender(); answer(STATUS_AGAIN, 0); }
            else                                                { partial(); }
        }

        else if (meta.outcome == OUTCOME_REPLAYED)              { source(); result(); }
        else if (meta.outcome == OUTCOME_RETURNED)              { sources(); result(); }
        else if (OUTCOME_IS_CLOSING(meta.outcome)) {
            if (meta.from == FROM_CONTROLLER)                   { sources_and_sweep(); result(); }
            else                                                { sources(); result(); }
        }
        else if (meta.outcome == OUTCOME_SWEPT)                 { controller(); }

        // What the parent says about a block is told to all below. AGAIN stands for a notice, too.
        else if (meta.outcome == OUTCOME_TOLD) {
            if (hdr.netsum.status == STATUS_STALE)              { sources(); answer(STATUS_STALE, 0); }
            else if (hdr.netsum.status == STATUS_REFUSED)       { sources(); answer(STATUS_REFUSED, hdr.netsum.age_op); }
            else                                                { sources(); answer(STATUS_AGAIN, 0); }
        }

        else if (hdr.netsum.hop == HOP_DOWN)                    { nobody(); }    // a parent is never answered
        else if (meta.outcome == OUTCOME_STALE)                 { sender(); answer(STATUS_STALE, 0); }
        else if (OUTCOME_IS_REFUSAL(meta.outcome))              { sender(); answer(STATUS_REFUSED, REASON(meta.outcome)); }
        else                                                    { nobody(); }
    }
}
