// SPDX-License-Identifier: MIT
// Who gets what: the packet's fate is decided here and nowhere else, and every outcome is counted here. What a reply says is
// written by reply.p4.

#define LACKS_CAPACITY(m) (m.header_only == 1 && HAS_STATUS(m.record, STATUS_OK) && m.outcome != OUTCOME_QUERIED_PARENT \
    && !HAS_OP(m.record, OP_COPY))

// Whether a contribution brought the payload of a COPY, which does not wait for the others.
#define BROUGHT_COPY(h, m) (h.op == OP_COPY && m.combine == COMBINE_STORE && HAS_STATUS(m.record, STATUS_OK))

control Deliver(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @id(OUTCOMES_COUNTER)
    counter<bit<32>>(OUTCOME_COUNTERS, CounterType.packets) outcomes;

    action find_counter() {     // apart, or p4c would add a variable
        meta.slot = (bit<32>)(hdr.netsum.job_id ++ meta.outcome);
    }
    action count() {
        outcomes.count(meta.slot);
    }

    // What it becomes. Each counts.
    action drop() {
        count();
        mark_to_drop(standard_metadata);
    }
    action result() {           // to the source that sent the packet
        count();
        meta.reply = REPLY_RESULT;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
        standard_metadata.egress_rid = (bit<16>)hdr.netsum.src_id;    // as on a copy: rewrite.p4 looks up whose it is
    }
    action result_to_all() {    // all sources that the job has here, hosts and child switches
        count();
        meta.reply = REPLY_RESULT_TO_ALL;
        standard_metadata.mcast_grp = (bit<16>)hdr.netsum.job_id;
    }
    action early() {            // a payload, to the same
        count();
        meta.reply = REPLY_EARLY;
        standard_metadata.mcast_grp = (bit<16>)hdr.netsum.job_id;
    }
    action result_of_scan() {    // the same, and the scan goes on
        count();
        meta.reply = REPLY_RESULT_TO_ALL;
        standard_metadata.mcast_grp = SCAN_GROUPS + (bit<16>)hdr.netsum.job_id;
    }
    action partial() {          // to the parent: uplink.p4 knows the way
        count();
        meta.reply = REPLY_PARTIAL;
    }
    action set_status(bit<4> status, bit<4> reason) {
        count();
        hdr.netsum.status = status;
        hdr.netsum.age_op = reason;
    }
    action answer(bit<4> status, bit<4> reason) {    // to the sender of the packet, member or not
        meta.reply = REPLY_ANSWER;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
        set_status(status, reason);
    }
    action answer_to_all(bit<4> status, bit<4> reason) {
        meta.reply = REPLY_ANSWER_TO_ALL;
        standard_metadata.mcast_grp = (bit<16>)hdr.netsum.job_id;
        set_status(status, reason);
    }
    action answer_of_scan(bit<4> status, bit<4> reason) {
        meta.reply = REPLY_ANSWER_TO_ALL;
        standard_metadata.mcast_grp = SCAN_GROUPS + (bit<16>)hdr.netsum.job_id;
        set_status(status, reason);
    }
    action controller() {
        count();
        standard_metadata.egress_spec = CPU_PORT;
    }

    apply {
        find_counter();
        if (meta.outcome == OUTCOME_ACCEPTED) {
            if (!BROUGHT_COPY(hdr.netsum, meta))                { drop(); }
            else if (JOB_ROLE(meta) == ROLE_LEAF)               { partial(); }
            else                                                { early(); }
        }

        // A leaf's partial goes up in a packet that has room for it; else a source that can bring such a packet is asked to, unless
        // it is a COPY, whose payload has gone ahead. Or its question goes up, which has no payload.
        else if (JOB_ROLE(meta) == ROLE_LEAF && OUTCOME_GOES_UP(meta.outcome)) {
            if (meta.from == FROM_CONTROLLER)                   { answer_of_scan(STATUS_AGAIN, 0); }
            else if (LACKS_CAPACITY(meta))                          { answer(STATUS_AGAIN, 0); }
            else                                                { partial(); }
        }

        else if (OUTCOME_IS_CLOSING(meta.outcome)) {
            if (meta.from == FROM_CONTROLLER)                   { result_of_scan(); }
            else                                                { result_to_all(); }
        }
        else if (meta.outcome == OUTCOME_REPLAYED)              { result(); }
        else if (meta.outcome == OUTCOME_PARENT_RESULT)              { result_to_all(); }
        else if (meta.outcome == OUTCOME_SCANNED)                 { controller(); }

        // Up to the root, then down to all that want it.
        else if (meta.outcome == OUTCOME_EARLY_PAYLOAD) {
            if (!HAS_STATUS(meta.record, STATUS_OK))            { drop(); }
            else if (JOB_ROLE(meta) == ROLE_LEAF && meta.from == FROM_MEMBER) { partial(); }
            else                                                { early(); }
        }

        // What the parent says about a block is told to all below. AGAIN stands for a notice, too.
        else if (meta.outcome == OUTCOME_PARENT_STATUS) {
            if (hdr.netsum.status == STATUS_STALE)              { answer_to_all(STATUS_STALE, 0); }
            else if (hdr.netsum.status == STATUS_REFUSED)       { answer_to_all(STATUS_REFUSED, hdr.netsum.age_op); }
            else                                                { answer_to_all(STATUS_AGAIN, 0); }
        }

        else if (hdr.netsum.hop == HOP_DOWN)                    { drop(); }    // a parent is never answered
        else if (meta.outcome == OUTCOME_STALE)                 { answer(STATUS_STALE, 0); }
        else if (meta.outcome == OUTCOME_PAYLOAD_MISSING)               { answer(STATUS_AGAIN, 0); }
        else if (OUTCOME_IS_REFUSAL(meta.outcome))              { answer(STATUS_REFUSED, REASON(meta.outcome)); }
        else                                                    { drop(); }
    }
}
