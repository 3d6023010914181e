// SPDX-License-Identifier: MIT
// Malformed input changes no state: lengths, version, counts and status must make sense before any table is asked.
// An empty contribution (lane_cnt 0) may be padded: see "Room" in block.p4. What a parent sends is no contribution.

// A child switch's contribution to a COPY, whose payload has gone ahead (S38 to S44 in PROTOCOL.md).
#define COUNTS_COPY(h) (h.hop == hop_t.UP && h.op == op_t.COPY && h.status == status_t.OK && h.data_cnt != 0)

control Check(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    // An action, because p4c would otherwise compute these anew wherever they are used.
    action measure() {
        meta.outcome = outcome_t.PENDING;
        meta.payload_capacity = hdr.udp.length[12:8];
    }
    apply {
        measure();
        if (standard_metadata.checksum_error == 1) {
            meta.outcome = outcome_t.CHECKSUM;
        } else if (standard_metadata.parser_error != error.NoError
                || hdr.netsum.version != NETSUM_VERSION
                || hdr.netsum.reserved_flags != 0
                || hdr.netsum.reserved_cnt != 0
                || hdr.netsum.reserved != 0
                || hdr.ipv4.total_length != hdr.udp.length + IPV4_BYTES
                || !LANE_IS_KNOWN(hdr.netsum.lane)
                || hdr.netsum.lane_cnt > MAX_PAYLOAD_BYTES
                || (hdr.netsum.lane_cnt != 0 && hdr.udp.length != (hdr.netsum.lane_cnt << (bit<4>)hdr.netsum.lane) + HEADERS)
                || hdr.udp.length[7:0] != HEADERS[7:0]
                || hdr.udp.length > HEADERS + MAX_PAYLOAD_BYTES
                || (hdr.netsum.status != status_t.OK && hdr.netsum.lane_cnt != 0)
                || (hdr.netsum.hop != hop_t.DOWN
                    && (!HOP_IS_KNOWN(hdr.netsum.hop)
                        || hdr.netsum.age_op != age_op_t.NORMAL
                        || hdr.netsum.early != 0
                        || hdr.netsum.backoff != 0
                        || !STATUS_IS_MEMBERS(hdr.netsum.status)
                        || hdr.netsum.data_cnt > hdr.netsum.worker_cnt
                        || ((hdr.netsum.data_cnt == 0) != (hdr.netsum.lane_cnt == 0) && !COUNTS_COPY(hdr.netsum))))) {
            meta.outcome = outcome_t.MALFORMED;
        }
    }
}
