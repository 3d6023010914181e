// SPDX-License-Identifier: MIT
// Who gets what: the packet's fate is decided here and nowhere else, and every outcome is counted here. What a reply says is
// written by reply.p4.

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
    @id(ACTION_DELIVER_DROP)
    action drop() {
        count();
        mark_to_drop(standard_metadata);
    }
    @id(ACTION_DELIVER_RESULT)
    action result() {           // to the source that sent the packet
        count();
        meta.reply = reply_t.RESULT;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
        standard_metadata.egress_rid = (bit<16>)hdr.netsum.src_id;    // as on a copy: rewrite.p4 looks up whose it is
    }
    @id(ACTION_DELIVER_RESULT_TO_ALL)
    action result_to_all() {    // all sources that the job has here, hosts and child switches
        count();
        meta.reply = reply_t.RESULT_TO_ALL;
        standard_metadata.mcast_grp = (bit<16>)hdr.netsum.job_id;
    }
    @id(ACTION_DELIVER_EARLY)
    action early() {            // a payload, to the same
        count();
        meta.reply = reply_t.EARLY;
        standard_metadata.mcast_grp = (bit<16>)hdr.netsum.job_id;
    }
    @id(ACTION_DELIVER_RESULT_OF_SCAN)
    action result_of_scan() {    // the same, and the scan goes on
        count();
        meta.reply = reply_t.RESULT_TO_ALL;
        standard_metadata.mcast_grp = SCAN_GROUPS + (bit<16>)hdr.netsum.job_id;
    }
    @id(ACTION_DELIVER_PARTIAL)
    action partial() {          // to the parent: uplink.p4 knows the way
        count();
        meta.reply = reply_t.PARTIAL;
    }
    action set_status(status_t status, bit<8> reason) {
        count();
        hdr.netsum.status = status;
        hdr.netsum.reason = reason;
    }
    @id(ACTION_DELIVER_ANSWER)
    action answer(status_t status) {    // to the sender of the packet, member or not
        meta.reply = reply_t.ANSWER;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
        set_status(status, 0);
    }
    @id(ACTION_DELIVER_REFUSE)
    action refuse() {           // to the same
        meta.reply = reply_t.ANSWER;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
        set_status(status_t.REFUSED, REASON(meta.outcome));
    }
    @id(ACTION_DELIVER_ANSWER_TO_ALL)
    action answer_to_all(status_t status) {
        meta.reply = reply_t.ANSWER_TO_ALL;
        standard_metadata.mcast_grp = (bit<16>)hdr.netsum.job_id;
        set_status(status, 0);
    }
    @id(ACTION_DELIVER_ANSWER_OF_SCAN)
    action answer_of_scan(status_t status) {
        meta.reply = reply_t.ANSWER_TO_ALL;
        standard_metadata.mcast_grp = SCAN_GROUPS + (bit<16>)hdr.netsum.job_id;
        set_status(status, 0);
    }
    @id(ACTION_DELIVER_REFUSAL_TO_ALL)
    action refusal_to_all() {    // the parent's, with its reason
        count();
        meta.reply = reply_t.ANSWER_TO_ALL;
        standard_metadata.mcast_grp = (bit<16>)hdr.netsum.job_id;
    }
    @id(ACTION_DELIVER_CONTROLLER)
    action controller() {
        count();
        standard_metadata.egress_spec = CPU_PORT;
    }

    // The first entry that matches decides. Those of a leaf come first: its partial goes up in a packet that has room for it; else
    // (header_only) a source that can bring such a packet is asked to, unless the block is a COPY, whose payload has gone ahead.
    // The payload of a COPY does not wait for the others (combine: it was the first, and is in the slot). AGAIN stands for a
    // notice, too.
    @id(DELIVER_TABLE)
    table deliver {
        key = {
            meta.outcome:               ternary @name("outcome");
            meta.role:                  ternary @name("role");
            meta.from:                  ternary @name("from");
            RECORD_STATUS(meta.record): ternary @name("block_status");
            RECORD_OP(meta.record):     ternary @name("block_op");
            meta.combine:               ternary @name("combine");
            meta.header_only:           ternary @name("header_only");
            hdr.netsum.hop:             ternary @name("hop");
            hdr.netsum.status:          ternary @name("status");
        }
        actions = {
            drop; result; result_to_all; early; result_of_scan; partial; answer; refuse; answer_to_all;
            answer_of_scan; refusal_to_all; controller;
        }
        const default_action = drop();
        const entries = {
            (outcome_t.ACCEPTED,             role_t.LEAF, _,                   status_t.OK, op_t.COPY, combine_t.STORE, _, _,          _)               : partial();
            (outcome_t.ACCEPTED,             _,           _,                   status_t.OK, op_t.COPY, combine_t.STORE, _, _,          _)               : early();
            (outcome_t.ACCEPTED,             _,           _,                   _,           _,         _,               _, _,          _)               : drop();
            (outcome_t.COMPLETED,            role_t.LEAF, sender_t.CONTROLLER, _,           _,         _,               _, _,          _)               : answer_of_scan(status_t.AGAIN);
            (outcome_t.AGED,                 role_t.LEAF, sender_t.CONTROLLER, _,           _,         _,               _, _,          _)               : answer_of_scan(status_t.AGAIN);
            (outcome_t.COMPLETED,            role_t.LEAF, _,                   _,           op_t.COPY, _,               _, _,          _)               : partial();
            (outcome_t.COMPLETED,            role_t.LEAF, _,                   status_t.OK, _,         _,               1, _,          _)               : answer(status_t.AGAIN);
            (outcome_t.COMPLETED,            role_t.LEAF, _,                   _,           _,         _,               _, _,          _)               : partial();
            (outcome_t.AGED,                 role_t.LEAF, _,                   _,           op_t.COPY, _,               _, _,          _)               : partial();
            (outcome_t.AGED,                 role_t.LEAF, _,                   status_t.OK, _,         _,               1, _,          _)               : answer(status_t.AGAIN);
            (outcome_t.AGED,                 role_t.LEAF, _,                   _,           _,         _,               _, _,          _)               : partial();
            (outcome_t.RESENT,               role_t.LEAF, _,                   _,           op_t.COPY, _,               _, _,          _)               : partial();
            (outcome_t.RESENT,               role_t.LEAF, _,                   status_t.OK, _,         _,               1, _,          _)               : answer(status_t.AGAIN);
            (outcome_t.RESENT,               role_t.LEAF, _,                   _,           _,         _,               _, _,          _)               : partial();
            (outcome_t.QUERIED_PARENT,       role_t.LEAF, _,                   _,           _,         _,               _, _,          _)               : partial();
            (outcome_t.COMPLETED,            _,           sender_t.CONTROLLER, _,           _,         _,               _, _,          _)               : result_of_scan();
            (outcome_t.COMPLETED,            _,           _,                   _,           _,         _,               _, _,          _)               : result_to_all();
            (outcome_t.AGED,                 _,           sender_t.CONTROLLER, _,           _,         _,               _, _,          _)               : result_of_scan();
            (outcome_t.AGED,                 _,           _,                   _,           _,         _,               _, _,          _)               : result_to_all();
            (outcome_t.REPLAYED,             _,           _,                   _,           _,         _,               _, _,          _)               : result();
            (outcome_t.SCANNED,              _,           _,                   _,           _,         _,               _, _,          _)               : controller();
            (outcome_t.EARLY_PAYLOAD,        role_t.LEAF, sender_t.MEMBER,     status_t.OK, _,         _,               _, _,          _)               : partial();
            (outcome_t.EARLY_PAYLOAD,        _,           _,                   status_t.OK, _,         _,               _, _,          _)               : early();
            (outcome_t.EARLY_PAYLOAD,        _,           _,                   _,           _,         _,               _, _,          _)               : drop();
            (outcome_t.PARENT_RESULT,        _,           _,                   _,           _,         _,               _, _,          _)               : result_to_all();
            (outcome_t.PARENT_STATUS,        _,           _,                   _,           _,         _,               _, _,          status_t.STALE)  : answer_to_all(status_t.STALE);
            (outcome_t.PARENT_STATUS,        _,           _,                   _,           _,         _,               _, _,          status_t.REFUSED): refusal_to_all();
            (outcome_t.PARENT_STATUS,        _,           _,                   _,           _,         _,               _, _,          _)               : answer_to_all(status_t.AGAIN);
            (_,                              _,           _,                   _,           _,         _,               _, hop_t.DOWN, _)               : drop();    // a parent is never answered
            (outcome_t.STALE,                _,           _,                   _,           _,         _,               _, _,          _)               : answer(status_t.STALE);
            (outcome_t.PAYLOAD_MISSING,      _,           _,                   _,           _,         _,               _, _,          _)               : answer(status_t.AGAIN);
            (outcome_t.UNKNOWN_JOB,          _,           _,                   _,           _,         _,               _, _,          _)               : refuse();
            (outcome_t.NOT_MEMBER,           _,           _,                   _,           _,         _,               _, _,          _)               : refuse();
            (outcome_t.WRONG_PORT,           _,           _,                   _,           _,         _,               _, _,          _)               : refuse();
            (outcome_t.BAD_KEY,              _,           _,                   _,           _,         _,               _, _,          _)               : refuse();
            (outcome_t.FINGERPRINT_MISMATCH, _,           _,                   _,           _,         _,               _, _,          _)               : refuse();
            (outcome_t.OUT_OF_WINDOW,        _,           _,                   _,           _,         _,               _, _,          _)               : refuse();
            (outcome_t.UNSUPPORTED,          _,           _,                   _,           _,         _,               _, _,          _)               : refuse();
        }
    }

    // Members that have joined the job's IP multicast group get a packet together if it says the same to all.
    action by_ip_multicast() {
        standard_metadata.mcast_grp = IP_MULTICAST_GROUPS + (bit<16>)hdr.netsum.job_id;
    }

    apply {
        find_counter();
        switch (deliver.apply().action_run) {
            result_to_all:
            early: {
                if (meta.multicast == 1 && RECORD_DEST(meta.record) == EVERYONE && HAS_DEGRADED(meta.record, 0)) {
                    by_ip_multicast();
                }
            }
        }
    }
}
