// Is the packet for the switch's own address? Then it is an ARP request, answered by arp.p4, or a contribution.

control Aggregator(inout headers_t hdr, inout metadata_t meta) {
    action aggregator_here(bit<48> mac) {
        meta.aggregator_mac = mac;
    }
    table aggregator {
        key = { meta.target_ip: exact @name("address"); }
        actions = { aggregator_here; NoAction; }
        const default_action = NoAction();
        size = 16;
    }
    apply {
        if (hdr.netsum.isValid()) {
            meta.target_ip = hdr.ipv4.dst_addr;
        } else if (hdr.arp.isValid() && hdr.arp.operation == ARP_REQUEST) {
            meta.target_ip = hdr.arp.target_ip;
        }
        if (meta.target_ip != 0) {
            aggregator.apply();
        }
    }
}
