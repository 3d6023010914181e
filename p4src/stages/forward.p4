// Everything that is not netsum's is forwarded as by a plain L2 switch, so that ping, TCP and baselines use the same wires. But
// addresses belong to ports: what says (IPv4, ARP) that it comes from a host or a switch that is not behind its port is dropped and
// counted, or a stranger could speak for a member or for the switch. So is what has a VLAN tag, which a kernel might take off.

control Forward(in headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(512, CounterType.packets) dropped;    // by port

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
    // One bit for each port that traffic with this address comes in through: its own, or those of all links to other switches.
    // (A shift takes 8 bits at most, and a port has 9.)
    action comes_through(bit<512> ports) {
        bit<8> half = standard.ingress_port[8:1];
        meta.imposter = ~(((ports >> half) >> half) >> standard.ingress_port[0:0])[0:0];
    }
    table sender {
        key = { meta.sender_ip: exact @name("address"); }
        actions = { comes_through; NoAction; }
        const default_action = NoAction();
        size = 1024;
    }
    apply {
        if (hdr.packet_out.isValid()) {
            mark_to_drop(standard);    // a sweep that is not for our address: nobody's traffic
        } else {
            if (hdr.ipv4.isValid()) {
                meta.sender_ip = hdr.ipv4.src_addr;
            } else if (hdr.arp.isValid()) {
                meta.sender_ip = hdr.arp.sender_ip;
            }
            sender.apply();
            if (meta.imposter == 1 || (meta.elsewhere == 1 && hdr.netsum.isValid())
                    || hdr.ethernet.ether_type == ETHERTYPE_VLAN || hdr.ethernet.ether_type == ETHERTYPE_OUTER_VLAN) {
                dropped.count((bit<32>)standard.ingress_port);
                mark_to_drop(standard);
            } else {
                forward.apply();
            }
        }
    }
}
