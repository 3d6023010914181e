// SPDX-License-Identifier: MIT
// Addresses belong to ports, or any host could pass for a member, the switch or memory: a packet (IPv4, ARP) from the
// address of a host or a switch that is not behind its port is not admitted. Contributions do not come here: see member.p4.

control SourceGuard(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    // One bit for each port that packets from this address may come in through: the host's own, or those of all links to
    // other switches. (A shift takes 8 bits at most, and a port has 9.)
    @id(ACTION_CHECK_INGRESS_PORT)
    action check_ingress_port(bit<512> ports) {
        bit<8> half = standard_metadata.ingress_port[8:1];
        meta.not_admitted = meta.not_admitted | ~(((ports >> half) >> half) >> standard_metadata.ingress_port[0:0])[0:0];
    }
    @id(SOURCE_GUARD_TABLE)
    table source_guard {
        key = { meta.sender_ip: exact @name("address"); }
        actions = { check_ingress_port; NoAction; }
        const default_action = NoAction();
        size = 1024;
    }
    apply {
        if (hdr.ipv4.isValid()) {
            meta.sender_ip = hdr.ipv4.src_addr;
        } else if (hdr.arp.isValid()) {
            meta.sender_ip = hdr.arp.sender_ip;
        }
        source_guard.apply();
    }
}
