// Malformed input changes no state: lengths, version, counts and status must make sense before any table is asked.
// An empty contribution (grad_cnt 0) may be padded: see "Room" in block.p4. What a parent sends is no contribution.

control Check(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    apply {
        meta.outcome = OUTCOME_PENDING;
        meta.grad_cnt = 2w0 ++ hdr.netsum.grad_cnt_high ++ hdr.netsum.grad_cnt;
        bit<16> payload = hdr.udp.length - (UDP_BYTES + NETSUM_HEADER_BYTES);
        meta.room = (bit<5>)(payload >> 8);
        if (standard.checksum_error == 1) {
            meta.outcome = OUTCOME_CHECKSUM;
        } else if (standard.parser_error != error.NoError
                || hdr.netsum.version != NETSUM_VERSION
                || hdr.ipv4.total_length != hdr.udp.length + IPV4_BYTES
                || !LANE_IS_KNOWN(hdr.netsum.lane)
                || meta.grad_cnt > MAX_PAYLOAD_BYTES
                || (meta.grad_cnt != 0 && payload != meta.grad_cnt << hdr.netsum.lane)
                || payload[7:0] != 0
                || payload > MAX_PAYLOAD_BYTES
                || (hdr.netsum.status != STATUS_OK && meta.grad_cnt != 0)
                || (hdr.netsum.hop != HOP_DOWN
                    && (!HOP_IS_KNOWN(hdr.netsum.hop)
                        || hdr.netsum.age_op != 0
                        || hdr.netsum.give_way != 0
                        || !STATUS_IS_MEMBERS(hdr.netsum.status)
                        || hdr.netsum.data_cnt > hdr.netsum.src_cnt
                        || (hdr.netsum.data_cnt == 0) != (meta.grad_cnt == 0)))) {
            meta.outcome = OUTCOME_MALFORMED;
        }
    }
}
