// SPDX-License-Identifier: MIT
// A leaf's partial goes up: the packet that completed the block, or that repeats a contribution to a SENT one, becomes the
// switch's contribution to its parent. Or a query goes up, made of a packet that repeats a contribution to a block which
// this switch may not close. A block's stripe says which parent it has: blocks are spread over several trees.

control Uplink(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    SetLengths() set_lengths;

    @id(ACTION_UP)
    action up(port_id_t port, mac_addr_t mac, ipv4_addr_t ip, bit<16> udp_port, bit<8> src_id) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.dst_addr = mac;
        hdr.ipv4.dst_addr = ip;
        hdr.udp.src_port = udp_port;
        hdr.udp.dst_port = NETSUM_PORT;
        hdr.netsum.hop = hop_t.UP;
        hdr.netsum.src_id = src_id;
        hdr.netsum.backoff = 0;    // the switch that makes the result sets it
    }
    @id(ACTION_UPLINK_DROP)
    action drop() {
        mark_to_drop(standard_metadata);
    }
    // After RANGE, ABORT or MISMATCH, no rank needs the sum.
    action no_data() {
        hdr.netsum.data_cnt = 0;
    }
    action no_lanes() {
        hdr.netsum.grad_cnt = 0;
        hdr.netsum.lane_cnt = 0;
    }
    // Only the payload: the contribution that counts it follows when the block is complete here.
    action ahead() {
        hdr.netsum.query = 1;
        hdr.netsum.degraded = 0;
        hdr.netsum.src_cnt = 1;
        hdr.netsum.worker_cnt = 1;
        hdr.netsum.data_cnt = 1;
    }
    action find_stripe() {
        meta.stripe = hdr.netsum.block_id[7:0] & meta.stripe_mask;
    }
    action query() {
        hdr.netsum.query = 1;
    }
    @id(UPLINK_TABLE)
    table uplink {
        key = {
            hdr.netsum.job_id: exact @name("job_id") @refers_to("job", "job_id");
            meta.stripe:       exact @name("stripe");
        }
        actions = { up; drop; }
        const default_action = drop();
        size = 4096;
    }
    apply {
        if (meta.reply == reply_t.PARTIAL) {
            find_stripe();
            uplink.apply();
            if (!HAS_STATUS(meta.record, status_t.OK) || HAS_CHUNKS(meta.record, 0) || meta.outcome == outcome_t.QUERIED_PARENT) {
                // A partial without payload stays as long as its packet: the result may have one, and needs the room.
                no_data();
                no_lanes();
                set_lengths.apply(hdr, (bit<16>)meta.payload_capacity << 8);
            } else if (hdr.netsum.op == op_t.COPY) {
                if (!OUTCOME_GOES_UP(meta.outcome)) {
                    ahead();
                } else if (meta.header_only == 1) {
                    no_lanes();    // the payload has gone ahead
                    set_lengths.apply(hdr, (bit<16>)meta.payload_capacity << 8);
                }
            }
            if (meta.outcome == outcome_t.QUERIED_PARENT) {
                query();
            }
        }
    }
}
