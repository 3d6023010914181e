// Who gets what: the packet's fate is decided here and nowhere else, and every outcome is counted here. What a reply says is
// written by reply.p4.

#define LACKS_ROOM(m) (m.header_only == 1 && HAS_STATUS(m.record, STATUS_OK) && m.outcome != OUTCOME_ASKED \
    && !HAS_OP(m.record, OP_COPY))

// Whether a contribution brought the payload of a COPY, which does not wait for the others.
#define BROUGHT_COPY(h, m) (h.op == OP_COPY && m.combine == COMBINE_STORE && HAS_STATUS(m.record, STATUS_OK))

control Deliver(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @id(OUTCOMES_COUNTER)
    counter<bit<32>>(OUTCOME_COUNTERS, CounterType.packets) outcomes;

    action find_counter() {     // apart, or p4c would add a variable
        meta.slot = (bit<32>)(hdr.netsum.job_id ++ meta.outcome);
    }
    action count() {
        outcomes.count(meta.slot);
    }

    // What it becomes. Each counts.
    action nothing() {
        count();
        mark_to_drop(standard);
    }
    action result() {           // to the source that sent the packet
        count();
        meta.reply = REPLY_RESULT;
        standard.egress_spec = standard.ingress_port;
        standard.egress_rid = (bit<16>)hdr.netsum.src_id;    // as on a copy: rewrite.p4 looks up whose it is
    }
    action result_to_all() {    // all sources that the job has here, hosts and child switches
        count();
        meta.reply = REPLY_RESULT_TO_ALL;
        standard.mcast_grp = (bit<16>)hdr.netsum.job_id;
    }
    action early() {            // a payload, to the same
        count();
        meta.reply = REPLY_EARLY;
        standard.mcast_grp = (bit<16>)hdr.netsum.job_id;
    }
    action result_of_sweep() {    // the same, and the sweep goes on
        count();
        meta.reply = REPLY_RESULT_TO_ALL;
        standard.mcast_grp = SWEEP_GROUPS + (bit<16>)hdr.netsum.job_id;
    }
    action partial() {          // to the parent: uplink.p4 knows the way
        count();
        meta.reply = REPLY_PARTIAL;
    }
    action say(bit<4> status, bit<4> reason) {
        count();
        hdr.netsum.status = status;
        hdr.netsum.age_op = reason;
    }
    action answer(bit<4> status, bit<4> reason) {    // to whoever sent the packet, even a stranger
        meta.reply = REPLY_ANSWER;
        standard.egress_spec = standard.ingress_port;
        say(status, reason);
    }
    action answer_to_all(bit<4> status, bit<4> reason) {
        meta.reply = REPLY_ANSWER_TO_ALL;
        standard.mcast_grp = (bit<16>)hdr.netsum.job_id;
        say(status, reason);
    }
    action answer_of_sweep(bit<4> status, bit<4> reason) {
        meta.reply = REPLY_ANSWER_TO_ALL;
        standard.mcast_grp = SWEEP_GROUPS + (bit<16>)hdr.netsum.job_id;
        say(status, reason);
    }
    action controller() {
        count();
        standard.egress_spec = CPU_PORT;
    }

    apply {
        find_counter();
        if (meta.outcome == OUTCOME_ACCEPTED) {
            if (!BROUGHT_COPY(hdr.netsum, meta))                { nothing(); }
            else if (JOB_ROLE(meta) == ROLE_LEAF)               { partial(); }
            else                                                { early(); }
        }

        // A leaf's partial goes up in a packet that has room for it; else whoever can bring such a packet is asked to, unless
        // it is a COPY, whose payload has gone ahead. Or its question goes up, which has no payload.
        else if (JOB_ROLE(meta) == ROLE_LEAF && OUTCOME_GOES_UP(meta.outcome)) {
            if (meta.from == FROM_CONTROLLER)                   { answer_of_sweep(STATUS_AGAIN, 0); }
            else if (LACKS_ROOM(meta))                          { answer(STATUS_AGAIN, 0); }
            else                                                { partial(); }
        }

        else if (OUTCOME_IS_CLOSING(meta.outcome)) {
            if (meta.from == FROM_CONTROLLER)                   { result_of_sweep(); }
            else                                                { result_to_all(); }
        }
        else if (meta.outcome == OUTCOME_REPLAYED)              { result(); }
        else if (meta.outcome == OUTCOME_RETURNED)              { result_to_all(); }
        else if (meta.outcome == OUTCOME_SWEPT)                 { controller(); }

        // Up to the root, then down to all that want it.
        else if (meta.outcome == OUTCOME_BROUGHT) {
            if (!HAS_STATUS(meta.record, STATUS_OK))            { nothing(); }
            else if (JOB_ROLE(meta) == ROLE_LEAF && meta.from == FROM_MEMBER) { partial(); }
            else                                                { early(); }
        }

        // What the parent says about a block is told to all below. AGAIN stands for a notice, too.
        else if (meta.outcome == OUTCOME_TOLD) {
            if (hdr.netsum.status == STATUS_STALE)              { answer_to_all(STATUS_STALE, 0); }
            else if (hdr.netsum.status == STATUS_REFUSED)       { answer_to_all(STATUS_REFUSED, hdr.netsum.age_op); }
            else                                                { answer_to_all(STATUS_AGAIN, 0); }
        }

        else if (hdr.netsum.hop == HOP_DOWN)                    { nothing(); }    // a parent is never answered
        else if (meta.outcome == OUTCOME_STALE)                 { answer(STATUS_STALE, 0); }
        else if (meta.outcome == OUTCOME_LACKING)               { answer(STATUS_AGAIN, 0); }
        else if (OUTCOME_IS_REFUSAL(meta.outcome))              { answer(STATUS_REFUSED, REASON(meta.outcome)); }
        else                                                    { nothing(); }
    }
}
