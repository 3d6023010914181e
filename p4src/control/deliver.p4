// SPDX-License-Identifier: MIT
// Who gets what: the packet's fate is decided here and nowhere else, and every outcome is counted here. What a reply says is
// written by reply.p4.

#define LACKS_CAPACITY(m) (m.header_only == 1 && HAS_STATUS(m.record, status_t.OK) && m.outcome != outcome_t.QUERIED_PARENT \
    && !HAS_OP(m.record, op_t.COPY))

// Whether a contribution brought the payload of a COPY, which does not wait for the others.
#define BROUGHT_COPY(h, m) (h.op == op_t.COPY && m.combine == combine_t.STORE && HAS_STATUS(m.record, status_t.OK))

control Deliver(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @id(OUTCOMES_COUNTER)
    counter<bit<32>>(OUTCOME_COUNTERS, CounterType.packets) outcomes;

    action find_counter() {     // apart, or p4c would add a variable
        meta.outcome_index = (bit<32>)(hdr.netsum.job_id ++ (bit<5>)meta.outcome);
    }
    action count() {
        outcomes.count(meta.outcome_index);
    }

    // What it becomes. Each counts.
    action drop() {
        count();
        mark_to_drop(standard_metadata);
    }
    action result() {           // to the source that sent the packet
        count();
        meta.reply = reply_t.RESULT;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
        standard_metadata.egress_rid = (bit<16>)hdr.netsum.src_id;    // as on a copy: rewrite.p4 looks up whose it is
    }
    action result_to_all() {    // all sources that the job has here, hosts and child switches
        count();
        meta.reply = reply_t.RESULT_TO_ALL;
        standard_metadata.mcast_grp = (bit<16>)hdr.netsum.job_id;
    }
    action early() {            // a payload, to the same
        count();
        meta.reply = reply_t.EARLY;
        standard_metadata.mcast_grp = (bit<16>)hdr.netsum.job_id;
    }
    action result_of_scan() {    // the same, and the scan goes on
        count();
        meta.reply = reply_t.RESULT_TO_ALL;
        standard_metadata.mcast_grp = SCAN_GROUPS + (bit<16>)hdr.netsum.job_id;
    }
    action partial() {          // to the parent: uplink.p4 knows the way
        count();
        meta.reply = reply_t.PARTIAL;
    }
    action set_status(status_t status, bit<8> reason) {
        count();
        hdr.netsum.status = status;
        hdr.netsum.reason = reason;
    }
    action answer(status_t status, bit<8> reason) {    // to the sender of the packet, member or not
        meta.reply = reply_t.ANSWER;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
        set_status(status, reason);
    }
    action answer_to_all(status_t status, bit<8> reason) {
        meta.reply = reply_t.ANSWER_TO_ALL;
        standard_metadata.mcast_grp = (bit<16>)hdr.netsum.job_id;
        set_status(status, reason);
    }
    action answer_of_scan(status_t status, bit<8> reason) {
        meta.reply = reply_t.ANSWER_TO_ALL;
        standard_metadata.mcast_grp = SCAN_GROUPS + (bit<16>)hdr.netsum.job_id;
        set_status(status, reason);
    }
    action controller() {
        count();
        standard_metadata.egress_spec = CPU_PORT;
    }

    apply {
        find_counter();
        if (meta.outcome == outcome_t.ACCEPTED) {
            if (!BROUGHT_COPY(hdr.netsum, meta))                             { drop(); }
            else if (meta.role == role_t.LEAF)                               { partial(); }
            else                                                             { early(); }
        }

        // A leaf's partial goes up in a packet that has room for it; else a source that can bring such a packet is asked to,
        // unless it is a COPY, whose payload has gone ahead. Or its query goes up, which has no payload.
        else if (meta.role == role_t.LEAF && OUTCOME_GOES_UP(meta.outcome)) {
            if (meta.from == sender_t.CONTROLLER)                            { answer_of_scan(status_t.AGAIN, 0); }
            else if (LACKS_CAPACITY(meta))                                   { answer(status_t.AGAIN, 0); }
            else                                                             { partial(); }
        }

        else if (OUTCOME_IS_CLOSING(meta.outcome)) {
            if (meta.from == sender_t.CONTROLLER)                            { result_of_scan(); }
            else                                                             { result_to_all(); }
        }
        else if (meta.outcome == outcome_t.REPLAYED)                         { result(); }
        else if (meta.outcome == outcome_t.PARENT_RESULT)                    { result_to_all(); }
        else if (meta.outcome == outcome_t.SCANNED)                          { controller(); }

        // Up to the root, then down to all that want it.
        else if (meta.outcome == outcome_t.EARLY_PAYLOAD) {
            if (!HAS_STATUS(meta.record, status_t.OK))                       { drop(); }
            else if (meta.role == role_t.LEAF && meta.from == sender_t.MEMBER) { partial(); }
            else                                                             { early(); }
        }

        // What the parent says about a block is told to all below. AGAIN stands for a notice, too.
        else if (meta.outcome == outcome_t.PARENT_STATUS) {
            if (hdr.netsum.status == status_t.STALE)                         { answer_to_all(status_t.STALE, 0); }
            else if (hdr.netsum.status == status_t.REFUSED)                  { answer_to_all(status_t.REFUSED, hdr.netsum.reason); }
            else                                                             { answer_to_all(status_t.AGAIN, 0); }
        }

        else if (hdr.netsum.hop == hop_t.DOWN)                               { drop(); }    // a parent is never answered
        else if (meta.outcome == outcome_t.STALE)                            { answer(status_t.STALE, 0); }
        else if (meta.outcome == outcome_t.PAYLOAD_MISSING)                  { answer(status_t.AGAIN, 0); }
        else if (OUTCOME_IS_REFUSAL(meta.outcome))                           { answer(status_t.REFUSED, REASON(meta.outcome)); }
        else                                                                 { drop(); }
    }
}
