// SPDX-License-Identifier: MIT
// Egress: every copy of a reply gets its receiver's addresses. A host that is not the block's destination gets the header
// alone, as an acknowledgment; a child switch gets everything. A member that is known by its key gets it back, at the address
// from which it came last, as the proof that the packet is the switch's. Members that have joined an IP multicast group get one
// copy, with the group's key. A receiver that is not in a partial result is told so.

control Rewrite(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    HeaderOnly() header_only;

    address_raw_t address;

    // The ranks of a host are `ranks` from `rank` on.
    @id(ACTION_TO_MEMBER)
    action to_member(mac_addr_t mac, ipv4_addr_t ip, bit<16> udp_port, bit<16> rank, bit<16> ranks) {
        hdr.ethernet.dst_addr = mac;
        hdr.ipv4.dst_addr = ip;
        hdr.udp.dst_port = udp_port;
        hdr.netsum.receiver_id = standard_metadata.egress_rid[7:0];
        hdr.packet_out.setInvalid();    // of a scan
        if (hdr.netsum.dest != EVERYONE && hdr.netsum.dest - rank >= ranks) {
            meta.header_only = 1;
        }
    }
    @id(ACTION_TO_KEYED_MEMBER)
    action to_keyed_member(bit<64> key, bit<16> rank, bit<16> ranks) {
        address_register.read(address, hdr.netsum.job_id ++ standard_metadata.egress_rid[7:0]);
        hdr.netsum.key = key;
        to_member(ADDRESS_MAC(address), ADDRESS_IP(address), ADDRESS_UDP_PORT(address), rank, ranks);
    }
    // Replica SWITCH_SOURCE, which no source has: the members at a port that have joined the group. They share its key.
    @id(ACTION_TO_IP_MULTICAST)
    action to_ip_multicast(mac_addr_t mac, ipv4_addr_t ip, bit<16> udp_port, bit<64> key) {
        hdr.netsum.key = key;
        to_member(mac, ip, udp_port, 0, EVERYONE);
    }
    @id(ACTION_TO_SWITCH)
    action to_switch(mac_addr_t mac, ipv4_addr_t ip, bit<16> udp_port) {
        hdr.ethernet.dst_addr = mac;
        hdr.ipv4.dst_addr = ip;
        hdr.udp.src_port = udp_port;
        hdr.udp.dst_port = NETSUM_PORT;
        hdr.netsum.receiver_id = standard_metadata.egress_rid[7:0];
        hdr.netsum.hop = hop_t.DOWN;
        hdr.packet_out.setInvalid();
    }
    action late() {
        hdr.netsum.age_op = age_op_t.LATE;
    }
    @id(ACTION_REWRITE_DROP)
    action drop() {
        mark_to_drop(standard_metadata);
    }
    @id(REWRITE_TABLE)
    table rewrite {
        key = {
            hdr.netsum.job_id:   exact @name("job_id") @refers_to("job", "job_id");
            standard_metadata.egress_rid: exact @name("replica");
        }
        actions = { to_member; to_keyed_member; to_ip_multicast; to_switch; drop; }
        const default_action = drop();
        size = 4096;
    }
    apply {
        switch (rewrite.apply().action_run) {
            to_keyed_member: {
                if (ADDRESS_EPOCH(address) != meta.epoch) {    // nothing has come from it yet
                    mark_to_drop(standard_metadata);
                }
            }
        }
        // One condition, since both are rare: BMv2 would pay for three.
        if (meta.header_only == 1 || hdr.netsum.degraded == 1) {
            if (REPLY_IS_RESULT(meta.reply)) {
                if (meta.header_only == 1) {
                    header_only.apply(hdr);
                }
                if (hdr.netsum.degraded == 1) {
                    if ((RECORD_SEEN(meta.record) >> standard_metadata.egress_rid[7:0])[0:0] == 0) {
                        late();
                    }
                }
            } else if (meta.reply == reply_t.EARLY) {
                mark_to_drop(standard_metadata);    // the payload is for another
            }
        }
    }
}
