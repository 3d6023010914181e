// Everything that is not netsum's is forwarded as by a plain L2 switch, so that ping, TCP and baselines use the same wires.

control Forward(in headers_t hdr, in metadata_t meta, inout standard_metadata_t standard) {
    action forward_to(bit<9> port) {
        standard.egress_spec = port;
    }
    action flood() {
        standard.mcast_grp = FLOOD_GROUP;
    }
    table forward {
        key = { hdr.ethernet.dst_addr: exact @name("eth_dst"); }
        actions = { forward_to; flood; }
        const default_action = flood();
        size = 1024;
    }
    apply {
        if (hdr.packet_out.isValid()) {
            mark_to_drop(standard);    // a sweep that is not for our address: nobody's traffic
        } else {
            forward.apply();
            if (meta.elsewhere == 1) {
                if (hdr.netsum.isValid()) {
                    mark_to_drop(standard);
                }
            }
        }
    }
}
