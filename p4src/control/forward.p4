// SPDX-License-Identifier: MIT
// Everything that is not netsum's is forwarded as by a plain L2 switch, so that ping, TCP and baselines use the same wires.
// What is not admitted (source_guard.p4, memory_source_guard.p4) is dropped and counted. So is a packet with a VLAN tag, which
// a kernel might remove.

control Forward(in headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @id(DROPPED_COUNTER)
    counter<bit<9>>(512, CounterType.packets) dropped;    // by port

    @id(ACTION_FORWARD_TO)
    action forward_to(port_id_t port) {
        standard_metadata.egress_spec = port;
    }
    @id(ACTION_FLOOD)
    action flood() {
        standard_metadata.mcast_grp = FLOOD_GROUP;
    }
    @id(FORWARD_TABLE)
    table forward {
        key = { hdr.ethernet.dst_addr: exact @name("eth_dst"); }
        actions = { forward_to; flood; }
        const default_action = flood();
        size = 1024;
    }
    apply {
        if (meta.not_admitted == 1
                || hdr.ethernet.ether_type == ETHERTYPE_VLAN || hdr.ethernet.ether_type == ETHERTYPE_OUTER_VLAN) {
            dropped.count(standard_metadata.ingress_port);
            mark_to_drop(standard_metadata);
        } else {
            forward.apply();
        }
    }
}
