// Everything that is not netsum's is forwarded as by a plain L2 switch, so that ping, TCP and baselines use the same wires. But
// addresses belong to ports, or a stranger could speak for a member or for the switch: a packet (IPv4, ARP) from the address of
// a host or a switch that is not behind its port is dropped and counted. So is one with a VLAN tag, which a kernel might remove.

control Forward(in headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @id(DROPPED_COUNTER)
    counter<bit<9>>(512, CounterType.packets) dropped;    // by port

    @id(FORWARD_TO)
    action forward_to(bit<9> port) {
        standard.egress_spec = port;
    }
    @id(FLOOD)
    action flood() {
        standard.mcast_grp = FLOOD_GROUP;
    }
    @id(FORWARD_TABLE)
    table forward {
        key = { hdr.ethernet.dst_addr: exact @name("eth_dst"); }
        actions = { forward_to; flood; }
        const default_action = flood();
        size = 1024;
    }
    // One bit for each port that packets from this address may come in through: the host's own, or those of all links to
    // other switches. (A shift takes 8 bits at most, and a port has 9.)
    @id(COMES_THROUGH)
    action comes_through(bit<512> ports) {
        bit<8> half = standard.ingress_port[8:1];
        meta.unwelcome = meta.unwelcome | ~(((ports >> half) >> half) >> standard.ingress_port[0:0])[0:0];
    }
    @id(SENDER_TABLE)
    table sender {
        key = { meta.address: exact @name("address"); }
        actions = { comes_through; NoAction; }
        const default_action = NoAction();
        size = 1024;
    }
    apply {
        if (hdr.packet_out.isValid()) {
            mark_to_drop(standard);    // a sweep that is not for our address
        } else {
            if (hdr.ipv4.isValid()) {
                meta.address = hdr.ipv4.src_addr;
            } else if (hdr.arp.isValid()) {
                meta.address = hdr.arp.sender_ip;
            }
            sender.apply();
            if (meta.unwelcome == 1
                    || hdr.ethernet.ether_type == ETHERTYPE_VLAN || hdr.ethernet.ether_type == ETHERTYPE_OUTER_VLAN) {
                dropped.count(standard.ingress_port);
                mark_to_drop(standard);
            } else {
                forward.apply();
            }
        }
    }
}
