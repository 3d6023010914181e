// SPDX-License-Identifier: MIT
// What a reply says. A result or a partial is the slot's record, in the packet that brought it about; an answer is that packet's
// own header, without payload. The receiver's addresses come from rewrite.p4 and uplink.p4, but for an answer to the sender.

control Reply(inout headers_t hdr, inout metadata_t meta) {
    SetLengths() set_lengths;
    HeaderOnly() header_only;

    action from_us() {
        hdr.ethernet.src_addr = meta.my_mac;
        hdr.ipv4.ttl = 64;
        hdr.udp.checksum = 0;
        hdr.netsum.src_id = SWITCH_SOURCE;
    }
    action from_record() {
        from_us();
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.udp.src_port = NETSUM_PORT;
        hdr.netsum.query = 0;
        hdr.netsum.early = 0;
        hdr.netsum.reason = 0;
        hdr.netsum.hop = hop_t.HOST;
        hdr.netsum.age_op = age_op_t.NORMAL;
        hdr.netsum.degraded = RECORD_DEGRADED(meta.record);
        hdr.netsum.no_aging = RECORD_NO_AGING(meta.record);
        hdr.netsum.src_cnt = AS_SRC_CNT_OF(RECORD_WORKER_CNT(meta.record));
        hdr.netsum.worker_cnt = RECORD_WORKER_CNT(meta.record);
        hdr.netsum.gen_id = RECORD_GEN_ID(meta.record);
        hdr.netsum.grad_cnt = AS_GRAD_CNT_OF(RECORD_LANE_CNT(meta.record));
        hdr.netsum.lane_cnt = RECORD_LANE_CNT(meta.record);
        hdr.netsum.op = RECORD_OP(meta.record);
        hdr.netsum.lane = RECORD_LANE(meta.record);
        hdr.netsum.status = RECORD_STATUS(meta.record);
        hdr.netsum.dest = RECORD_DEST(meta.record);
        hdr.netsum.data_cnt = RECORD_DATA_CNT(meta.record);
        hdr.netsum.key = 0;    // the receiver's, if it has one: rewrite.p4
        hdr.netsum.call_fingerprint = RECORD_CALL_FINGERPRINT(meta.record);
    }
    action congested() {
        hdr.ipv4.version_ihl_tos = hdr.ipv4.version_ihl_tos | ECN_CE;
    }
    action aged() {
        hdr.netsum.age_op = age_op_t.AGED;
    }
    // It stands for the one that has the payload; how many others have come is not said before the result.
    action early() {
        hdr.netsum.early = 1;
        hdr.netsum.degraded = 0;
        hdr.netsum.src_cnt = 1;
        hdr.netsum.worker_cnt = 1;
        hdr.netsum.data_cnt = 1;
    }
    action back_to_sender() {
        hdr.ethernet.dst_addr = hdr.ethernet.src_addr;
        hdr.ipv4.dst_addr = hdr.ipv4.src_addr;
        hdr.ipv4.src_addr = meta.target_ip;
        hdr.netsum.receiver_id = hdr.netsum.src_id;
    }
    // A host's answer comes from the port that it sent to; a switch knows one by its hop, and by the port that is its own.
    action ports_of_host() {
        hdr.udp.dst_port = hdr.udp.src_port;
        hdr.udp.src_port = NETSUM_PORT;
    }
    action ports_of_switch() {
        hdr.netsum.hop = hop_t.DOWN;
    }
    action to_sources() {
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.udp.src_port = NETSUM_PORT;
        hdr.netsum.hop = hop_t.HOST;
        hdr.netsum.query = 0;
        hdr.netsum.key = 0;
        hdr.netsum.gen_id = RECORD_GEN_ID(meta.record);
        hdr.netsum.call_fingerprint = RECORD_CALL_FINGERPRINT(meta.record);
    }
    action nothing_counted() {
        hdr.netsum.src_cnt = 0;
        hdr.netsum.worker_cnt = 0;
        hdr.netsum.data_cnt = 0;
    }
    // AGAIN says how much room is needed.
    action how_much() {
        hdr.netsum.grad_cnt = AS_GRAD_CNT_OF(RECORD_LANE_CNT(meta.record));
        hdr.netsum.lane_cnt = RECORD_LANE_CNT(meta.record);
        hdr.netsum.lane = RECORD_LANE(meta.record);
    }

    apply {
        if (REPLY_IS_ANSWER(meta.reply)) {
            if (meta.reply == reply_t.ANSWER_TO_ALL) {
                to_sources();
            } else {
                back_to_sender();
                if (hdr.netsum.hop == hop_t.UP) {
                    ports_of_switch();
                } else {
                    ports_of_host();
                }
            }
            from_us();
            nothing_counted();
            header_only.apply(hdr);
            if (hdr.netsum.status == status_t.AGAIN) {
                how_much();
            }
        } else {
            from_record();
            if (HAS_CONGESTED(meta.record, 1)) {
                congested();
            }
            set_lengths.apply(hdr, (bit<16>)RECORD_CHUNKS(meta.record) << 8);
            if (REPLY_IS_RESULT(meta.reply)) {
                if (HAS_DEGRADED(meta.record, 1)) {
                    aged();
                }
                if (meta.header_only == 1) {
                    header_only.apply(hdr);
                }
            } else if (meta.reply == reply_t.EARLY) {
                early();
            }
        }
    }
}
